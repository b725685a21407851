/** Drawing on a canvas: the frame of a chart, its axes, roofs, dots, strip and marks. Everything here is in CSS pixels. */

import { linearScale, linearTicks, logScale, logTicks, overlap, radius } from "#page/scale.js";

export const LARGEST_DOT = 13; // radius of the heaviest op
const SMALLEST_DOT = 2.5;
const NARROW = 560; // below this width the chart drops what is only nice to have
const TICK = 4;

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
    x: logScale(x0, x1, plot.x, plot.x + plot.w),
    y: logScale(y0, y1, plot.y + plot.h, plot.y),
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

function clip(context, { x, y, w, h }) {
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
    for (const { at: value, minor } of across) upright(
      context,
      at.x.at(value),
      plot.y + plot.h,
      plot.y + plot.h + (minor ? TICK / 2 : TICK),
    );
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

/** The strip of ops without FLOP, at their share of what binds them. */
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
  context.fillText(narrow ? "0" : "no FLOP", centre, strip.y + strip.h + TICK + 14);
  if (!narrow) context.fillText("share of roof", centre, place.height - 5);
}

/** Roofs as thin lines; those of levels that the x axis does not count are dashed. */
export function drawRoofs(context, place, at, lines, { theme, lit }) {
  context.save();
  clip(context, place.plot);
  context.lineJoin = "round";
  for (const { id, kind, axis, points } of lines) {
    context.lineWidth = lit === id ? 2.5 : 1.5;
    context.setLineDash(kind === "memory" && !axis ? [5, 3] : []);
    line(context, kind === "memory" ? theme.memory : theme.compute, () => {
      points.forEach(([x, y], index) => context[index ? "lineTo" : "moveTo"](at.x.at(x), at.y.at(y)));
    });
  }
  context.restore();
}

/** The name of each roof where there is room for it; returns round places {x, y, r} that cover these names. */
export function drawRoofNames(context, place, at, lines, roofs, obstacles, { theme, font, moving }) {
  const { plot, narrow } = place;
  const boxes = [];
  context.font = `${narrow ? 11 : 12}px ${font}`;
  context.lineJoin = "round";
  context.lineWidth = 3;
  context.strokeStyle = theme.background;
  for (const { id, kind, points } of lines) {
    const text = roofs.get(id)?.label;
    if (!text || points.length < 2) continue;
    const name = { text, width: context.measureText(text).width, colour: kind === "memory" ? theme.memory : theme.compute };
    const offers = kind === "memory" ? alongSlant(plot, at, points, name) : besideFlat(plot, at, points, name);
    const free = offers.filter((offer) => !boxes.some((other) => clash(other, offer)));
    const chosen = free.find((offer) => !discs(offer).some((disc) => obstacles.some((dot) => Math.hypot(
      dot.x - disc.x,
      dot.y - disc.y,
    ) < dot.r + disc.r - 2))) ?? free[0];
    if (!chosen) continue;
    boxes.push(chosen);
    context.fillStyle = name.colour;
    context.textAlign = "left";
    context.textBaseline = "middle";
    turned(context, chosen.angle, chosen.left, chosen.base, () => haloed(context, text, 0, 0, moving));
  }
  return boxes.flatMap(discs);
}

/** Places for a name at a flat roof: above its right end, below it, then further left, at last beyond its corner. */
function besideFlat(plot, at, points, { width }) {
  const [[x0], [x1, rate]] = [points[0], points[points.length - 1]];
  const [left, right, y] = [Math.max(at.x.at(x0), plot.x), Math.min(at.x.at(x1), plot.x + plot.w), at.y.at(rate)];
  if (y < plot.y - 2 || y > plot.y + plot.h - 4) return [];
  const spots = [
    right - width - 4,
    (left + right - width) / 2,
    left + 6,
    left - width - 8,
  ].filter((x) => x >= plot.x + 2 && x + width <= plot.x + plot.w);
  return spots
    .flatMap((x) => [y - 10, y + 11].map((base) => ({ left: x, base, angle: 0, x, y: base - 8, w: width, h: 16 })))
    .filter(({ y: top }) => top > plot.y - 14);
}

/** Places for a name along a slanted roof, above it: near its lower end, then further up. */
function alongSlant(plot, at, points, { width }) {
  const [[x0, y0], [x1, y1]] = points;
  const [left, bottom, right, top] = [at.x.at(x0), at.y.at(y0), at.x.at(x1), at.y.at(y1)];
  const length = Math.hypot(right - left, bottom - top);
  const angle = Math.atan2(top - bottom, right - left);
  if (length < width + 40) return [];
  const lift = [Math.sin(angle) * 10, -Math.cos(angle) * 10]; // square to the roof, upwards
  return [22, 22 + (length - width - 48) / 3, 22 + (2 * (length - width - 48)) / 3, length - width - 26].map((along) => {
    const [start, base] = [left + Math.cos(angle) * along + lift[0], bottom + Math.sin(angle) * along + lift[1]];
    const rise = -Math.sin(angle) * width;
    return { left: start, base, angle, x: start - 8, y: base - rise - 8, w: Math.cos(angle) * width + 16, h: rise + 16 };
  }).filter(({ x, y }) => x >= plot.x && y >= plot.y);
}

/** Round places along a name: what is near a slanted one is not what is in its box. */
function discs({ left, base, angle, w, h }) {
  const long = angle ? Math.hypot(w - 16, h - 16) : w;
  const count = Math.ceil(long / 12);
  return Array.from(
    { length: count + 1 },
    (_, index) => ({ x: left + (Math.cos(angle) * long * index) / count, y: base + (Math.sin(angle) * long * index) / count, r: 8 }),
  );
}

function clash(one, other) {
  return overlap(one, other) && discs(one).some((mine) => discs(other).some((yours) => Math.hypot(
    mine.x - yours.x,
    mine.y - yours.y,
  ) < 15));
}

/** The program as a whole, by counters, its average step and its steps: each its own sign, in ink. */
export function drawProgram(context, place, at, marks, { theme }) {
  context.save();
  clip(context, place.plot);
  for (const mark of marks) {
    sign(context, mark.scope, at.x.at(mark.x), at.y.at(mark.y), theme);
  }
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
  for (const { from, to, change_s } of arrows) {
    const [x0, y0, x1, y1] = [at.x.at(from[0]), at.y.at(from[1]), at.x.at(to[0]), at.y.at(to[1])];
    if (Math.max(x0, x1) < place.plot.x || Math.min(x0, x1) > place.plot.x + place.plot.w) continue;
    const length = Math.hypot(x1 - x0, y1 - y0);
    context.strokeStyle = context.fillStyle = change_s === null ? theme.muted : change_s > 0 ? theme.compute : theme.good;
    context.beginPath();
    context.arc(x0, y0, 2, 0, 2 * Math.PI);
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

/** Names beside the heaviest dots; `places` hold each name and how far from its dot it stands. */
export function drawNames(context, place, dots, places, { theme, font, moving }) {
  context.save();
  clip(context, place.plot);
  context.font = `12px ${font}`;
  context.textBaseline = "middle";
  context.lineJoin = "round";
  context.lineWidth = 3;
  context.strokeStyle = theme.background;
  context.fillStyle = theme.ink;
  context.textAlign = "left";
  for (const { text, index, dx, dy } of places) {
    haloed(context, text, dots.x[index] + dx, dots.y[index] + dy, moving);
  }
  context.restore();
}

/** Words that stay readable over dots and lines; while things move nobody reads, and a halo is most of the work. */
function haloed(context, text, x, y, moving) {
  if (!moving) context.strokeText(text, x, y);
  context.fillText(text, x, y);
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

function turned(context, angle, x, y, draw) {
  context.save();
  context.translate(x, y);
  context.rotate(angle);
  draw();
  context.restore();
}
