/** What is at a place of a chart. */

import { inSight, SIGN, TWIN } from "#page/paint.js";

const REACH = 8; // pixels from a dot or a roof at which it is meant
const BESIDE = 4; // pixels around the plot that still belong to it

/** A point of the program, else a dot, else a roof at (x, y) in pixels: {program}, {dot}, {roof} or `null`. `grid` indexes the dots. */
export function under({ place, at, dots, program, lines, roofs, grid, outside, twins }, x, y) {
  const inside = (area) => area && Math.abs(x - area.x - area.w / 2) <= area.w / 2 + BESIDE && Math.abs(y - area.y - area.h / 2) <= area.h / 2 + BESIDE;
  if (!inside(place.plot) && !inside(place.strip)) return null;
  const near = (mark) => Math.hypot(at.x.at(mark.x) - x, at.y.at(mark.y) - y) <= (SIGN[mark.scope] ?? SIGN.step) + 2;
  const sign = inside(place.plot) && program.find(near);
  if (sign) return { program: sign };
  const twin = inside(place.plot) && twins.find(({ x: across, y: along }) => Math.hypot(at.x.at(across) - x, at.y.at(along) - y) <= TWIN + 1);
  if (twin) return { dot: dots.all.findIndex((dot) => dot.id === twin.id) };
  const arrow = outside.findLast((one) => Math.hypot(one.x - x, one.y - y) <= REACH + 2);
  if (arrow) return { dot: arrow.number };
  const number = grid().nearest(x, y, REACH);
  if (number >= 0 && inSight(dots, number, place)) return { dot: number };
  const roof = inside(place.plot) ? nearestRoof(lines, at, x, y) : null;
  return roof && { roof: roofs.find((one) => one.id === roof) };
}

function nearestRoof(lines, at, x, y) {
  let [best, least] = [null, REACH];
  for (const { id, points: [[x0, y0], [x1, y1]] } of lines) {
    const far = distance(x, y, at.x.at(x0), at.y.at(y0), at.x.at(x1), at.y.at(y1));
    if (far < least) [best, least] = [id, far];
  }
  return best;
}

/** How far a place is from a stretch of line. */
export function distance(x, y, x0, y0, x1, y1) {
  const long = (x1 - x0) ** 2 + (y1 - y0) ** 2;
  const along = long ? Math.max(0, Math.min(1, ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / long)) : 0;
  return Math.hypot(x - x0 - along * (x1 - x0), y - y0 - along * (y1 - y0));
}
