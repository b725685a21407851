/** Words on a chart: names of roofs along their lines, and of the heaviest dots beside them, where there is room. */

import { shortName } from "#page/dom.js";
import { distance } from "#page/hits.js";
import { byWeight, clip, inSight, SIGN, turned } from "#page/paint.js";
import { placeLabels } from "#page/scale.js";

const NAMED = 24; // dots that may carry their name, heaviest first
const TRIED = 100; // dots whose name is given a try: the heaviest are often a crowd without room for any
const CROWD = 400; // dots that names keep clear of, heaviest first
const LONGEST = 28; // letters of a name
const [LIFT, BESIDE_CORNER] = [10, 4]; // pixels between a roof and its name, and from its ends

/** Round places that words keep clear of: the heaviest dots in sight and the points of the program. */
function marks({ dots, place, at, program }, most) {
  const heavy = byWeight(dots).slice(0, most).filter((number) => number < dots.onPlot && inSight(dots, number, place));
  return [
    ...heavy.map((number) => ({ x: dots.x[number], y: dots.y[number], r: dots.size[number] })),
    ...program.map((mark) => ({ x: at.x.at(mark.x), y: at.y.at(mark.y), r: (SIGN[mark.scope] ?? SIGN.step) + 1 })),
  ];
}

/** The name of each roof where there is room for it; returns round places {x, y, r} that cover these names. */
export function drawRoofNames(context, chart, { theme, roofColour, font, moving }) {
  const { at, lines, place: { plot, narrow } } = chart;
  const obstacles = marks(chart, CROWD);
  const written = [];
  context.font = `${narrow ? 11 : 12}px ${font}`;
  context.lineJoin = "round";
  context.lineWidth = 4;
  context.strokeStyle = theme.background;
  context.textAlign = "left";
  context.textBaseline = "middle";
  const ends = new Map(lines.map(({ id, points }) => [id, points.map(([x, y]) => [at.x.at(x), at.y.at(y)])]));
  for (const { id, label: text } of lines) {
    const others = [...ends].filter(([other]) => other !== id).map(([, [start, end]]) => ({ start, end }));
    const crossed = (disc) => others.some(({ start, end }) => distance(disc.x, disc.y, ...start, ...end) < disc.r);
    const touched = (disc, discs) => discs.some((other) => Math.hypot(other.x - disc.x, other.y - disc.y) < other.r + disc.r - 2);
    // Not on another name, and not on another line: the card of a roof says its name too. Off the dots if it can.
    const free = alongRoof(plot, ends.get(id), context.measureText(text).width).filter((offer) => !offer.discs.some((disc) => crossed(disc) || touched(disc, written)));
    const offer = free.find(({ discs }) => !discs.some((disc) => touched(disc, obstacles))) ?? free[0];
    if (!offer) continue;
    written.push(...offer.discs);
    context.fillStyle = roofColour(id);
    turned(context, offer.angle, offer.x, offer.y, () => haloed(context, text, 0, 0, moving));
  }
  return written;
}

/** Places for a name of this width above and below a roof: at a flat one's right end first, at last beyond its corner; along a slanted one upwards. */
function alongRoof(plot, [[left, bottom], [right, top]], width) {
  const [length, angle] = [Math.hypot(right - left, bottom - top), Math.atan2(top - bottom, right - left)];
  const room = length - width - BESIDE_CORNER;
  const places = angle ? [0.1, 0.35, 0.65, 1].map((share) => share * room) : [room, room / 2, -width - 2 * BESIDE_CORNER];
  if (angle && room < 0) return [];
  const inside = ({ x, y }) => x >= plot.x && x <= plot.x + plot.w && y >= plot.y - LIFT && y <= plot.y + plot.h;
  return [1, -1].flatMap((side) => places.map((along) => {
    const x = left + Math.cos(angle) * along + side * Math.sin(angle) * LIFT;
    const y = bottom + Math.sin(angle) * along - side * Math.cos(angle) * LIFT;
    const count = Math.ceil(width / 12);
    const discs = Array.from({ length: count + 1 }, (_, index) => ({ x: x + (Math.cos(angle) * width * index) / count, y: y + (Math.sin(angle) * width * index) / count, r: 8 }));
    return { x, y, angle, discs };
  })).filter(({ discs }) => inside(discs[0]) && inside(discs.at(-1)));
}

/** An op in few letters: its place and what it does, without shapes; where it has no label, the compiler's name. */
export function chartName({ label, name }) {
  const [place, operation] = (label ?? "").split("  ");
  return shortName(operation ? `${place} ${operation.split(/ (?=[\d(]|\w+\[)/)[0]}` : label || name, LONGEST);
}

/** The names of ops: where several would have the same one, what they do with their shapes, without their place. */
export function chartNames(ops) {
  const short = ops.map(chartName);
  const times = new Map();
  for (const name of short) times.set(name, (times.get(name) ?? 0) + 1);
  return ops.map(({ label }, index) => {
    const operation = (label ?? "").split("  ")[1];
    return operation && times.get(short[index]) > 1 ? shortName(operation, LONGEST) : short[index];
  });
}

/** Names of the heaviest dots in sight, each as an offset from its dot so that it travels with it, clear of the places `taken`. */
export function placeNames(context, chart, taken, font) {
  const { dots, place } = chart;
  context.font = `12px ${font}`;
  const heavy = byWeight(dots).filter((number) => number < dots.onPlot && inSight(dots, number, place)).slice(0, TRIED);
  const texts = chartNames(heavy.map((number) => dots.all[number]));
  const wanted = heavy.map((number, index) => {
    const text = texts[index];
    return { number, text, x: dots.x[number], y: dots.y[number], r: dots.size[number], width: context.measureText(text).width, height: 15 };
  });
  return placeLabels(wanted, place.plot, [...marks(chart, CROWD), ...taken, ...alongLines(chart)], NAMED).map(({ index, x, y }) => {
    const { number, text, height } = wanted[index];
    return { text, index: number, dx: x - dots.x[number], dy: y + height / 2 - dots.y[number] };
  });
}

/** Round places along the roofs, which names keep clear of. */
function alongLines({ lines, at }) {
  return lines.flatMap(({ points: [[x0, y0], [x1, y1]] }) => {
    const [left, bottom, right, top] = [at.x.at(x0), at.y.at(y0), at.x.at(x1), at.y.at(y1)];
    const count = Math.ceil(Math.hypot(right - left, top - bottom) / 6);
    return Array.from({ length: count + 1 }, (_, index) => ({ x: left + ((right - left) * index) / count, y: bottom + ((top - bottom) * index) / count, r: 3 }));
  });
}

/** The names that `placeNames` found places for. */
export function drawNames(context, { dots, place }, names, { theme, font, moving }) {
  context.save();
  clip(context, place.plot);
  context.font = `12px ${font}`;
  context.textBaseline = "middle";
  context.lineJoin = "round";
  context.lineWidth = 3;
  context.strokeStyle = theme.background;
  context.fillStyle = theme.ink;
  context.textAlign = "left";
  for (const { text, index, dx, dy } of names) haloed(context, text, dots.x[index] + dx, dots.y[index] + dy, moving);
  context.restore();
}

/** Words that stay readable over dots and lines; during a gesture the halo, which is most of the work, is left out. */
function haloed(context, text, x, y, moving) {
  if (!moving) context.strokeText(text, x, y);
  context.fillText(text, x, y);
}
