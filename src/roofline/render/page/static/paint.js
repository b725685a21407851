/** Drawing a chart on a canvas, or on what writes SVG: its frame, axes, roofs, strip, arrows and points. Everything is in CSS pixels. */

import { title } from "#page/law.js";
import { linearScale, linearTicks, logScale, logTicks, radius } from "#page/scale.js";

export const LARGEST_DOT = 13; // radius of the heaviest op
const SMALLEST_DOT = 2.5;
const NARROW = 560; // below this width the chart drops what is only nice to have
const TICK = 4;
const CROWD = 500; // dots that may hide a roof

/** Places of plot and strip inside a canvas of this size. */
export function frame(width, height, hasStrip) {
  const narrow = width < NARROW;
  const stripLabels = narrow ? 36 : 40;
  const stripWidth = hasStrip ? (narrow ? 32 : 84) : 0;
  const left = (hasStrip ? stripLabels + stripWidth + (narrow ? 4 : 14) : 0) + (narrow ? 40 : 62);
  const top = 14;
  const bottom = narrow ? 38 : 46;
  const plot = { x: left, y: top, w: Math.max(40, width - left - (narrow ? 8 : 14)), h: Math.max(40, height - top - bottom) };
  return { width, height, narrow, plot, strip: hasStrip ? { x: stripLabels, y: top, w: stripWidth, h: plot.h } : null };
}

/** The scales of a frame for a window of the plane. */
export function scales({ plot, strip }, [x0, x1, y0, y1], highestShare = 1) {
  return {
    x: logScale(x0, x1, plot.x, plot.x + plot.w), y: logScale(y0, y1, plot.y + plot.h, plot.y),
    share: strip ? linearScale(0, highestShare * 1.06, strip.y + strip.h, strip.y) : null,
  };
}

/** Everything about dots that does not depend on the window: logarithms, radii, and which sprite each one is. */
export function prepared(dots, strip, heaviest, colourOf) {
  const all = [...dots, ...strip];
  const colours = [];
  const seen = new Map();
  const colour = new Uint16Array(all.length);
  const size = new Float64Array(all.length);
  all.forEach((dot, index) => {
    const hex = colourOf(dot);
    if (!seen.has(hex)) seen.set(hex, colours.push(hex) - 1);
    colour[index] = seen.get(hex);
    size[index] = radius(dot.weight, heaviest, LARGEST_DOT, SMALLEST_DOT);
  });
  return {
    all,
    onPlot: dots.length,
    logX: Float64Array.from(dots, (dot) => Math.log(dot.x)),
    logY: Float64Array.from(dots, (dot) => Math.log(dot.y)),
    x: new Float64Array(all.length),
    y: new Float64Array(all.length),
    size,
    colour,
    colours,
    // The heaviest at the bottom, so that a small dot is never hidden by a large one.
    order: Uint32Array.from(all.keys()).sort((one, other) => size[other] - size[one] || one - other),
  };
}

/** Where every dot stands for these scales; fills `x` and `y` of the prepared dots in place. */
export function locate(dots, at, { strip }) {
  const [x0, x1] = [at.x.at(1), at.x.at(Math.E)];
  const [y0, y1] = [at.y.at(1), at.y.at(Math.E)];
  for (let index = 0; index < dots.onPlot; index += 1) {
    dots.x[index] = x0 + (x1 - x0) * dots.logX[index];
    dots.y[index] = y0 + (y1 - y0) * dots.logY[index];
  }
  const golden = 0.6180339887498949; // multiples of it never crowd, so neighbours in the strip stand apart
  for (let index = dots.onPlot; index < dots.all.length; index += 1) {
    const spread = ((index - dots.onPlot) * golden + 0.5) % 1;
    dots.x[index] = strip.x + strip.w * (0.16 + 0.68 * spread);
    dots.y[index] = at.share.at(dots.all[index].share);
  }
}

/** Whether a dot is in the part of the plane that is shown; those of the strip always are. */
export function inSight(dots, number, { plot }) {
  const [x, y] = [dots.x[number], dots.y[number]];
  return number >= dots.onPlot || (x >= plot.x && x <= plot.x + plot.w && y >= plot.y && y <= plot.y + plot.h);
}

/** The numbers of the dots, heaviest first. */
export function byWeight(dots) {
  dots.byWeight ??= [...dots.all.keys()].sort((one, other) => dots.all[other].weight - dots.all[one].weight || one - other);
  return dots.byWeight;
}

/** What the axes count. */
export function axisTitles({ level, timed, predicted }) {
  const bytes = level === "bound" ? "each op's bottleneck" : title(level);
  return { xTitle: `Arithmetic intensity (FLOP per byte of ${bytes})`, yTitle: `${predicted ? "Predicted" : timed ? "Achieved" : "Attainable"} FLOP/s` };
}

/** The highest share in the strip. */
export function highestShare({ strip }) {
  return strip.reduce((most, dot) => Math.max(most, dot.share), 1);
}

export function clip(context, { x, y, w, h }) {
  context.beginPath();
  context.rect(x, y, w, h);
  context.clip();
}

/** Grid, ticks, and what the axes count. */
export function drawAxes(context, place, at, [x0, x1, y0, y1], { theme, font, xTitle, yTitle }) {
  const { plot, narrow } = place;
  const across = logTicks(x0, x1, "FLOP/B", narrow ? 5 : 9);
  const along = logTicks(y0, y1, "FLOP/s", narrow ? 6 : 9);
  context.font = `${narrow ? 11 : 12}px ${font}`;
  context.lineWidth = 1;
  line(context, theme.grid, () => {
    for (const { at: value, minor } of across) if (!minor) upright(context, at.x.at(value), plot.y, plot.y + plot.h);
    for (const { at: value, minor } of along) if (!minor) level(context, at.y.at(value), plot.x, plot.x + plot.w);
  });
  line(context, theme.muted, () => {
    for (const { at: value, minor } of across) upright(context, at.x.at(value), plot.y + plot.h, plot.y + plot.h + (minor ? TICK / 2 : TICK));
    for (const { at: value, minor } of along) level(context, at.y.at(value), plot.x - (minor ? TICK / 2 : TICK), plot.x);
    level(context, plot.y + plot.h, plot.x, plot.x + plot.w);
    upright(context, plot.x, plot.y, plot.y + plot.h);
  });
  context.fillStyle = theme.muted;
  context.textAlign = "center";
  context.textBaseline = "top";
  let free = -Infinity;
  for (const { at: value, label } of across) {
    const half = label ? context.measureText(label).width / 2 : 0;
    const x = Math.min(at.x.at(value), place.width - half - 1);
    if (!label || x - half < free) continue;
    context.fillText(label, x, plot.y + plot.h + TICK + 3);
    free = x + half + 6;
  }
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const { at: value, label } of along) if (label) context.fillText(label, plot.x - TICK - 4, Math.max(plot.y, at.y.at(value)));
  context.textBaseline = "alphabetic";
  context.textAlign = "right";
  context.fillText(xTitle, plot.x + plot.w, place.height - 5);
  if (narrow) return;
  context.textAlign = "right";
  turned(context, -Math.PI / 2, plot.x - 48, plot.y, () => context.fillText(yTitle, 0, 0));
}

/** The strip of ops without FLOP, at their roofline efficiency. */
export function drawStrip(context, place, at, highestShare, { theme, font }) {
  const { strip, narrow } = place;
  context.font = `${narrow ? 11 : 12}px ${font}`;
  const ticks = linearTicks(0, highestShare * 1.06, "%", narrow ? 3 : 5);
  line(context, theme.grid, () => {
    for (const { at: value } of ticks) level(context, at.share.at(value), strip.x, strip.x + strip.w);
  });
  line(context, theme.muted, () => {
    for (const { at: value } of ticks) level(context, at.share.at(value), strip.x - TICK, strip.x);
    level(context, strip.y + strip.h, strip.x, strip.x + strip.w);
    upright(context, strip.x, strip.y, strip.y + strip.h);
  });
  context.save();
  context.setLineDash([4, 3]);
  context.lineWidth = 1.25;
  line(context, theme.muted, () => level(context, at.share.at(1), strip.x, strip.x + strip.w));
  context.restore();
  context.fillStyle = theme.muted;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const { at: value, label } of ticks) context.fillText(label, strip.x - TICK - 3, at.share.at(value));
  context.textBaseline = "alphabetic";
  context.textAlign = "center";
  const centre = strip.x + strip.w / 2;
  const [first, second] = narrow ? ["no", "FLOP"] : ["no FLOP", "efficiency"];
  context.fillText(first, centre, strip.y + strip.h + TICK + 14);
  context.fillText(second, centre, place.height - 5);
}

/** Roofs as thin lines; those of levels that the x axis does not count are dashed. `halo` is a colour around them. */
export function drawRoofs(context, place, at, lines, { roofColour, lit, halo = null }) {
  context.save();
  clip(context, place.plot);
  context.lineJoin = "round";
  for (const { id, kind, axis, points } of lines) {
    const wide = lit === id ? 2.5 : 1.5;
    const along = () => points.forEach(([x, y], index) => context[index ? "lineTo" : "moveTo"](at.x.at(x), at.y.at(y)));
    if (halo) {
      context.lineWidth = wide + 2;
      context.setLineDash([]);
      line(context, halo, along);
    }
    context.lineWidth = wide;
    context.setLineDash(kind === "memory" && !axis ? [5, 3] : []);
    line(context, roofColour(id), along);
  }
  context.restore();
}

/** The roofs again, over dots that are so many that they hide them. */
export function drawHiddenRoofs(context, place, at, lines, dots, style) {
  if (dots.onPlot > CROWD) drawRoofs(context, place, at, lines, { ...style, halo: style.theme.background });
}

/** The dots that a fitted window leaves out, each at the edge nearest to it: [{number, x, y, angle}], the heaviest last. */
export function outliers(dots, { plot }) {
  const found = [];
  for (const number of byWeight(dots).toReversed()) {
    if (number >= dots.onPlot) continue;
    const [x, y] = [dots.x[number], dots.y[number]];
    const inside = [Math.min(Math.max(x, plot.x), plot.x + plot.w), Math.min(Math.max(y, plot.y), plot.y + plot.h)];
    if (inside[0] !== x || inside[1] !== y) found.push({ number, x: inside[0], y: inside[1], angle: Math.atan2(y - inside[1], x - inside[0]) });
  }
  return found;
}

const ARROW = 7; // pixels of an arrow at the edge

/** Arrows at the edge of the plot towards the dots outside of it, in their colours. */
export function drawOutliers(context, found, dots, { theme }) {
  for (const { number, x, y, angle } of found) {
    const at = (along, across) => [x + along * Math.cos(angle) - across * Math.sin(angle), y + along * Math.sin(angle) + across * Math.cos(angle)];
    context.beginPath();
    context.moveTo(...at(0, 0));
    context.lineTo(...at(-ARROW * 1.3, ARROW * 0.7));
    context.lineTo(...at(-ARROW * 1.3, -ARROW * 0.7));
    context.closePath();
    context.fillStyle = dots.colours[dots.colour[number]];
    context.strokeStyle = theme.background;
    context.lineWidth = 1;
    context.fill();
    context.stroke();
  }
}

export const TWIN = 5; // radius of a counted dot

/** Where counters put ops: hollow dots, each tied to its modelled one. */
export function drawTwins(context, place, at, twins, colourOf, { theme }) {
  context.save();
  clip(context, place.plot);
  for (const twin of twins) {
    const [x, y, x0, y0] = [at.x.at(twin.x), at.y.at(twin.y), at.x.at(twin.from[0]), at.y.at(twin.from[1])];
    context.lineWidth = 1;
    line(context, theme.muted, () => {
      context.moveTo(x0, y0);
      context.lineTo(x, y);
    });
    context.beginPath();
    context.arc(x, y, TWIN, 0, 2 * Math.PI);
    context.fillStyle = theme.background;
    context.fill();
    context.lineWidth = 2;
    context.strokeStyle = colourOf(twin);
    context.stroke();
  }
  context.restore();
}

/** The program as a whole, by counters, its average step and its steps: each its own sign, in ink. */
export function drawProgram(context, place, at, marks, { theme }) {
  context.save();
  clip(context, place.plot);
  for (const mark of [...marks].reverse()) sign(context, mark.scope, at.x.at(mark.x), at.y.at(mark.y), theme); // the whole program on top
  context.restore();
}

/** How large a program's sign is, for the mouse. */
export const SIGN = { total: 9, hardware: 9, average: 7, step: 4.5 };

function sign(context, scope, x, y, theme) {
  const r = SIGN[scope] ?? SIGN.step;
  context.beginPath();
  if (scope === "average") context.rect(x - r + 1, y - r + 1, 2 * r - 2, 2 * r - 2);
  else if (scope === "step") context.arc(x, y, r, 0, 2 * Math.PI);
  else star(context, x, y, r);
  context.lineWidth = 3;
  context.strokeStyle = theme.background;
  context.stroke();
  context.lineWidth = 1.5;
  context.strokeStyle = theme.ink;
  context.fillStyle = scope === "total" ? theme.ink : scope === "step" ? mixed(theme.muted) : theme.background;
  context.fill();
  context.stroke();
}

function mixed(colour) {
  return `${colour}99`;
}

function star(context, x, y, r) {
  for (let corner = 0; corner < 10; corner += 1) {
    const reach = corner % 2 ? r * 0.45 : r;
    const angle = (corner * Math.PI) / 5 - Math.PI / 2;
    context[corner ? "lineTo" : "moveTo"](x + reach * Math.cos(angle), y + reach * Math.sin(angle));
  }
  context.closePath();
}

/** Arrows from where an op stood before to where it stands now. */
export function drawArrows(context, place, at, arrows, { theme }) {
  context.save();
  clip(context, place.plot);
  context.lineWidth = 1.1;
  context.globalAlpha = 0.8;
  for (const { from, to, change_s, predicted } of arrows) {
    const [x0, y0, x1, y1] = [at.x.at(from[0]), at.y.at(from[1]), at.x.at(to[0]), at.y.at(to[1])];
    if (Math.max(x0, x1) < place.plot.x || Math.min(x0, x1) > place.plot.x + place.plot.w) continue;
    const length = Math.hypot(x1 - x0, y1 - y0);
    context.strokeStyle = context.fillStyle = change_s === null ? theme.muted : change_s > 0 ? theme.compute : theme.good;
    context.beginPath();
    if (predicted) context.arc(x1, y1, 5, 0, 2 * Math.PI);
    else context.arc(x0, y0, 2, 0, 2 * Math.PI);
    context.stroke();
    if (length < 4) continue;
    const [dx, dy] = [(x1 - x0) / length, (y1 - y0) / length];
    context.beginPath();
    context.moveTo(x0 + 2 * dx, y0 + 2 * dy);
    context.lineTo(x1 - 5 * dx, y1 - 5 * dy);
    context.stroke();
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x1 - 7 * dx - 3 * dy, y1 - 7 * dy + 3 * dx);
    context.lineTo(x1 - 7 * dx + 3 * dy, y1 - 7 * dy - 3 * dx);
    context.fill();
  }
  context.restore();
}

function line(context, colour, trace) {
  context.beginPath();
  trace();
  context.strokeStyle = colour;
  context.stroke();
}

/** Lines of one pixel stand in the middle of a pixel, or they are two pixels of half the strength. */
function upright(context, x, from, to) {
  const crisp = Math.round(x - 0.5) + 0.5;
  context.moveTo(crisp, from);
  context.lineTo(crisp, to);
}

function level(context, y, from, to) {
  const crisp = Math.round(y - 0.5) + 0.5;
  context.moveTo(from, crisp);
  context.lineTo(to, crisp);
}

export function turned(context, angle, x, y, draw) {
  context.save();
  context.translate(x, y);
  context.rotate(angle);
  draw();
  context.restore();
}
