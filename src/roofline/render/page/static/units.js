/**
 * Quantities for people and from people, equal to `units.py`: the only module of the page where prefixes live.
 *
 * Inside, everything is in base units: seconds, bytes, FLOP, FLOP/s, B/s. G is 10⁹ and Gi is 2³⁰, always.
 */

/** @typedef {"s"|"B"|"B/s"|"FLOP"|"FLOP/s"|"FLOP/B"|"hop"|"hop/s"|"Hz"|"W"|"1"} Dimension */

export const UNKNOWN = "–";

const LARGE = [["E", 1e18], ["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1]];
const SMALL = [["", 1], ["m", 1e-3], ["µ", 1e-6], ["n", 1e-9], ["p", 1e-12]];
const UNGROUPED = 1e15; // larger numbers are written with an exponent
const EXACT_DIGITS = 100; // as many as toPrecision gives: no double lies nearer to a tie without being one

/**
 * A quantity for people, with a decimal prefix and so many significant digits.
 * @param {number|null|undefined} value
 * @param {Dimension} dimension
 * @param {number} [digits]
 * @returns {string}
 */
export function show(value, dimension, digits = 4) {
  if (value == null) return UNKNOWN;
  if (dimension === "1") return general(value, digits);
  if (value === 0 || !Number.isFinite(value)) return `${general(value, 6)} ${dimension}`;
  if (dimension === "FLOP/B" || dimension === "hop") return `${plain(value, digits)} ${dimension}`;
  const ladder = dimension === "s" ? SMALL : LARGE;
  // 999.96 GB at four digits reads "1000 GB": step up to the next prefix instead.
  const fits = ([, scale]) => Number(general(Math.abs(value) / scale, digits)) >= 1;
  const [prefix, scale] = ladder.find(fits) ?? ladder[ladder.length - 1];
  return `${general(value / scale, digits)} ${prefix}${dimension}`;
}

/**
 * A bare number for people: grouped when large, never in exponent form below 10¹⁵.
 * @param {number|null|undefined} value
 * @param {number} [digits]
 * @returns {string}
 */
export function plain(value, digits = 4) {
  if (value == null) return UNKNOWN;
  if (value === 0 || !Number.isFinite(value)) return general(value, 6);
  if (Math.abs(value) < 10 ** (digits - 1) || Math.abs(value) >= UNGROUPED) return general(value, digits);
  return whole(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

/**
 * A share for people: two significant digits below 10%, whole percents above.
 * @param {number|null|undefined} fraction
 * @returns {string}
 */
export function percent(fraction) {
  if (fraction == null) return UNKNOWN;
  const share = 100 * fraction;
  return share >= 9.95 || share === 0 ? `${whole(share)}%` : `${general(share, 2)}%`;
}

/**
 * A rate or an amount with its prefix but without its unit, as axes show it: `10 T`.
 * @param {number} value
 * @returns {string}
 */
export function prefixed(value) {
  return show(value, "FLOP").replace(/FLOP$/, "").trim();
}

/**
 * Whole numbers in order, those in a row as one: "0-2 4".
 * @param {number[]} numbers
 * @param {string} [between]
 * @returns {string}
 */
export function ranges(numbers, between = " ") {
  const runs = [];
  for (const number of [...new Set(numbers)].sort((one, other) => one - other)) {
    const last = runs[runs.length - 1];
    if (last && last[1] === number - 1) last[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([first, last]) => (first === last ? first : `${first}-${last}`)).join(between);
}

/** So many significant digits, without trailing zeros, as Python's format `g` writes them. */
function general(value, digits) {
  if (value === 0) return Object.is(value, -0) ? "-0" : "0";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const [mantissa, power] = rounded(value, digits);
  if (power < -4 || power >= digits) {
    const [lead, rest] = [mantissa[0], mantissa.slice(1).replace(/0+$/, "")];
    const exponent = `${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
    return `${value < 0 ? "-" : ""}${lead}${rest && `.${rest}`}e${exponent}`;
  }
  const padded = power < 0 ? "0".repeat(-power) + mantissa : mantissa;
  const point = Math.max(power, 0) + 1;
  const rest = padded.slice(point).replace(/0+$/, "");
  return `${value < 0 ? "-" : ""}${padded.slice(0, point)}${rest && `.${rest}`}`;
}

/** The digits of a magnitude and the power of ten of the first; ties go to the even digit, as Python rounds. */
function rounded(value, digits) {
  let [mantissa, power] = split(Math.abs(value).toExponential(digits - 1));
  const [exact, exactPower] = split(Math.abs(value).toExponential(EXACT_DIGITS - 1));
  const tie = /^50*$/.test(exact.slice(digits));
  if (tie && Number(exact[digits - 1]) % 2 === 0) [mantissa, power] = [exact.slice(0, digits), exactPower];
  return [mantissa, power];
}

function split(text) {
  const [mantissa, power] = text.split("e");
  return [mantissa.replace(".", ""), Number(power)];
}

/** A number rounded to a whole one, ties to even, in plain digits. */
function whole(value) {
  if (!Number.isFinite(value)) return general(value, 6);
  const down = Math.floor(value);
  const rest = value - down;
  const near = rest > 0.5 || (rest === 0.5 && down % 2 !== 0) ? down + 1 : down;
  return near === 0 && value < 0 ? "-0" : BigInt(near).toString();
}

// spelling -> [dimension, power of ten, factor]; powers of ten are applied to the digits, so that 3.1 ms is exactly 0.0031.
const SPELLINGS = new Map([
  ...["FLOP", "FLOPs", "OP", "OPs"].map((name) => [name, ["FLOP", 0, 1]]),
  ...["FLOP/s", "FLOPS", "FLOPs/s", "OP/s", "OPS"].map((name) => [name, ["FLOP/s", 0, 1]]),
  ...["B", "byte", "bytes"].map((name) => [name, ["B", 0, 1]]),
  ["bit", ["B", 0, 1 / 8]],
  ["B/s", ["B/s", 0, 1]],
  ["bit/s", ["B/s", 0, 1 / 8]],
  ["s", ["s", 0, 1]],
  ["min", ["s", 0, 60]],
  ["h", ["s", 0, 3600]],
  ["Hz", ["Hz", 0, 1]],
  ["W", ["W", 0, 1]],
  ["FLOP/B", ["FLOP/B", 0, 1]],
  ["hop", ["hop", 0, 1]],
  ["hops", ["hop", 0, 1]],
  ["hop/s", ["hop/s", 0, 1]],
  ["%", ["1", -2, 1]],
  ["x", ["1", 0, 1]],
]);
const UNPREFIXED = new Set(["min", "h", "%", "x", "FLOP/B", "hop", "hops"]);
const POWERS = { k: 3, K: 3, M: 6, G: 9, T: 12, P: 15, E: 18 };
const SMALL_POWERS = { m: -3, u: -6, µ: -6, μ: -6, n: -9, p: -12 };
const BINARY = { Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50 };

function meaning(unit) {
  if (SPELLINGS.has(unit)) return SPELLINGS.get(unit);
  for (const length of [2, 1]) {
    const [prefix, rest] = [unit.slice(0, length), unit.slice(length)];
    const found = UNPREFIXED.has(rest) ? undefined : SPELLINGS.get(rest);
    if (!found) continue;
    const [dimension, power, factor] = found;
    if (dimension === "s") {
      if (Object.hasOwn(SMALL_POWERS, prefix)) return [dimension, power + SMALL_POWERS[prefix], factor];
    } else if (Object.hasOwn(POWERS, prefix)) {
      return [dimension, power + POWERS[prefix], factor];
    } else if ((dimension === "B" || dimension === "B/s") && Object.hasOwn(BINARY, prefix)) {
      return [dimension, power, factor * BINARY[prefix]];
    }
  }
  return null;
}

const NUMBER = /^\s*([+-]?(?:\d[\d_,]*\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,3}))?\s*(\S*)\s*$/;

/**
 * A quantity that a person wrote, in base units, with its dimension; `null` when it is none.
 * A bare number and a bare prefix ("1G") have the dimension "".
 * @param {string} text
 * @returns {{value: number, dimension: Dimension|""}|null}
 */
export function read(text) {
  const match = NUMBER.exec(text);
  if (!match) return null;
  const [, digits, exponent = "0", unit] = match;
  const power = unit && Object.hasOwn(POWERS, unit) ? POWERS[unit] : undefined;
  const bare = unit === "" || power !== undefined || Object.hasOwn(BINARY, unit);
  const found = bare ? ["", power ?? 0, BINARY[unit] ?? 1] : meaning(unit);
  if (!found) return null;
  const [dimension, shift, factor] = found;
  const value = Number(`${digits.replace(/[_,]/g, "")}e${Number(exponent) + shift}`) * factor;
  return Number.isFinite(value) ? { value, dimension } : null;
}

/**
 * A quantity in the base unit of a dimension, as a person wrote it; a bare number already is in it.
 * `null` when it is negative, of another dimension, or no quantity at all.
 * @param {string} text
 * @param {Dimension} dimension
 * @returns {number|null}
 */
export function parse(text, dimension) {
  const found = read(text);
  if (!found || found.value < 0) return null;
  return found.dimension === "" || found.dimension === dimension ? found.value : null;
}
