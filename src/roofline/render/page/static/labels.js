/** Words on a chart: names of roofs along their lines, and of the heaviest dots beside them, where there is room. */

import { shortName } from "#page/dom.js";
import { distance } from "#page/hits.js";
import { byWeight, clip, inSight, SIGN, turned } from "#page/paint.js";
import { overlap, placeLabels } from "#page/scale.js";

const NAMED = 24; // dots that may carry their name, heaviest first
const TRIED = 100; // dots whose name is given a try: the heaviest are often a crowd without room for any
const CROWD = 400; // dots that names keep clear of, heaviest first
const LONGEST = 28; // letters of a name

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
  const boxes = [];
  context.font = `${narrow ? 11 : 12}px ${font}`;
  context.lineJoin = "round";
  context.lineWidth = 4;
  context.strokeStyle = theme.background;
  const stretches = lines.map((line) => ({ id: line.id, ends: line.points.map(([x, y]) => [at.x.at(x), at.y.at(y)]) }));
  for (const { id, kind, label: text, points } of lines) {
    const name = { width: context.measureText(text).width, colour: roofColour(id) };
    const others = stretches.filter((one) => one.id !== id);
    const offers = kind === "memory" ? alongSlant(plot, at, points, name) : besideFlat(plot, at, points, name);
    // Not on another name, and not on another line: the card of a roof says its name too.
    const free = offers.filter((offer) => !boxes.some((other) => clash(other, offer)) && !discs(offer).some((disc) => others.some(({ ends }) => distance(
      disc.x,
      disc.y,
      ...ends[0],
      ...ends[1],
    ) < disc.r)));
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

/** Places for a name along a slanted roof, above or below it: near its lower end, then further up. */
function alongSlant(plot, at, points, { width }) {
  const [[x0, y0], [x1, y1]] = points;
  const [left, bottom, right, top] = [at.x.at(x0), at.y.at(y0), at.x.at(x1), at.y.at(y1)];
  const length = Math.hypot(right - left, bottom - top);
  const angle = Math.atan2(top - bottom, right - left);
  if (length < width + 40) return [];
  const lift = [Math.sin(angle) * 10, -Math.cos(angle) * 10]; // square to the roof, upwards
  const spots = [22, 22 + (length - width - 48) / 3, 22 + (2 * (length - width - 48)) / 3, length - width - 26];
  return [1, -1].flatMap((side) => spots.map((along) => [side, along])).map(([side, along]) => {
    const [start, base] = [left + Math.cos(angle) * along + side * lift[0], bottom + Math.sin(angle) * along + side * lift[1]];
    const rise = -Math.sin(angle) * width;
    return { left: start, base, angle, x: start - 8, y: base - rise - 8, w: Math.cos(angle) * width + 16, h: rise + 16 };
  }).filter(({ x, y, w, h }) => x >= plot.x && y >= plot.y && x + w <= plot.x + plot.w && y + h <= plot.y + plot.h);
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
