/**
 * The filter language of the table and the chart: that of `op_filter.py`, here because it is read while it is typed. Tests hold both to the
 * same answers. Only the page has the fields `step`, `device` and `unknown`, and `bytes` and the like over the level of the x axis.
 *
 *     expression = any { "or" any }        any = one { ["and"] one }        one = ["not" | "-"] ( "(" expression ")" | condition )
 *     condition  = field operator value | /regular expression/flags | "quoted words" | pattern with * | word
 *
 * Words stand for a part of the name, the label or the scope. A broken filter lets everything pass and says what is wrong with it and where.
 */

import { VOCABULARY } from "#page/vocabulary.js";

// numbers: field -> [dimension, its total, its key]; texts: field -> its key; page_fields: those that only the page has; examples: how a quantity is written, by dimension
const { numbers: NUMBERS, texts, page_fields: PAGE_FIELDS, aliases: ALIASES, deepest: DEEPEST, examples: EXAMPLES } = VOCABULARY.filter;
// The key of a row that holds a field, or of the totals.
const KEYS = {
  ...Object.fromEntries(Object.entries(NUMBERS).map(([name, [, , key]]) => [name, key])), ...texts, unknown: "unknown", step: "steps", device: "devices",
};
const TOTALS = { self: "weight", minimum: "floor_s", lost: "lost_s" };
const TEXTS = new Set([...Object.keys(texts), "unknown"]);
const LISTS = new Set(["step", "device"]);
const FIELDS = [...Object.keys(NUMBERS), ...Object.keys(texts)];
const NONE = "none"; // what stands for no value: bound=none

const heldIn = (row, name) => (name === "level" ? Object.keys(row.moved) : row[KEYS[name]]);

/** Examples of the language, [example, meaning]. */
export const HELP = VOCABULARY.filter.help;

const QUANTITIES = new Map(Object.entries(VOCABULARY.quantities));
const PREFIXES = new Map(Object.entries(VOCABULARY.prefixes));
const NUMBER = /^\s*([+-]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*(\S*)\s*$/;

/** A quantity of 0 or more that a person wrote, in base units; its dimension is "" for a bare number or prefix ("1G"). `null` when it is none. */
export function read(text) {
  const [, digits, unit] = NUMBER.exec(text) ?? [];
  const [dimension, many, of] = PREFIXES.has(unit) ? ["", PREFIXES.get(unit), 1] : QUANTITIES.get(unit) ?? [];
  const value = (Number(digits?.replace(/[_,]/g, "")) * many) / of;
  return Number.isFinite(value) && value >= 0 ? { value, dimension } : null;
}

const QUOTED = /"(?:[^"\\]|\\.)*"?/.source;
const REGEX = /\/(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\]?)*(?:\/[a-z]*)?/.source; // a slash inside a class of characters does not end it
const WORD = /[^\s()"]+/.source;
const CONDITION = /(?<field>[a-z_]+)(?<operator><=|>=|!=|[<>=:])/.source;
const SIGNS = /(?<open>\()|(?<close>\))|(?<minus>-(?=[^\s)]))/.source;
const TOKEN = new RegExp(`\\s+|${SIGNS}|(?<quoted>${QUOTED})|(?<regex>${REGEX})|${CONDITION}|(?<word>${WORD})`, "iy");
const VALUE = new RegExp(`${QUOTED}|${REGEX}|${WORD}`, "iy");

class Wrong extends Error {
  constructor(message, at) {
    super(message);
    this.at = at;
  }
}

/** A filter from what a person typed; never throws. */
export function parse(text) {
  try {
    const tokens = tokenize(String(text ?? ""));
    const test = tokens.length ? joined(tokens, 0) : () => true;
    if (tokens.length) throw new Wrong("unmatched closing parenthesis", tokens[0].at);
    return { test, problem: null };
  } catch (error) {
    if (!(error instanceof Wrong)) throw error;
    return { test: () => true, problem: { message: error.message, at: error.at } };
  }
}

function tokenize(text) {
  const tokens = [];
  let at = 0;
  while (at < text.length) {
    TOKEN.lastIndex = at;
    const match = TOKEN.exec(text);
    if (!match) throw new Wrong(`unexpected '${text[at]}'`, at);
    const found = match.groups;
    const start = at;
    at = TOKEN.lastIndex;
    if (found.field !== undefined) {
      VALUE.lastIndex = at;
      const value = VALUE.exec(text);
      if (!value) throw new Wrong(`${found.field}${found.operator} needs a value`, at);
      tokens.push({ kind: "condition", at: start, field: found.field, operator: found.operator, value: value[0], valueAt: at });
      at = VALUE.lastIndex;
    } else if (found.word !== undefined) {
      const lower = found.word.toLowerCase();
      const kind = ["and", "or", "not"].includes(lower) ? lower : "word";
      tokens.push({ kind, at: start, text: found.word });
    } else {
      const kind = ["open", "close", "minus", "quoted", "regex"].find((each) => found[each] !== undefined);
      if (kind) tokens.push({ kind, at: start, text: match[0] });
    }
  }
  return tokens;
}

/** Tests joined by "or", each made of tests joined by "and", which may be left out. */
function joined(tokens, depth, word = "or") {
  const isOr = word === "or";
  const ends = isOr ? ["close"] : ["close", "or"];
  const tests = [];
  while (!tests.length || (tokens.length && !ends.includes(tokens[0].kind))) {
    if (tests.length && tokens[0].kind === word) {
      const { at } = tokens.shift();
      if (!tokens.length) throw new Wrong(`nothing after "${word}"`, at);
    }
    tests.push(isOr ? joined(tokens, depth, "and") : negation(tokens, depth));
  }
  if (tests.length === 1) return tests[0];
  return isOr ? (row, totals) => tests.some((test) => test(row, totals)) : (row, totals) => tests.every((test) => test(row, totals));
}

function negation(tokens, depth) {
  const token = tokens.shift();
  if (depth > DEEPEST) throw new Wrong("nested too deeply", token.at);
  if (token.kind === "not" || token.kind === "minus") {
    if (!tokens.length) throw new Wrong(`nothing after "${token.text}"`, token.at);
    const test = negation(tokens, depth + 1);
    return (row, totals) => !test(row, totals);
  }
  if (token.kind === "open") {
    if (!tokens.length) throw new Wrong("missing closing parenthesis", token.at);
    const test = joined(tokens, depth + 1);
    if (tokens.shift()?.kind !== "close") throw new Wrong("missing closing parenthesis", token.at);
    return test;
  }
  if (token.kind === "condition") return condition(token);
  if (token.kind === "word" || token.kind === "quoted" || token.kind === "regex") {
    if (token.kind === "word" && token.text.includes("*")) return scopeTest(token.text, token.at);
    const matches = textTest(token.text, token.at, false);
    return (row) => [row.name, row.label, row.scope].some((text) => matches(text ?? ""));
  }
  throw new Wrong(token.kind === "close" ? "unexpected closing parenthesis" : `nothing before "${token.text}"`, token.at);
}

/** The scope is what the pattern says, part by part, or below it. */
function scopeTest(pattern, at) {
  const parts = pattern.replace(/^\/+|\/+$/g, "").split("/").map((part) => compiled(`^${globbed(part)}$`, "i", pattern, at));
  return (row) => {
    const there = (row.scope ?? "").split("/");
    return there.some((_, start) => start + parts.length <= there.length && parts.every((part, place) => part.test(there[start + place])));
  };
}

/** A pattern with *, ? and [abc] or [!abc] as the source of a regular expression, as Python's `fnmatch` reads it. */
function globbed(pattern) {
  return pattern.replace(/\[(!?)(\]?[^\]]*)\]|\*|\?|[^]/g, (found, not, set) => {
    if (found === "*") return "[^]*";
    if (found === "?") return "[^]";
    return set ? `[${not && "^"}${set.replace(/[\\^\]]/g, "\\$&")}]` : found.replace(/[.+^${}()|[\]\\]/g, "\\$&");
  });
}

function condition({ field, operator, value, at, valueAt }) {
  const word = field.toLowerCase();
  const name = Object.hasOwn(ALIASES, word) ? ALIASES[word] : word;
  if (Object.hasOwn(NUMBERS, name)) return numberTest(name, operator, value, valueAt);
  if (LISTS.has(name)) return listTest(name, operator, value, valueAt);
  if (!TEXTS.has(name)) {
    throw new Wrong(`unknown field '${field}'; fields: ${FIELDS.join(", ")}; only on the page: ${PAGE_FIELDS.join(", ")}`, at);
  }
  if ("<>".includes(operator[0])) throw new Wrong(`${field} is text; compare it with : or =`, at + field.length);
  return fieldTest(name, operator, value, valueAt);
}

/** Whether a text field contains (:) or is (=) one of several words; lists of words match when one of them does. */
function fieldTest(name, operator, value, at) {
  const words = /^["/]/.test(value) ? [value] : value.split(",").filter(Boolean);
  if (!words.length) throw new Wrong("missing value", at);
  const tests = words.map((word) => textTest(word, at, operator !== ":"));
  const wantsNone = operator !== ":" && words.some((word) => word.toLowerCase() === NONE);
  const holds = (row) => {
    const held = heldIn(row, name);
    const values = Array.isArray(held) ? held : held === null || held === undefined || held === "" ? [] : [held];
    return values.length ? values.some((each) => tests.some((test) => test(String(each)))) : wantsNone;
  };
  return operator === "!=" ? (row) => !holds(row) : holds;
}

/** A test of a string: a regular expression between slashes, quoted words, or a plain word. */
function textTest(word, at, exact) {
  if (word.startsWith("/") && word.length > 1) {
    const end = word.lastIndexOf("/");
    if (end === 0) throw new Wrong("missing closing / of the regular expression", at);
    const pattern = compiled(word.slice(1, end), word.slice(end + 1), word, at);
    return (text) => pattern.test(text);
  }
  if (word.startsWith('"') && !/^"(?:[^"\\]|\\.)*"$/.test(word)) throw new Wrong("missing closing quote", at);
  const wanted = (word.startsWith('"') ? word.slice(1, -1).replace(/\\(.)/g, "$1") : word).toLowerCase();
  return exact ? (text) => text.toLowerCase() === wanted : (text) => text.toLowerCase().includes(wanted);
}

function compiled(source, flags, word, at) {
  const unknown = [...flags].filter((flag) => !/[imsu]/.test(flag)).sort();
  if (unknown.length) throw new Wrong(`a regular expression takes the flags i, m, s and u, not ${unknown[0]}`, at);
  try {
    return new RegExp(source, flags);
  } catch {
    throw new Wrong(`${word} is not a valid regular expression`, at);
  }
}

const COMPARE = {
  "<": (one, other) => one < other,
  "<=": (one, other) => one <= other,
  ">": (one, other) => one > other,
  ">=": (one, other) => one >= other,
  "=": (one, other) => one === other,
  ":": (one, other) => one === other,
  "!=": (one, other) => one !== other,
};

/** A comparison of a number; what is unknown fails it, except that it differs from any value. */
function numberTest(name, operator, value, at) {
  const [dimension, whole] = NUMBERS[name];
  const compare = COMPARE[operator];
  if (value.toLowerCase() === NONE && "=:!".includes(operator[0])) {
    return (row) => (heldIn(row, name) === null) === (operator !== "!=");
  }
  const { number, ofTotal } = numberOf(name, value, dimension, whole, at);
  return (row, totals) => {
    const held = heldIn(row, name);
    if (held === null || held === undefined) return operator === "!=";
    return compare(held, ofTotal ? number * (totals[TOTALS[whole] ?? whole] ?? 0) : number);
  };
}

function numberOf(name, value, dimension, whole, at) {
  const ofTotal = value.endsWith("%") && dimension !== "1";
  if (ofTotal && !whole) throw new Wrong(`${name} has no total to take a percentage of`, at);
  const wanted = ofTotal ? "1" : dimension;
  const found = read(value);
  if (!found || (found.dimension !== "" && found.dimension !== (wanted || "1"))) throw new Wrong(notAQuantity(value, wanted), at);
  return { number: found.value, ofTotal };
}

function notAQuantity(text, dimension) {
  if (!dimension) return `'${text}' is not a number`;
  return `'${text}' is not a ${dimension === "1" ? "number" : `quantity in ${dimension}`}; write it like '${EXAMPLES[dimension]}'`;
}

/** Whether an op ran in one of these steps or on one of these devices. */
function listTest(name, operator, value, at) {
  const wanted = value.split(",").map(Number);
  if (wanted.some((number) => !Number.isInteger(number))) throw new Wrong(`a ${name} is a whole number`, at);
  const compare = COMPARE[operator === "!=" ? "=" : operator];
  const holds = (row) => (heldIn(row, name) ?? []).some((held) => wanted.some((number) => compare(held, number)));
  return operator === "!=" ? (row) => !holds(row) : holds;
}
