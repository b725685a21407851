/** The timeline: one strip per device, one column per bucket, stacked by cause. Dragging over it keeps the ops that ran in a stretch. */

import { CAUSES } from "#page/chosen.js";
import { causeColour } from "#page/colours.js";
import { announce, button, drawn, elided, fill, h, named, shortName, stretched } from "#page/dom.js";
import { hostAt, hostLegend, hostStrip } from "#page/host_lane.js";
import { memoryCourse } from "#page/memory.js";
import { outline, TALL } from "#page/outline.js";
import { stepTitle } from "#page/rows.js";
import { partTitle, VISIBLE } from "#page/stack.js";
import { bucketIn, lanesOf, longestOf, opsIn, partsOf, secondsOf, spansOf } from "#page/stretch.js";
import { percent, plain, show } from "#page/units.js";

const HEIGHTS = [[1, 44], [4, 28], [8, 20], [16, 14], [Infinity, 8]]; // pixels of a lane, by how many there are
const HOST = 0.3; // of a lane's height, for the host above it
const [DRAGGED, GAP, FAR, TICKS] = [4, 16, 50, 8]; // pixels, pixels, buckets, so many ticks at most
const TICK_WIDTH = 60; // pixels of a tick's words, with some room
const LONGEST = 56; // letters of an op's name

/** @returns {{root, update(state, derived)}} `idle` are the reasons of the report's idle times in Python's words */
export function timeline({ report, idle, store }) {
  const spans = spansOf(report);
  const names = new Map(report.ops.map((op) => [op.id, op.label ? elided(op.label, LONGEST) : shortName(op.name, LONGEST)]));
  const devices = new Map((report.input.devices ?? []).map((one) => [one.id, one]));
  const steps = new Map((report.steps ?? []).map((one) => [one.step, one]));
  const buttons = spans.map((key) => button({
    class: "entry", "data-testid": `timeline-${key}`, onclick: () => store.set({ timeline: key, stretch: null }),
  }));
  const colours = h("ul", { class: "legend", "data-testid": "timeline-legend" });
  const chosen = h("span", { role: "status", "data-testid": "timeline-chosen" });
  const clear = button({ text: "Clear", "data-testid": "timeline-clear", onclick: () => store.set({ stretch: null }) });
  const labels = h("div", { class: "lane-names", "aria-hidden": "true" });
  const drawn = h("div", { class: "lanes" });
  const shade = h("div", { class: "stretch", hidden: true, "data-testid": "timeline-stretch" });
  const line = h("div", { class: "moment", hidden: true });
  const plot = h("div",
    {
      class: "lane-plot", role: "slider", tabindex: "0",
      "aria-label": "Timeline. Arrow keys move, Shift and arrow keys select a stretch, Escape clears it", "data-testid": "timeline-plot",
    },
    drawn,
    shade,
    line,
  );
  const axis = h("div", { class: "lane-axis quiet", "aria-hidden": "true" });
  const tip = h("div", { class: "card", role: "tooltip", hidden: true, "data-testid": "timeline-card" });
  const root = h("section", { class: "timeline", id: "timeline", "aria-label": "Timeline", hidden: !spans.length, "data-testid": "timeline" },
    h("div", { class: "timeline-head" },
      h("h2", { text: "Timeline" }),
      h("div", { class: "legend", role: "group", "aria-label": "Time shown" }, buttons),
      h("p", { class: "timeline-chosen" }, chosen, clear),
    ),
    h("div", { class: "timeline-body" }, labels, h("div", { class: "lane-column" }, plot, axis, memoryCourse(report))),
    colours,
    tip,
  );

  let lanes = [];
  let longest = null; // by which all lanes are drawn: those of other hosts may be shorter
  let cursor = { bucket: 0, lane: 0 };
  let from = null; // where a drag or a stretch by keys began
  let key = "";

  const count = () => longest?.at_roof_s.length ?? 0;
  const bounded = (bucket) => Math.max(0, Math.min(count() - 1, bucket));
  const range = (one, other) => [bounded(Math.min(one, other)), bounded(Math.max(one, other))];
  const within = ({ bucket_s, time_s }, bucket) => Math.min(bucket * bucket_s, time_s);

  function placeAt(event) {
    const { left, width, top, height } = plot.getBoundingClientRect();
    const high = height / lanes.length;
    const lane = Math.max(0, Math.min(lanes.length - 1, Math.floor((event.clientY - top) / high)));
    return { bucket: bounded(Math.floor(((event.clientX - left) / width) * count())), lane };
  }

  function shadeOver(stretch) {
    shade.hidden = !stretch;
    if (!stretch) return;
    shade.style.left = `${(100 * stretch[0]) / count()}%`;
    shade.style.width = `${(100 * (stretch[1] + 1 - stretch[0])) / count()}%`;
  }

  /** The ops of a bucket by their times, and the causes. */
  function describe({ bucket: at, lane: row }) {
    const lane = lanes[row];
    const bucket = bucketIn(lane, longest, at);
    const parts = partsOf(lane, bucket);
    const length = parts.reduce((sum, { seconds }) => sum + seconds, 0);
    const waited = parts.find(({ cause }) => cause === "idle")?.seconds ?? 0;
    const ops = (lane.ops[bucket] ?? []).map((id, place) => ({ name: names.get(id) ?? `op ${id}`, seconds: lane.ops_s[bucket][place] }));
    const rest = length - waited - ops.reduce((sum, { seconds }) => sum + seconds, 0);
    const when = length ? `${show(within(lane, bucket), "s")}, for ${show(length, "s", 3)}` : "after the end";
    const place = hostAt(lane, bucket);
    const host = place === null ? "" : `while idle: ${idle[place]}`;
    return { when, device: lanes.length > 1 ? laneName(lane) : "", length, parts, ops, rest: rest > 0.01 * length ? rest : 0, host };
  }

  const laneName = ({ device }) => `device ${device}${report.input.hosts?.length > 1 ? ` ${devices.get(device)?.host ?? ""}` : ""}`;

  function point(place, high = null) {
    cursor = place;
    line.hidden = false;
    line.style.left = `${(100 * (place.bucket + 0.5)) / count()}%`;
    const { when, device, length, parts, ops, rest, host } = describe(place);
    const row = (name, seconds) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "figure", text: show(seconds, "s", 3) }), h("td", { class: "remark", text: percent(seconds / length) }));
    fill(tip,
      h("p", { class: "card-name", text: [when, device].filter(Boolean).join(", ") }),
      ops.length > 0 && h("table", { class: "facts" }, ops.map(({ name, seconds }) => row(named(name), seconds)), rest > 0 && row("other ops", rest)),
      h("table", { class: "facts" }, parts.map(({ cause, seconds }) => row(partTitle(cause), seconds))),
      host && h("p", { class: "host-words" }, named(host)),
    );
    tip.hidden = false;
    const { left, top, width, height } = plot.getBoundingClientRect();
    const x = left + ((place.bucket + 0.5) / count()) * width;
    const { offsetWidth: wide, offsetHeight: tall } = tip;
    const { clientWidth, clientHeight } = document.documentElement;
    const below = (high ?? top + height) + GAP;
    tip.style.left = `${Math.max(8, x + GAP + wide > clientWidth - 8 ? x - GAP - wide : x + GAP)}px`;
    tip.style.top = `${Math.max(8, Math.min(below, clientHeight - tall - 8))}px`;
    speak(place);
  }

  function speak(place) {
    const { when, device, ops, parts, host } = describe(place);
    const largest = [...parts].sort((one, other) => other.seconds - one.seconds)[0];
    const words = ops.slice(0, 3).map(({ name, seconds }) => `${name} ${show(seconds, "s", 3)}`);
    plot.setAttribute("aria-valuenow", String(place.bucket + 1));
    plot.setAttribute("aria-valuetext", [when, device, ...words, largest ? `mostly ${partTitle(largest.cause)}` : "", host].filter(Boolean).join(", "));
  }

  function leave() {
    line.hidden = true;
    tip.hidden = true;
  }

  plot.addEventListener("pointermove", (event) => {
    if (!lanes.length) return;
    const place = placeAt(event);
    point(place, event.clientY);
    if (from?.x !== undefined) shadeOver(Math.abs(event.clientX - from.x) < DRAGGED ? store.get().stretch : range(from.bucket, place.bucket));
  });
  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !lanes.length) return;
    plot.setPointerCapture(event.pointerId);
    from = { bucket: placeAt(event).bucket, x: event.clientX };
  });
  plot.addEventListener("pointerup", (event) => {
    if (from?.x === undefined) return;
    const { bucket } = placeAt(event);
    const dragged = Math.abs(event.clientX - from.x) >= DRAGGED;
    const stretch = dragged ? range(from.bucket, bucket) : store.get().stretch ? null : [bucket, bucket];
    from = null;
    store.set({ stretch });
  });
  plot.addEventListener("pointercancel", () => {
    from = null;
    shadeOver(store.get().stretch);
  });
  plot.addEventListener("pointerleave", leave);
  plot.addEventListener("blur", leave);
  plot.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, PageDown: -FAR, PageUp: FAR, Home: -Infinity, End: Infinity }[event.key];
    const across = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.key === "Escape") {
      leave();
      from = null;
      store.set({ stretch: null });
    } else if (event.key === "Enter" || event.key === " ") store.set({ stretch: [cursor.bucket, cursor.bucket] });
    else if (move !== undefined) {
      const bucket = bounded(cursor.bucket + move);
      if (event.shiftKey) {
        from ??= { bucket: cursor.bucket };
        store.set({ stretch: range(from.bucket, bucket) });
      } else from = null;
      point({ bucket, lane: cursor.lane });
    } else if (across && lanes.length > 1) point({ bucket: cursor.bucket, lane: (cursor.lane + across + lanes.length) % lanes.length });
    else return;
    event.preventDefault();
  });

  /** A stretch in words, and how many ops ran there. */
  function spoken([first, last], many) {
    const ran = many ? `${plain(many)} op${many === 1 ? "" : "s"} ran` : "nothing ran";
    return `${show(within(longest, first), "s")} to ${show(within(longest, last + 1), "s")}: ${ran}`;
  }

  /** What the chosen span is called, with its time. */
  function buttonText(span) {
    const lane = longestOf(lanesOf(report, { timeline: span }));
    const title = span === "run" ? "Whole run" : `Step ${stepTitle(steps.get(lane.step) ?? lane)}`;
    return `${title}, ${show(lane.time_s, "s")}`;
  }
  for (const [place, span] of spans.entries()) buttons[place].textContent = buttonText(span);

  function drawAxis() {
    if (longest && axis.clientWidth) fill(axis, ticks(longest.time_s, axis.clientWidth));
  }
  new ResizeObserver(drawAxis).observe(axis);

  return {
    root,
    update: (state, { theme }) => {
      if (!spans.length) return;
      lanes = lanesOf(report, state);
      longest = longestOf(lanes) ?? null;
      const shown = lanes[0]?.step === null ? "run" : "step";
      for (const [place, span] of spans.entries()) buttons[place].setAttribute("aria-pressed", String(span === shown));
      root.hidden = !lanes.length;
      const next = JSON.stringify([shown, theme.name, lanes.map(({ device }) => device)]);
      if (lanes.length && next !== key) {
        key = next;
        cursor = { bucket: 0, lane: 0 };
        const height = HEIGHTS.find(([most]) => lanes.length <= most)[1];
        const host = lanes.some((lane) => lane.host?.some((place) => place !== null)) ? Math.max(5, Math.round(HOST * height)) : 0;
        fill(drawn, lanes.flatMap((lane) => [host ? hostStrip(lane, theme, host) : null, strip(lane, theme, height, laneName(lane))].map((one) => {
          if (one) one.style.width = `${(100 * lane.time_s) / longest.time_s}%`;
          return one;
        })));
        labels.hidden = lanes.length === 1;
        fill(labels, lanes.map((lane) => {
          const label = h("div", { class: "lane-name", text: height < 14 ? String(lane.device) : laneName(lane) });
          label.style.height = `${height + host}px`;
          label.style.paddingTop = `${host}px`;
          return label;
        }));
        fill(colours, legendOf(lanes, theme), hostLegend(idle, lanes, theme));
        drawAxis();
        plot.setAttribute("aria-valuemin", "1");
        plot.setAttribute("aria-valuemax", String(count()));
        speak(cursor);
      }
      const ops = opsIn(report, state);
      shadeOver(ops && range(...state.stretch));
      clear.hidden = !ops;
      const words = ops ? spoken(state.stretch, ops.size) : "";
      if (chosen.textContent !== words) chosen.textContent = words;
      if (ops && document.activeElement === plot) announce(words);
    },
  };
}

/** One device as a drawing: for each cause the area up to its top, the highest first, so that no seams show between them. */
function strip(lane, theme, height, name) {
  const count = lane.at_roof_s.length;
  const tops = new Array(count).fill(0);
  const areas = [];
  for (const cause of CAUSES) {
    const seconds = secondsOf(lane, cause);
    if (cause === "idle" || !seconds?.some((one) => one > 0)) continue;
    for (const [bucket, one] of seconds.entries()) tops[bucket] += (TALL * one) / lane.bucket_s;
    areas.unshift(drawn("path", { d: outline(tops), fill: causeColour(theme, cause), "data-cause": cause }));
  }
  const drawing = stretched(count, TALL, { class: "lane", "data-lane": name }, areas);
  drawing.style.height = `${height}px`;
  drawing.style.background = causeColour(theme, "idle");
  return drawing;
}

/** The causes that occur in some lane, with their shares of the time shown. */
function legendOf(lanes, theme) {
  const whole = lanes.reduce((sum, { time_s }) => sum + time_s, 0);
  return CAUSES.map((cause) => {
    const seconds = lanes.flatMap((lane) => secondsOf(lane, cause) ?? []).reduce((sum, one) => sum + one, 0);
    if (seconds < VISIBLE * whole) return null;
    const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = causeColour(theme, cause);
    return h("li", { class: "entry", "data-cause": cause }, swatch, h("span", { text: partTitle(cause) }), h("span", { class: "quiet", text: percent(seconds / whole) }));
  });
}

/** Round times along an axis of so many pixels; those whose words have no room before its end are left out. */
function ticks(time_s, width) {
  const rough = time_s / Math.max(1, Math.min(TICKS, Math.floor(width / TICK_WIDTH)));
  const power = 10 ** Math.floor(Math.log10(rough));
  const each = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
  const last = (time_s * (1 - TICK_WIDTH / width)) / each;
  return Array.from({ length: Math.max(0, Math.floor(last) + 1) }, (_, place) => {
    const tick = h("span", { class: "lane-tick", text: show(Number((place * each).toPrecision(12)), "s") });
    tick.style.left = `${(100 * place * each) / time_s}%`;
    return tick;
  });
}
