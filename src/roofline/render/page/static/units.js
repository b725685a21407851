/** Quantities as people read them, equal to `units.py`; inside, everything is in base units. The list of runs uses this module alone. */

export const UNKNOWN = "–";

const LARGE = [["E", 1e18], ["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1]];
const SMALL = [["", 1], ["m", 1e-3], ["µ", 1e-6], ["n", 1e-9], ["p", 1e-12]];
const LEAST_PERCENT = 1e-4; // of which a smaller one is said to be less
const UNGROUPED = 1e15; // larger numbers are written with an exponent
const EXACT_DIGITS = 100; // as many as toPrecision gives: no double lies nearer to a tie without being one

/** A quantity for people, with a decimal prefix and so many significant digits. */
export function show(value, dimension, digits = 4) {
  if (value == null) return UNKNOWN;
  if (dimension === "1") return general(value, digits);
  if (value === 0 || !Number.isFinite(value)) return `${general(value, 6)} ${dimension}`;
  if (dimension === "FLOP/B" || dimension === "hop") return `${plain(value, digits)} ${dimension}`;
  const ladder = dimension === "s" ? SMALL : LARGE;
  // 999.96 GB at four digits reads "1000 GB": step up to the next prefix instead.
  const fits = ([, scale]) => Number(general(Math.abs(value) / scale, digits)) >= 1;
  const [prefix, scale] = ladder.find(fits) ?? ladder[ladder.length - 1];
  // 170 µs at two digits, not 1.7e+02.
  return `${plain(Number(general(value / scale, digits)), Math.max(digits, 4))} ${prefix}${dimension}`;
}

/** A bare number for people: grouped when large, never in exponent form below 10¹⁵. */
export function plain(value, digits = 4) {
  if (value == null) return UNKNOWN;
  if (value === 0 || !Number.isFinite(value)) return general(value, 6);
  if (Math.abs(value) < 10 ** (digits - 1) || Math.abs(value) >= UNGROUPED) return general(value, digits);
  return grouped(whole(value));
}

/** A share for people: two significant digits below 10%, whole percents above. */
export function percent(fraction) {
  if (fraction == null) return UNKNOWN;
  const share = 100 * fraction;
  if (share > 0 && share < LEAST_PERCENT) return `<${LEAST_PERCENT.toFixed(4)}%`;
  return share >= 9.95 || share === 0 ? `${grouped(whole(share))}%` : `${general(share, 2)}%`;
}

/** A rate or an amount with its prefix but without its unit, as axes show it: `10 T`. */
export function prefixed(value) {
  return show(value, "FLOP").replace(/FLOP$/, "").trim();
}

/** Whole numbers in order, those in a row as one: "0-2 4". */
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

/** The digits of a whole number in groups of three. */
const grouped = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");

/** A number rounded to a whole one, ties to even, in plain digits. */
function whole(value) {
  if (!Number.isFinite(value)) return general(value, 6);
  const down = Math.floor(value);
  const rest = value - down;
  const near = rest > 0.5 || (rest === 0.5 && down % 2 !== 0) ? down + 1 : down;
  return near === 0 && value < 0 ? "-0" : BigInt(near).toString();
}

/** A sentence whose lines never end between a number and its unit. */
export const unbroken = (sentence) => sentence.replace(/(\d) (?=[a-zA-Zµ])/g, "$1\u00a0").replace(/ per step\b/g, "\u00a0per\u00a0step");
