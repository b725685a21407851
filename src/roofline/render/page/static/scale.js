/**
 * Logarithmic axes and what is drawn on them: the geometry of `geometry.py`, and what only a screen needs.
 *
 * A window is `[x0, x1, y0, y1]` in base units, FLOP/B along x and FLOP/s along y, both logarithmic; a spot is `[x, y]`, a roof
 * `{peak, bandwidth}` in FLOP/s and B/s, and a tick `{at, label, minor}`.
 */

import { percent, plain, prefixed, show } from "#page/units.js";

// Decades of empty chart kept around what is shown, and the least share of a wide chart's height above and below it.
const [LEFT_OF_RIDGE, RIGHT_OF_RIDGE, AROUND_SPOTS, ABOVE_PEAK, LEAST_SHARE] = [2.6, 1.1, 0.5, 0.4, 0.09];
const EDGE = 1e-6; // of a step: a tick on the very edge of an axis is on it, whatever rounding says
const [MARGIN, CLOSEST] = [2, 0.05]; // decades: how far beyond its home a window goes, and how little it shows
const UNPREFIXED_BELOW = 1e6; // numbers on an axis without a unit are plain below this

/** A logarithmic scale from values to pixels: `low` is at the pixel `from`, `high` at `to`. */
export function logScale(low, high, from, to) {
  const [start, slope] = [Math.log(low), (to - from) / Math.log(high / low)];
  return { at: (value) => from + (Math.log(value) - start) * slope, value: (pixel) => Math.exp(start + (pixel - from) / slope) };
}

/** The same, linear. */
export function linearScale(low, high, from, to) {
  const slope = (to - from) / (high - low);
  return { at: (value) => from + (value - low) * slope, value: (pixel) => low + (pixel - from) / slope };
}

/** How numbers read on an axis: rates as `10 T`, times as `10 ms`, shares as `50%`, others plain below a million. */
function labeller(dimension) {
  if (dimension === "FLOP/s") return prefixed;
  if (dimension === "s") return (value) => (value ? show(value, "s") : "0");
  if (dimension === "%") return (value) => percent(Math.round(value * 100) / 100);
  return (value) => (value < UNPREFIXED_BELOW ? plain(value) : prefixed(value));
}

/**
 * At least three labelled ticks on a logarithmic axis: powers of ten, every second or third if there are many, or 1-2-5 steps, or plain
 * steps when less than a decade is shown; minor ones between.
 */
export function logTicks(low, high, dimension = "", most = 9) {
  const label = labeller(dimension);
  const powers = decades(low, high);
  if (powers.length >= 3) {
    const stride = Math.ceil(powers.length / most);
    const major = powers.filter((power) => power % stride === 0).map(ten);
    return merged(major, stride > 1 ? powers.map(ten) : multiples(low, high, [2, 3, 4, 5, 6, 7, 8, 9]), label);
  }
  for (const digits of [[1, 2, 5], [1, 2, 3, 5, 7]]) {
    const major = multiples(low, high, digits);
    if (major.length >= 3) return merged(major, multiples(low, high, [1, 2, 3, 4, 5, 6, 7, 8, 9]), label);
  }
  const steps = [5, 8, 12].map((about) => linearTicks(low, high, dimension, about));
  return steps.find((ticks) => ticks.length >= 3) ?? steps[2];
}

/** Labelled ticks at round steps of 1, 2, 2.5 or 5 times a power of ten; about this many of them. */
export function linearTicks(low, high, dimension = "", about = 5) {
  const rough = (high - low) / about;
  const power = ten(Math.floor(Math.log10(rough)));
  const step = power * [1, 2, 2.5, 5, 10].find((digit) => power * digit >= rough * 0.99);
  const label = labeller(dimension);
  const ticks = [];
  for (let index = Math.ceil(low / step - EDGE); index <= Math.floor(high / step + EDGE); index += 1) {
    ticks.push({ at: index * step, label: label(index * step), minor: false });
  }
  return ticks;
}

/** The exact power of ten, which `10 ** power` is not everywhere. */
function ten(power) {
  return Number(`1e${power}`);
}

function decades(low, high) {
  const [first, last] = [Math.ceil(Math.log10(low) - EDGE), Math.floor(Math.log10(high) + EDGE)];
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
}

function multiples(low, high, digits) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const digit of digits) {
      const at = Number(`${digit}e${power}`);
      if (low <= at && at <= high) found.push(at);
    }
  }
  return found;
}

function merged(major, minor, label) {
  const labelled = new Set(major);
  const all = [...new Set([...major, ...minor])].sort((one, other) => one - other);
  return all.map((at) => ({ at, label: labelled.has(at) ? label(at) : "", minor: !labelled.has(at) }));
}

/** A window zoomed about a place, which stays where it is; a factor below 1 shows less. */
export function zoom([x0, x1, y0, y1], x, y, factorX, factorY = factorX) {
  return [x * (x0 / x) ** factorX, x * (x1 / x) ** factorX, y * (y0 / y) ** factorY, y * (y1 / y) ** factorY];
}

/** A window moved by shares of its width and height; positive shares move what it shows right and up. */
export function pan([x0, x1, y0, y1], across, along) {
  const [right, up] = [(x1 / x0) ** -across, (y1 / y0) ** -along];
  return [x0 * right, x1 * right, y0 * up, y1 * up];
}

/** The window between two corners in any order; `null` when it shows too little to mean anything. */
export function box(x0, y0, x1, y1) {
  const window = [Math.min(x0, x1), Math.max(x0, x1), Math.min(y0, y1), Math.max(y0, y1)];
  const [left, right, bottom, top] = window;
  if (!window.every((value) => value > 0 && Number.isFinite(value))) return null;
  return Math.log10(right / left) >= CLOSEST && Math.log10(top / bottom) >= CLOSEST ? window : null;
}

/** A window within reach of its home: never so far away that nothing is in sight, nor so close that its axes have no numbers. */
export function clamp(window, home) {
  if (!window.every((value) => value > 0 && Number.isFinite(value))) return home;
  return [...within(window[0], window[1], home[0], home[1]), ...within(window[2], window[3], home[2], home[3])];
}

function within(low, high, homeLow, homeHigh) {
  const [least, most] = [Math.log10(homeLow) - MARGIN, Math.log10(homeHigh) + MARGIN];
  const middle = (Math.log10(low) + Math.log10(high)) / 2;
  const span = Math.min(Math.max(Math.log10(high) - Math.log10(low), CLOSEST), most - least);
  const start = Math.min(Math.max(middle - span / 2, least), most - span);
  // What needs no correction stays as it is, to the last digit.
  const [first, last] = [10 ** start, 10 ** (start + span)];
  return Math.abs(first / low - 1) < EDGE && Math.abs(last / high - 1) < EDGE ? [low, high] : [first, last];
}

/** The intensity of a roof's corner, in FLOP/B. */
export function ridge({ peak, bandwidth }) {
  return peak / bandwidth;
}

/** The attainable FLOP/s at an intensity: P = min(peak, bandwidth x intensity). */
export function attainable({ peak, bandwidth }, intensity) {
  return Math.min(peak, bandwidth * intensity);
}

/** The window that shows every ridge and every spot, with room around them. */
export function extent(roofs, spots) {
  if (!roofs.length && !spots.length) return [0.1, 1000, 1, 10000];
  const lefts = [...roofs.map((one) => ridge(one) / 10 ** LEFT_OF_RIDGE), ...spots.map(([x]) => x / 10 ** AROUND_SPOTS)];
  const rights = [...roofs.map((one) => ridge(one) * 10 ** RIGHT_OF_RIDGE), ...spots.map(([x]) => x * 10 ** AROUND_SPOTS)];
  const [left, right] = [smallest(lefts), largest(rights)];
  const low = roofs.length ? smallest(roofs.map((one) => attainable(one, left))) : Infinity;
  const high = largest([...roofs.map((one) => one.peak), ...spots.map(([, y]) => y)]);
  const lowest = smallest([low, ...spots.map(([, y]) => y)]);
  const least = LEAST_SHARE * Math.log10(high / lowest);
  const bottom = smallest([low, ...spots.map(([, y]) => y / 10 ** Math.max(AROUND_SPOTS, least))]);
  return [left, right, bottom, high * 10 ** Math.max(ABOVE_PEAK, least)];
}

const COVERED = 0.99; // of the weight of the spots that a fitted window shows
const [AROUND_FIT, LEAST_SPAN] = [0.3, 1.5]; // decades: around what is shown, and of a fitted window at least
// Decades left of the lowest ridge and below the lowest peak from which spots are left out that make up few of the weight: scalar work on
// large arrays has 1e-8 FLOP/B.
const [FAR, FEW] = [[4, 6], 0.1];

/**
 * The window that shows what matters: spots [x, y, weight] that make up 99% of the weight, those in `also` ([x, y]), and the ridge of the
 * lowest and highest roof. The rest may be far away, where it would leave the chart empty; so may up to a tenth that is very far from any roof.
 */
export function fitted(roofs, spots, also = []) {
  if (!roofs.length && !spots.length && !also.length) return [0.1, 1000, 1, 10000];
  const left = (1 - COVERED) / 4; // of the weight that each of the four sides may leave out
  const corners = roofs.map((one) => [ridge(one), one.peak]);
  const near = nearTo(corners, spots);
  const kept = [0, 1].map((axis) => quantiles(near.map((spot) => [spot[axis], spot[2]]), left));
  return [0, 1].flatMap((axis) => {
    const values = [...kept[axis], ...also.map((spot) => spot[axis]), ...corners.map((corner) => corner[axis])];
    const [low, high] = [smallest(values), largest(values)];
    const spare = Math.max(AROUND_FIT, (LEAST_SPAN - Math.log10(high / low)) / 2);
    return [low / 10 ** spare, high * 10 ** spare];
  });
}

/** The spots without those that are very far from any corner, unless these are more than a few. */
function nearTo(corners, spots) {
  const [left, bottom] = [0, 1].map((axis) => smallest(corners.map((corner) => corner[axis])) / 10 ** FAR[axis]);
  const weight = (some) => some.reduce((sum, spot) => sum + spot[2], 0);
  const near = spots.filter(([x, y]) => x >= left && y >= bottom);
  return weight(near) >= (1 - FEW) * weight(spots) && near.length ? near : spots;
}

/** The values between which all but a share of the weight on either side lies; none for no values. */
function quantiles(weighted, share) {
  const sorted = weighted.toSorted(([one], [other]) => one - other);
  const whole = sorted.reduce((sum, [, weight]) => sum + weight, 0);
  const first = (values) => {
    let passed = 0;
    for (const [value, weight] of values) {
      passed += weight;
      if (passed > share * whole) return value;
    }
    return values.at(-1)?.[0];
  };
  return sorted.length ? [first(sorted), first(sorted.toReversed())] : [];
}

/** The smallest window that holds some windows. */
export function around(...windows) {
  return [0, 1, 2, 3].map((side) => (side % 2 ? Math.max : Math.min)(...windows.map((window) => window[side])));
}

// Spreading 20,000 numbers into Math.min may exceed what a call takes.
function smallest(values) {
  return values.reduce((least, value) => Math.min(least, value), Infinity);
}

function largest(values) {
  return values.reduce((most, value) => Math.max(most, value), -Infinity);
}

/** The bandwidth's part of a roof inside a window, up to the corner or beyond it; empty when it is not in sight. */
export function slant(roof, [left, right, bottom, top], beyond = false) {
  const start = Math.max(left, bottom / roof.bandwidth);
  const end = Math.min(right, top / roof.bandwidth, beyond ? Infinity : ridge(roof));
  // peak / bandwidth * bandwidth may differ from the peak in its last digit; the corner must not.
  const height = end === ridge(roof) ? roof.peak : roof.bandwidth * end;
  return start < end ? [[start, roof.bandwidth * start], [end, height]] : [];
}

/** The peak's part of a roof inside a window, from the corner or from before it; empty when it is not in sight. */
export function flat(roof, [left, right, bottom, top], before = false) {
  const start = before ? left : Math.max(left, ridge(roof));
  return start < right && bottom < roof.peak && roof.peak <= top ? [[start, roof.peak], [right, roof.peak]] : [];
}

/** A dot's radius in pixels: its area is as the weight, and none is too small to see. */
export function radius(weight, heaviest, largestRadius = 14, smallestRadius = 2.5) {
  return heaviest > 0 ? Math.max(smallestRadius, largestRadius * Math.sqrt(Math.max(0, weight) / heaviest)) : smallestRadius * 2;
}

const MOST_ROWS = 65536; // of cells in an index: one number holds column and row

/**
 * An index of dots {x, y, r} in pixels for the mouse: `inside(x0, y0, x1, y1)` a box, and `nearest(x, y, within)`, which prefers a dot
 * under the pointer, the one whose centre is nearest, to one that is only close; -1 when there is none.
 */
export function gridIndex(points, cell = 24) {
  const cells = new Map();
  const key = (column, row) => column * MOST_ROWS + row;
  let reach = 0;
  points.forEach(({ x, y, r }, index) => {
    if (!Number.isFinite(x) || !Number.isFinite(y)) return;
    reach = Math.max(reach, r);
    const at = key(Math.floor(x / cell), Math.floor(y / cell));
    if (cells.has(at)) cells.get(at).push(index);
    else cells.set(at, [index]);
  });
  function* near(x0, y0, x1, y1) {
    for (let column = Math.floor(x0 / cell); column <= Math.floor(x1 / cell); column += 1) {
      for (let row = Math.floor(y0 / cell); row <= Math.floor(y1 / cell); row += 1) yield* cells.get(key(column, row)) ?? [];
    }
  }
  function nearest(x, y, within) {
    const far = within + reach;
    let [best, closest] = [-1, Infinity];
    for (const index of near(x - far, y - far, x + far, y + far)) {
      const dot = points[index];
      const apart = Math.hypot(dot.x - x, dot.y - y);
      const score = apart <= dot.r ? apart - far : apart - dot.r;
      if (apart <= dot.r + within && (score < closest || (score === closest && index < best))) [best, closest] = [index, score];
    }
    return best;
  }
  function inside(x0, y0, x1, y1) {
    const [left, right, top, bottom] = [Math.min(x0, x1), Math.max(x0, x1), Math.min(y0, y1), Math.max(y0, y1)];
    const held = ({ x, y }) => left <= x && x <= right && top <= y && y <= bottom;
    return [...near(left, top, right, bottom)].filter((index) => held(points[index])).sort((one, other) => one - other);
  }
  return { nearest, inside };
}

const GAP = 3; // pixels between a dot and its label

/**
 * Places for labels {text, x, y, r, width, height} beside their dots, the first ones first, as [{index, x, y}] with the left and top of
 * each box, `most` of them and each text once; those for which there is no room in the area, clear of each other and of `dots`, are left out.
 */
export function placeLabels(labels, area, dots = [], most = Infinity) {
  const taken = [];
  const placed = [];
  const named = new Set();
  labels.forEach((label, index) => {
    if (placed.length >= most || named.has(label.text ?? index)) return;
    const clear = (spot) => !taken.some((other) => overlap(spot, other)) && !dots.some((dot) => covers(dot, spot, label));
    const free = spotsFor(label).find((spot) => inArea(spot, area) && clear(spot));
    if (!free) return;
    taken.push(free);
    named.add(label.text ?? index);
    placed.push({ index, x: free.x, y: free.y });
  });
  return placed;
}

/** Places around a dot, the nearest first: beside one that others overlap only places a little farther are free. */
function spotsFor(label) {
  return [0, 5].flatMap((farther) => spotsAround({ ...label, r: label.r + farther }));
}

function spotsAround({ x, y, r, width: w, height: h }) {
  const slanted = r * Math.SQRT1_2 + GAP;
  return [
    [x + r + GAP, y - h / 2], [x - r - GAP - w, y - h / 2], [x - w / 2, y - r - GAP - h], [x - w / 2, y + r + GAP],
    [x + slanted, y - slanted - h], [x + slanted, y + slanted], [x - slanted - w, y - slanted - h], [x - slanted - w, y + slanted],
    [x + r - w, y + r + GAP], [x + r - w, y - r - GAP - h], [x - r, y + r + GAP], [x - r, y - r - GAP - h],
  ].map(([left, top]) => ({ x: left, y: top, w, h }));
}

function inArea(one, area) {
  return one.x >= area.x && one.y >= area.y && one.x + one.w <= area.x + area.w && one.y + one.h <= area.y + area.h;
}

/** Whether two boxes {x, y, w, h} share some area. */
function overlap(one, other) {
  return one.x < other.x + other.w && other.x < one.x + one.w && one.y < other.y + other.h && other.y < one.y + one.h;
}

function covers(dot, spot, label) {
  if (dot.x === label.x && dot.y === label.y) return false;
  const across = Math.max(spot.x - dot.x, 0, dot.x - spot.x - spot.w);
  const along = Math.max(spot.y - dot.y, 0, dot.y - spot.y - spot.h);
  return Math.hypot(across, along) < dot.r;
}
