/** The main memory in use over a step that was played: an area below the timeline, and its figures in words. */

import { drawn, h, stretched } from "#page/dom.js";
import { outline, TALL } from "#page/outline.js";
import { percent, show } from "#page/units.js";

/** @returns the figure, or nothing where the course is not known */
export function memoryCourse({ memory }) {
  const course = memory?.over_step ?? [];
  const most = Math.max(0, ...course.map(({ bytes }) => bytes));
  if (!most) return null;
  const area = drawn("path", { d: outline(course.map(({ bytes }) => (TALL * bytes) / most)) });
  const drawing = stretched(course.length, TALL, { class: "lane memory-lane" }, area);
  const [first, last, top] = [course[0], course.at(-1), course.find(({ bytes }) => bytes === most)];
  const room = memory.capacity_bytes ? ` (${percent(most / memory.capacity_bytes)} of ${show(memory.capacity_bytes, "B")})` : "";
  const words = `Memory in use: ${show(first.bytes, "B")} at first, at most ${show(most, "B")}${room} from ${show(top.begin_s, "s", 3)} on, ${show(last.bytes, "B")} at last`;
  return h("figure", { class: "memory-course", "data-testid": "memory-course" }, drawing, h("figcaption", { class: "quiet", text: words }));
}
