/** The chart as a standalone SVG: the same geometry as on the screen, text as text, generic fonts, nothing fetched. */

import { roofLines } from "#page/chart_model.js";
import { assign, THEMES } from "#page/colours.js";
import { title as resourceTitle } from "#page/law.js";
import { OWN_LEVEL } from "#page/rows.js";
import { linearScale, linearTicks, logScale, logTicks, placeLabels, radius } from "#page/scale.js";
import { percent, show } from "#page/units.js";

const [TOP, RIGHT, BOTTOM, LEFT, STRIP, BESIDE, ROW] = [52, 20, 52, 64, 56, 74, 18];
const LETTER = 6.8; // average width of a letter of 12 pixels: an SVG cannot be measured before somebody draws it
const LETTERING = { "font-family": "system-ui, sans-serif", "font-size": 12, role: "img" };
const ROOF_STEP = 10; // pixels between the discs that keep names off roofs
const [MOST_NAMED, MOST_LEGEND, LONGEST_NAME] = [10, 12, 30];

/**
 * @typedef {Object} SvgOptions
 * @property {import("#page/scale.js").Window} [window]  the model's home when absent
 * @property {"light"|"dark"} [theme]
 * @property {string} [colour]  what dots are coloured by
 * @property {number} [width]
 * @property {number} [height]
 * @property {string} [title]
 * @property {number[]} [selected]  ids of ops drawn with a ring
 * @property {Object[]} [marks]  the marks that decide the colours; those of the chart when absent
 */

/**
 * The chart as the text of an SVG file.
 * @param {import("#page/chart_model.js").ChartModel} model
 * @param {SvgOptions} [options]
 * @returns {string}
 */
export function toSvg(model, options = {}) {
  const { window = model.home, theme = "light", colour = "bound", width = 960, height = 600, title, selected = [], marks } = options;
  const look = THEMES[theme] ?? THEMES.light;
  const drawn = [...model.dots, ...model.strip];
  const { colourOf, legend } = assign(marks ?? drawn, colour, look);
  const entries = legend.filter(({ group }) => drawn.some((mark) => (mark[colour] ?? "") === group)).slice(0, MOST_LEGEND);
  const rows = legendRows(entries, width - LEFT - RIGHT);
  const plot = { x: LEFT + (model.strip.length ? STRIP + BESIDE : 0), y: TOP, h: height - TOP - BOTTOM - rows.length * ROW };
  plot.w = width - RIGHT - plot.x;
  const at = { x: logScale(window[0], window[1], plot.x, plot.x + plot.w), y: logScale(window[2], window[3], plot.y + plot.h, plot.y) };
  const heaviest = drawn.reduce((most, mark) => Math.max(most, mark.weight), 0);
  const chosen = new Set(selected);
  const context = { model, window, look, plot, at, heaviest, colourOf, chosen };
  const heading = title ?? `${drawn.length} operation${drawn.length === 1 ? "" : "s"} on ${model.machine}`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg"${attributes({ width, height, viewBox: `0 0 ${width} ${height}`, ...LETTERING })}>`,
    `<title>${escaped(heading)}</title>`,
    `<rect width="${width}" height="${height}" fill="${look.background}"/>`,
    text(LEFT, 22, heading, { fill: look.ink, "font-size": 16, "font-weight": 600 }),
    text(LEFT, 40, model.caption, { fill: look.muted }),
    axes(context),
    model.strip.length ? strip(context) : "",
    `<clipPath id="plot"><rect x="${plot.x}" y="${plot.y}" width="${plot.w}" height="${plot.h}"/></clipPath>`,
    `<g clip-path="url(#plot)">`, ...roofs(context), ...arrows(context), ...dots(context), ...program(context), "</g>",
    ...names(context),
    ...rows.flatMap((row, index) => row.map((entry) => legendEntry(entry, look, height - rows.length * ROW + index * ROW))),
    "</svg>",
    "",
  ].filter(Boolean).join("\n");
}

/** Text that cannot leave its place: names come from other people's programs. Characters that XML forbids become question marks. */
function escaped(value) {
  const clean = String(value).replace(CONTROLS, "?").replace(HALVES, "?");
  return clean.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

const CONTROLS = /[\0-\x08\x0B\x0C\x0E-\x1F\uFFFE\uFFFF]/g;
const HALVES = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g; // of letters that take two

function attributes(all) {
  return Object.entries(all).map(([name, value]) => ` ${name}="${typeof value === "number" ? round(value) : escaped(value)}"`).join("");
}

function round(value) {
  return Math.round(value * 100) / 100;
}

function text(x, y, words, more = {}) {
  return words ? `<text${attributes({ x, y, ...more })}>${escaped(words)}</text>` : "";
}

function line(points, more) {
  return `<polyline${attributes({ points: points.map(([x, y]) => `${round(x)},${round(y)}`).join(" "), fill: "none", ...more })}/>`;
}

function short(name) {
  const letters = [...name.replace(/\s+/g, " ")];
  return letters.length <= LONGEST_NAME ? letters.join("") : [...letters.slice(0, LONGEST_NAME - 10), "…", ...letters.slice(-9)].join("");
}

function axes({ model, window: [x0, x1, y0, y1], look, plot, at }) {
  const bottom = plot.y + plot.h;
  const level = model.level === OWN_LEVEL ? "what binds" : resourceTitle(model.level);
  const parts = [];
  for (const { at: value, label, minor } of logTicks(x0, x1, "FLOP/B")) {
    const x = at.x.at(value);
    if (minor) continue;
    parts.push(line([[x, plot.y], [x, bottom]], { stroke: look.grid }));
    parts.push(text(x, bottom + 17, label, { fill: look.muted, "text-anchor": "middle" }));
  }
  for (const { at: value, label, minor } of logTicks(y0, y1, "FLOP/s")) {
    const y = at.y.at(value);
    if (minor) continue;
    parts.push(line([[plot.x, y], [plot.x + plot.w, y]], { stroke: look.grid }));
    parts.push(text(plot.x - 6, y + 4, label, { fill: look.muted, "text-anchor": "end" }));
  }
  const [middle, side, centred] = [plot.y + plot.h / 2, plot.x - 46, { fill: look.ink, "text-anchor": "middle" }];
  return [
    ...parts,
    line([[plot.x, plot.y], [plot.x, bottom], [plot.x + plot.w, bottom]], { stroke: look.muted }),
    text(plot.x + plot.w / 2, bottom + 38, `intensity (FLOP per byte of ${level})`, centred),
    text(side, middle, model.timed ? "rate (FLOP/s)" : "attainable rate (FLOP/s)", { ...centred, transform: turned(-90, side, middle) }),
  ].join("\n");
}

function strip({ model, look, plot, heaviest, colourOf, chosen }) {
  const highest = 1.06 * model.strip.reduce((most, mark) => Math.max(most, mark.share), 1);
  const scale = linearScale(0, highest, plot.y + plot.h, plot.y);
  const [left, centre, right] = [LEFT, LEFT + STRIP / 2, LEFT + STRIP];
  const number = { fill: look.muted, "text-anchor": "end" };
  const parts = linearTicks(0, highest, "%").map(({ at, label }) => text(left - 6, scale.at(at) + 4, label, number));
  parts.push(line([[left, plot.y], [left, plot.y + plot.h], [right, plot.y + plot.h]], { stroke: look.muted }));
  parts.push(line([[left, scale.at(1)], [right, scale.at(1)]], { stroke: look.memory, "stroke-width": 1.4 }));
  parts.push(text(centre, plot.y + plot.h + 17, "no FLOP", { fill: look.ink, "text-anchor": "middle" }));
  parts.push(text(centre, plot.y + plot.h + 38, "share of roof", { fill: look.ink, "text-anchor": "middle" }));
  for (const mark of model.strip) {
    const r = Math.min(STRIP / 6, radius(mark.weight, heaviest));
    parts.push(circle(centre, scale.at(mark.share), r, mark, { look, colourOf, chosen }));
  }
  return parts.join("\n");
}

function circle(x, y, r, mark, { look, colourOf, chosen }) {
  const lit = mark.ops.some((id) => chosen.has(id));
  const share = mark.efficiency === null ? "" : `${percent(mark.efficiency)} of roof, `;
  const about = `${mark.name}: ${share}${show(mark.row.time_s ?? mark.row.floor_s, "s")}`;
  const ring = lit ? { stroke: look.ink, "stroke-width": 2 } : { stroke: look.background, "stroke-width": 0.7 };
  const style = { cx: x, cy: y, r, fill: colourOf(mark), "fill-opacity": 0.85, ...ring };
  return `<circle${attributes(style)}><title>${escaped(about)}</title></circle>`;
}

function roofs({ model, window, look, at, plot }) {
  const known = new Map(model.roofs.map((one) => [one.id, one]));
  return roofLines(model, window).flatMap(({ id, kind, axis, points }) => {
    const stroke = kind === "memory" ? look.memory : look.compute;
    const pixels = points.map(([x, y]) => [at.x.at(x), at.y.at(y)]);
    const dashed = kind === "memory" && !axis ? { "stroke-dasharray": "5 3" } : {};
    return [line(pixels, { stroke, "stroke-width": 1.6, ...dashed }), roofName(known.get(id).label, kind, pixels, stroke, plot)];
  });
}

function roofName(label, kind, pixels, fill, plot) {
  const [[x0, y0], [x1, y1]] = [pixels[0], pixels[pixels.length - 1]];
  if (kind === "compute") return text(Math.min(x1, plot.x + plot.w) - 4, y1 - 5, label, { fill, "text-anchor": "end" });
  const angle = (Math.atan2(y1 - y0, x1 - x0) * 180) / Math.PI;
  const [x, y] = [x0 + (x1 - x0) * 0.3, y0 + (y1 - y0) * 0.3];
  return text(x, y - 6, label, { fill, transform: turned(angle, x, y) });
}

function turned(degrees, x, y) {
  return `rotate(${round(degrees)} ${round(x)} ${round(y)})`;
}

function arrows({ model, look, at }) {
  return model.arrows.map(({ from, to }) => {
    const [[x0, y0], [x1, y1]] = [from, to].map(([x, y]) => [at.x.at(x), at.y.at(y)]);
    const length = Math.hypot(x1 - x0, y1 - y0);
    if (length < 3) return "";
    const [dx, dy] = [(x1 - x0) / length, (y1 - y0) / length];
    const tip = [[x1 - 6 * dx - 3 * dy, y1 - 6 * dy + 3 * dx], [x1, y1], [x1 - 6 * dx + 3 * dy, y1 - 6 * dy - 3 * dx]];
    return `${line([[x0, y0], [x1, y1]], { stroke: look.muted })}\n${line(tip, { stroke: look.muted })}`;
  });
}

function dots({ model, look, at, heaviest, colourOf, chosen }) {
  const about = { look, colourOf, chosen };
  return model.dots.map((mark) => circle(at.x.at(mark.x), at.y.at(mark.y), radius(mark.weight, heaviest), mark, about));
}

function program({ model, look, at }) {
  return [...model.program].reverse().map((point) => {
    const [x, y, whole] = [at.x.at(point.x), at.y.at(point.y), point.scope === "total"];
    const style = { d: star(x, y, point.scope === "step" ? 4 : 8), fill: whole ? look.ink : look.background, stroke: look.ink };
    return `<path${attributes(style)}><title>${escaped(`${point.name}: ${show(point.rate, "FLOP/s")}`)}</title></path>`;
  });
}

function star(x, y, r) {
  const corners = Array.from({ length: 10 }, (_, index) => {
    const [size, angle] = [index % 2 ? r * 0.42 : r, (index * Math.PI) / 5];
    return `${round(x + size * Math.sin(angle))} ${round(y - size * Math.cos(angle))}`;
  });
  return `M${corners.join("L")}Z`;
}

/** Names beside the heaviest dots, clear of other dots, roofs and the roofs' names. */
function names({ model, window, look, plot, at, heaviest }) {
  const placed = model.dots.map((mark) => ({ mark, x: at.x.at(mark.x), y: at.y.at(mark.y), r: radius(mark.weight, heaviest) }));
  const seen = placed.filter(({ x, y }) => x >= plot.x && x <= plot.x + plot.w && y >= plot.y && y <= plot.y + plot.h);
  const labels = seen.slice(0, MOST_NAMED).map((one) => ({ ...one, width: short(one.mark.name).length * LETTER, height: 15 }));
  const style = { fill: look.ink, stroke: look.background, "stroke-width": 3, "paint-order": "stroke" };
  const places = placeLabels(labels, plot, [...seen, ...alongRoofs(model, window, at)]);
  return places.map(({ index, x, y }) => text(x, y + 12, short(labels[index].mark.name), style));
}

/** Discs that cover the roofs and the names written above them. */
function alongRoofs(model, window, at) {
  return roofLines(model, window).flatMap(({ points }) => {
    const [[x0, y0], [x1, y1]] = [points[0], points[points.length - 1]].map(([x, y]) => [at.x.at(x), at.y.at(y)]);
    const steps = Math.ceil(Math.hypot(x1 - x0, y1 - y0) / ROOF_STEP);
    return Array.from({ length: steps + 1 }, (_, index) => {
      const share = steps ? index / steps : 0;
      return { x: x0 + (x1 - x0) * share, y: y0 + (y1 - y0) * share - ROOF_STEP / 2, r: ROOF_STEP };
    });
  });
}

function legendRows(entries, room) {
  const rows = [];
  let used = Infinity;
  for (const entry of entries) {
    const wide = 26 + short(entry.title).length * LETTER;
    if (used + wide > room) {
      rows.push([]);
      used = 0;
    }
    rows[rows.length - 1].push({ ...entry, x: LEFT + used });
    used += wide;
  }
  return rows;
}

function legendEntry({ title, colour, x }, look, y) {
  return `<circle${attributes({ cx: x + 5, cy: y + 4, r: 5, fill: colour })}/>${text(x + 15, y + 8, short(title), { fill: look.ink })}`;
}
