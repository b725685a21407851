/** The chart as a standalone SVG: drawn by the same functions as on the screen, text as text, generic fonts, nothing fetched. */

import { captionIn, roofLines } from "#page/chart_model.js";
import { assign, THEMES } from "#page/colours.js";
import { shortName } from "#page/dom.js";
import { efficiencyText } from "#page/facts.js";
import { drawNames, drawRoofNames, placeNames } from "#page/labels.js";
import {
  axisTitles, clip, drawArrows, drawAxes, drawHiddenRoofs, drawOutliers, drawProgram, drawRoofs, drawStrip, drawTwins, frame, highestShare, locate, outliers, prepared, scales,
} from "#page/paint.js";
import { show } from "#page/units.js";

const [LEFT, HEAD, LINE, ROW, LETTER] = [12, 44, 15, 20, 6.8]; // pixels: the margin, title and caption, a line of it and of the legend, an average letter
const LETTERING = { "font-family": "system-ui, sans-serif", "font-size": 12, role: "img" };
const [MOST_LEGEND, LONGEST_NAME] = [12, 30];

/**
 * The chart as the text of an SVG file, in a window of the plane. `colour` is what dots are coloured by, `marks` decide which group has
 * which colour, and the ops with the ids `selected` have a ring. `ids` tells names inside of one drawing from those of another in one page.
 */
export function toSvg(model, options = {}) {
  const { theme = "light", colour = "bound", width = 960, height = 600, title, selected = [], marks, ids = "" } = options;
  const window = options.window ?? model.home;
  const look = THEMES[theme] ?? THEMES.light;
  const drawn = [...model.dots, ...model.strip];
  const { colourOf, roofColour, legend } = assign(marks ?? drawn, colour, look);
  const entries = legend.filter(({ group }) => drawn.some((mark) => (mark[colour] ?? "") === group)).slice(0, MOST_LEGEND);
  const rows = legendRows(entries, width - 2 * LEFT);
  const heading = title ?? `${drawn.length} operation${drawn.length === 1 ? "" : "s"} on ${model.machine}`;
  const caption = wrapped(captionIn(model, options.window), (width - 2 * LEFT) / LETTER);
  const head = HEAD + Math.max(0, caption.length - 1) * LINE;
  const place = frame(width - LEFT, height - head - (rows.length + 0.3) * ROW, model.strip.length > 0);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg"${attributes({ width, height, viewBox: `0 0 ${width} ${height}`, ...LETTERING })}>`,
    element("title", {}, heading),
    element("rect", { width, height, fill: look.background }),
    element("text", { x: LEFT, y: 22, fill: look.ink, "font-size": 16, "font-weight": 600 }, heading),
    ...caption.map((line, index) => element("text", { x: LEFT, y: 40 + index * LINE, fill: look.muted }, line)),
    `<g${attributes({ transform: `translate(${LEFT} ${head})` })}>`,
    ...chartParts(model, window, place, look, { colourOf, roofColour }, new Set(selected), ids),
    "</g>",
    ...rows.flatMap((row, index) => row.map((entry) => legendEntry(entry, look, height - rows.length * ROW + index * ROW))),
    "</svg>",
    "",
  ].join("\n");
}

/** A text as lines of at most so many letters. */
function wrapped(text, most) {
  const lines = [];
  for (const word of text.split(" ").filter(Boolean)) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && longer.length <= most) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

/** What the screen draws on its canvases, in the same order. */
function chartParts(model, window, place, theme, { colourOf, roofColour }, selected, ids) {
  const context = recorder(ids);
  const at = scales(place, window, highestShare(model));
  const dots = prepared(model.dots, model.strip, [...model.dots, ...model.strip].reduce((most, { weight }) => Math.max(most, weight), 0), colourOf);
  locate(dots, at, place);
  const lines = roofLines(model, window);
  const [style, chart] = [{ theme, roofColour, font: "sans-serif" }, { place, at, dots, lines, program: model.program }];
  drawAxes(context, place, at, window, { ...style, ...axisTitles(model) });
  if (place.strip) drawStrip(context, place, at, highestShare(model), style);
  drawRoofs(context, place, at, lines, style);
  const circles = (mine) => context.parts.push(...Array.from(dots.order).filter(mine).map((index) => circle(dots, index, theme, selected)));
  circles((index) => index >= dots.onPlot);
  context.save();
  clip(context, place.plot);
  circles((index) => index < dots.onPlot);
  context.restore();
  drawHiddenRoofs(context, place, at, lines, dots, style);
  drawArrows(context, place, at, model.arrows, style);
  drawTwins(context, place, at, model.twins, colourOf, style);
  if (window === model.home) drawOutliers(context, outliers(dots, place), dots, style);
  drawProgram(context, place, at, model.program, style);
  const written = drawRoofNames(context, chart, style);
  drawNames(context, chart, placeNames(context, chart, written, style.font), style);
  return context.parts;
}

function circle(dots, index, theme, selected) {
  const { name, label, ops, efficiency, row } = dots.all[index];
  const ring = ops.some((id) => selected.has(id)) ? { stroke: theme.ink, "stroke-width": 2 } : { stroke: theme.background, "stroke-width": 0.7 };
  const about = `${label && label !== name ? `${label} (${name})` : name}: ${efficiency === null ? "" : `${efficiencyText(row)} roofline efficiency, `}${show(row.time_s ?? row.floor_s, "s")}`;
  const shape = { cx: dots.x[index], cy: dots.y[index], r: dots.size[index], fill: dots.colours[dots.colour[index]], "fill-opacity": 0.85, ...ring };
  return `<circle${attributes(shape)}>${element("title", {}, about)}</circle>`;
}

/** As much of a canvas context as a chart takes, which writes SVG into its `parts`. */
function recorder(ids) {
  const parts = [];
  const saved = [];
  let [path, open, clips, halo] = ["", 0, 0, {}];
  const at = (x, y) => `${round(x)} ${round(y)}`;
  const group = (more) => {
    parts.push(`<g${attributes(more)}>`);
    open += 1;
  };
  const shape = (more) => parts.push(element("path", { d: path, opacity: context.globalAlpha, ...more }));
  const text = (words, x, y, more) => {
    const size = Number.parseInt(context.font, 10);
    const down = { middle: 0.35, top: 0.8 }[context.textBaseline] ?? 0; // of the size: not every viewer knows other baselines
    const anchor = { center: "middle", right: "end" }[context.textAlign] ?? "start";
    parts.push(element("text", { x, y: y + down * size, "font-size": size, "text-anchor": anchor, ...more }, words));
  };
  const context = {
    parts, font: "12px", lineWidth: 1, globalAlpha: 1, dash: [], textAlign: "left", textBaseline: "alphabetic",
    save: () => saved.push({ ...context, open }),
    restore: () => {
      const { open: before, ...style } = saved.pop();
      for (; open > before; open -= 1) parts.push("</g>");
      Object.assign(context, style);
    },
    translate: (x, y) => group({ transform: `translate(${at(x, y)})` }),
    rotate: (angle) => group({ transform: `rotate(${round((angle * 180) / Math.PI)})` }),
    clip: () => {
      clips += 1;
      parts.push(`<clipPath id="${ids}clip${clips}">${element("path", { d: path })}</clipPath>`);
      group({ "clip-path": `url(#${ids}clip${clips})` });
    },
    beginPath: () => (path = ""),
    moveTo: (x, y) => (path += `M${at(x, y)}`),
    lineTo: (x, y) => (path += `L${at(x, y)}`),
    closePath: () => (path += "Z"),
    rect: (x, y, w, h) => (path += `M${at(x, y)}h${round(w)}v${round(h)}h${round(-w)}Z`),
    arc: (x, y, r) => (path += `M${at(x - r, y)}a${at(r, r)} 0 1 0 ${at(2 * r, 0)}a${at(r, r)} 0 1 0 ${at(-2 * r, 0)}`), // a whole circle
    setLineDash: (dash) => (context.dash = dash),
    fill: () => shape({ fill: context.fillStyle }),
    stroke: () => shape({
      fill: "none", stroke: context.strokeStyle, "stroke-width": context.lineWidth,
      ...(context.dash.length ? { "stroke-dasharray": context.dash.join(" ") } : {}),
    }),
    measureText: (words) => ({ width: words.length * LETTER }),
    // A halo and its words are one element.
    strokeText: () => (halo = { stroke: context.strokeStyle, "stroke-width": context.lineWidth, "stroke-linejoin": "round", "paint-order": "stroke" }),
    fillText: (words, x, y) => {
      text(words, x, y, { fill: context.fillStyle, ...halo });
      halo = {};
    },
  };
  return context;
}

/** Text as XML; characters that XML forbids become question marks. */
function escaped(value) {
  const clean = String(value).replace(CONTROLS, "?").replace(HALVES, "?");
  return clean.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

const CONTROLS = /[\0-\x08\x0B\x0C\x0E-\x1F\uFFFE\uFFFF]/g;
const HALVES = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g; // of letters that take two

function element(name, more, words = null) {
  return words === null ? `<${name}${attributes(more)}/>` : `<${name}${attributes(more)}>${escaped(words)}</${name}>`;
}

function attributes(all) {
  return Object.entries(all).map(([name, value]) => ` ${name}="${typeof value === "number" ? round(value) : escaped(value)}"`).join("");
}

function round(value) {
  return Math.round(value * 100) / 100;
}

function legendRows(entries, room) {
  const rows = [];
  let used = Infinity;
  for (const entry of entries) {
    const name = shortName(entry.title, LONGEST_NAME);
    const wide = 36 + name.length * LETTER;
    if (used + wide > room) {
      rows.push([]);
      used = 0;
    }
    rows[rows.length - 1].push({ ...entry, name, x: LEFT + used });
    used += wide;
  }
  return rows;
}

function legendEntry({ name, colour, x }, look, y) {
  return element("circle", { cx: x + 5, cy: y + 4, r: 5, fill: colour }) + element("text", { x: x + 15, y: y + 8, fill: look.ink }, name);
}
