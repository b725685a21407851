/**
 * The whole state of the page as one plain value, and as the fragment of its address.
 *
 * The fragment holds only what differs from the defaults (`level=l2&filter=efficiency%3C0.5`). Reading one never fails: whatever makes no
 * sense gives the default of its field.
 */

import { COLOURINGS } from "#page/colours.js";
import { GROUPINGS } from "#page/groups.js";
import { ranges } from "#page/units.js";

const MOST_SELECTED = 100000; // a fragment may say "0-999999999"
const [WINDOW_DIGITS, FACTOR_DIGITS] = [6, 4];
const [LEAST_FACTOR, MOST_FACTOR] = [1 / 1000, 1000];

/** How one field is written and read; `read` gives `undefined` for what makes no sense. */
const TEXT = { write: escaped, read: unescaped };
const FLAG = { write: (value) => (value ? "1" : "0"), read: (text) => ({ 1: true, 0: false })[text] };
const WHOLE = { write: String, read: (text) => (/^-?\d{1,9}$/.test(text) ? Number(text) : undefined) };
const WORDS = { write: (words) => words.map(item).join(","), read: readWords };
const IDS = { write: (numbers) => ranges(numbers, ","), read: readRanges }; // "3-7,9"
const WINDOW = { write: (window) => window.map((value) => Number(value.toPrecision(WINDOW_DIGITS))).join(","), read: readWindow };
const STRETCH = { write: (buckets) => buckets.join("-"), read: readStretch };
const FACTORS = { write: writeFactors, read: readFactors };
const word = (pattern) => ({ write: escaped, read: (text) => (pattern.test(unescaped(text) ?? "") ? unescaped(text) : undefined) });
const oneOf = (values) => ({ write: escaped, read: (text) => (values.includes(unescaped(text)) ? unescaped(text) : undefined) });

const KEY = /^[a-z][a-z0-9_]{0,30}$/;
const RESOURCE = /^[a-z][a-z0-9_.]{0,30}(\/[a-z0-9_]{1,30})?$/;

// field -> [default, codec]
const FIELDS = {
  tab: ["ops", word(KEY)],
  panel: ["findings", word(KEY)],
  theme: ["auto", oneOf(["auto", "light", "dark"])],
  level: ["hbm", word(RESOURCE)], // what the x axis counts bytes over; "bound": each op over the level that binds it
  colour: ["bound", oneOf(COLOURINGS.map((one) => one.key))],
  size: ["time", oneOf(["time", "self", "lost", "flops", "bytes", "equal"])],
  filter: ["", TEXT],
  categories: [[], WORDS], // empty: all
  bounds: [[], WORDS],
  dtypes: [[], WORDS],
  feeds: [true, FLAG], // whether infeed and outfeed are included
  step: [null, WHOLE],
  device: [null, WHOLE],
  host: [null, TEXT],
  timeline: ["step", oneOf(["step", "run"])],
  stretch: [null, STRETCH], // first and last bucket of the timeline; null: all of it
  group: ["", oneOf(GROUPINGS.map((one) => one.key))],
  folded: [true, FLAG], // whether equal work is one row of the table
  depth: [2, WHOLE], // levels of scope kept when grouping by it
  sort: ["usual", word(KEY)], // the key of a column; "usual": by time, of a program that was played by the time lost
  descending: [true, FLAG],
  columns: [null, WORDS], // null: the usual ones
  selected: [[], IDS], // op ids
  window: [null, WINDOW], // [x0, x1, y0, y1]; null: everything
  hidden: [[], WORDS], // roofs switched off
  shown: [[], WORDS], // roofs switched on that are off by default
  chip: [null, TEXT], // another chip's name
  factors: [{}, FACTORS], // {compute: 1.2, bandwidth: 0.5}
  compare: [true, FLAG],
  whatif: [null, WHOLE], // the finding whose change is shown as predicted
  scopes: [["total", "hardware", "average", "step"], WORDS], // points of the program on the chart
  labels: [true, FLAG],
};

/** The default state. */
export const DEFAULTS = Object.freeze(Object.fromEntries(Object.entries(FIELDS).map(([name, [value]]) => [name, frozen(value)])));

function frozen(value) {
  return typeof value === "object" && value !== null ? Object.freeze(value) : value;
}

/** A state as a fragment, without the leading #. */
export function encode(state) {
  const parts = [];
  for (const [name, [usual, codec]] of Object.entries(FIELDS)) {
    const value = state[name];
    if (value === undefined || value === null || same(value, usual)) continue;
    parts.push(`${name}=${codec.write(value)}`);
  }
  return parts.join("&");
}

/** The state that a fragment describes, with or without its leading #. */
export function decode(fragment) {
  const state = { ...DEFAULTS };
  for (const part of String(fragment ?? "").replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    const name = part.slice(0, at);
    if (at < 1 || !Object.hasOwn(FIELDS, name)) continue;
    const value = FIELDS[name][1].read(part.slice(at + 1));
    if (value !== undefined) state[name] = value;
  }
  return state;
}

function same(one, other) {
  return one === other || JSON.stringify(one) === JSON.stringify(other);
}

/** A text as a part of a fragment; colons and slashes are allowed there, and easier to read. */
function escaped(text) {
  const whole = String(text).replace(/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g, "\uFFFD");
  return encodeURIComponent(whole).replaceAll("%3A", ":").replaceAll("%2F", "/");
}

function unescaped(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** One of several words: a tilde stands for the empty one. */
function item(text) {
  return text === "" ? "~" : escaped(text).replaceAll("~", "%7E");
}

function readWords(text) {
  if (text === "") return [];
  const words = text.split(",").map((part) => (part === "~" ? "" : part === "" ? undefined : unescaped(part)));
  return words.includes(undefined) ? undefined : words;
}

function readRanges(text) {
  const numbers = [];
  for (const part of text === "" ? [] : text.split(",")) {
    const match = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(part);
    const [first, last] = match ? [Number(match[1]), Number(match[2] ?? match[1])] : [0, -1];
    if (last < first || last - first + numbers.length >= MOST_SELECTED) return undefined;
    for (let number = first; number <= last; number += 1) numbers.push(number);
  }
  return numbers;
}

function readWindow(text) {
  const window = text.split(",").map(Number);
  const sound = window.length === 4 && window.every((value) => value > 0 && Number.isFinite(value));
  return sound && window[0] < window[1] && window[2] < window[3] ? window : undefined;
}

function readStretch(text) {
  const [, first, last] = /^(\d{1,6})-(\d{1,6})$/.exec(text) ?? [];
  return first && Number(first) <= Number(last) ? [Number(first), Number(last)] : undefined;
}

function writeFactors(factors) {
  return Object.entries(factors).map(([name, factor]) => `${item(name)}:${Number(factor.toPrecision(FACTOR_DIGITS))}`).join(",");
}

function readFactors(text) {
  const factors = {};
  for (const part of text === "" ? [] : text.split(",")) {
    const [name, number, ...rest] = part.split(":");
    const [key, factor] = [unescaped(name), Number(number)];
    if (rest.length || !RESOURCE.test(key ?? "") || !(factor >= LEAST_FACTOR && factor <= MOST_FACTOR)) return undefined;
    factors[key] = factor;
  }
  return factors;
}

/** Holds the state: `get()`, `set(patch)`, and `on(listener)`, which is called with the state and the names of what changed. */
export function store(initial = DEFAULTS) {
  let state = Object.freeze({ ...DEFAULTS, ...initial });
  const listeners = new Set();
  return {
    get: () => state,
    set(patch) {
      const changed = Object.keys(patch).filter((name) => !same(patch[name], state[name]));
      if (!changed.length) return;
      state = Object.freeze({ ...state, ...patch });
      for (const listener of [...listeners]) listener(state, changed);
    },
    on(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}
