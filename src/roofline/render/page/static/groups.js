/** Rows summed by what they have in common, equal to `selection.group`. */

/** @typedef {import("#page/rows.js").Row} Row */

const NUMBERING = /(?:[._](?:\d+|clone|remat\d*))+$/; // what compilers append to tell copies of one op apart

/**
 * A name without the numbering that tells copies of one op apart.
 * @param {string} name
 * @returns {string}
 */
export function stem(name) {
  return name.replace(NUMBERING, "") || name;
}

const KEYS = {
  category: (row) => row.category,
  scope: (row) => row.scope,
  location: (row) => row.location,
  phase: (row) => row.phase,
  dtype: (row) => row.dtype ?? "",
  name: (row) => stem(row.name),
  module: (row) => row.module,
  unit: (row) => row.unit ?? "",
  bound: (row) => row.bound ?? "",
};

/** What rows can be grouped by; the key "" is no grouping. */
export const GROUPINGS = Object.freeze([
  { key: "", title: "no grouping" },
  { key: "category", title: "category" },
  { key: "scope", title: "scope" },
  { key: "location", title: "source line" },
  { key: "name", title: "name without number" },
  { key: "module", title: "program" },
  { key: "phase", title: "phase" },
  { key: "dtype", title: "number format" },
  { key: "unit", title: "unit" },
  { key: "bound", title: "bound" },
]);

/**
 * Rows with equal keys summed, longest first; `depth` keeps so many levels of a scope. No such key gives the rows themselves.
 * @param {Row[]} rows
 * @param {string} by
 * @param {number|null} [depth]
 * @returns {Row[]}
 */
export function group(rows, by, depth = null) {
  if (!Object.hasOwn(KEYS, by)) return rows;
  const members = new Map();
  for (const row of rows) {
    const whole = KEYS[by](row);
    const key = by === "scope" && depth ? whole.split("/").slice(0, depth).join("/") : whole;
    if (!members.has(key)) members.set(key, []);
    members.get(key).push(row);
  }
  const groups = [...members].map(([key, mine]) => summed(key, by, mine));
  const more = (field) => (one, other) => (other[field] ?? 0) - (one[field] ?? 0);
  groups.sort((one, other) => more("time_s")(one, other) || more("floor_s")(one, other) || compareText(one.name, other.name));
  groups.forEach((one, index) => (one.rank = index + 1));
  return groups;
}

function summed(key, by, rows) {
  const sum = (field) => total(rows.map((row) => row[field]));
  const timed = rows.filter((row) => row.time_s);
  const time_s = sum("time_s");
  const floors = timed.reduce((all, row) => all + (row.floor_s ?? 0), 0);
  const work = addedUp(rows.map((row) => row.work));
  const moved = addedUp(rows.map((row) => row.moved));
  const bytes = rows.some((row) => row.bytes === null) ? null : total(rows.map((row) => row.bytes)) ?? 0;
  const flops = rows.reduce((all, row) => all + (row.flops ?? 0), 0);
  const floor_s = sum("floor_s");
  const spent = addedUp(rows.map((row) => row.times));
  const one = (field) => (rows.every((row) => row[field] === rows[0][field]) ? rows[0][field] : by === field ? key : null);
  return {
    kind: "group",
    id: `${by}:${key}`,
    ops: rows.flatMap((row) => row.ops),
    rank: null,
    name: key,
    category: one("category") ?? "",
    module: one("module") ?? "",
    scope: by === "scope" ? key : one("scope") ?? "",
    location: one("location") ?? "",
    phase: one("phase") ?? "",
    count: rows.reduce((all, row) => all + row.count, 0),
    kernels: sum("kernels"),
    time_s,
    self_time_s: time_s === null ? null : total(rows.map((row) => row.self_time_s ?? row.time_s)),
    priced_s: rows.reduce((all, row) => all + (row.efficiency === null ? 0 : row.time_s ?? 0), 0),
    weight: rows.reduce((all, row) => all + row.weight, 0),
    share: sum("share"),
    unit: one("unit"),
    dtype: one("dtype"),
    compute: computeOf(rows),
    floor_s,
    serial_s: sum("serial_s"),
    expected_s: sum("expected_s"),
    lost_s: sum("lost_s"),
    bound: boundOf(rows),
    efficiency: time_s && floors ? floors / time_s : null,
    flops,
    attainable: flops && floor_s ? flops / floor_s : null,
    rate: time_s ? flops / time_s : null,
    level: rows[0].level,
    bytes,
    bandwidth: bytes !== null && time_s ? bytes / time_s : null,
    intensity: bytes ? flops / bytes : null,
    ridge: one("ridge"),
    main_ridge: one("main_ridge"),
    times: spent,
    utilization: time_s ? Object.fromEntries(Object.entries(spent).map(([unit, seconds]) => [unit, seconds / time_s])) : {},
    work,
    moved,
    hops: addedUp(rows.map((row) => row.hops)),
    roofs: union(rows, "roofs"),
    unrated: union(rows, "unrated"),
    unknown: union(rows, "unknown"),
    feeds: rows.every((row) => row.feeds),
    steps: union(rows, "steps"),
    devices: union(rows, "devices"),
    notes: [],
    provenance: {},
    counters: null,
  };
}

/**
 * The sum of what is known; `null` when nothing is.
 * @param {(number|null|undefined)[]} values
 * @returns {number|null}
 */
export function total(values) {
  let sum = null;
  for (const value of values) if (value !== null && value !== undefined) sum = (sum ?? 0) + value;
  return sum;
}

/** Amounts added by resource, the known parts. */
function addedUp(amounts) {
  const sums = {};
  for (const one of amounts) {
    for (const [name, amount] of Object.entries(one)) if (amount !== null) sums[name] = (sums[name] ?? 0) + amount;
  }
  return sums;
}

function union(rows, field) {
  const all = new Set();
  for (const row of rows) for (const value of row[field]) all.add(value);
  return [...all].sort((one, other) => (typeof one === "number" ? one - other : compareText(one, other)));
}

/** The compute peak that most of the time ran under. */
function computeOf(rows) {
  const held = new Map();
  for (const { compute, weight } of rows) if (compute) held.set(compute, (held.get(compute) ?? 0) + weight);
  return heaviest(held);
}

/** What binds for the largest part of the time, or of the floor where nothing was timed. */
function boundOf(rows) {
  const held = new Map();
  for (const row of rows) {
    if (row.bound !== null) held.set(row.bound, (held.get(row.bound) ?? 0) + (row.time_s || row.floor_s || 0));
  }
  return heaviest(new Map([...held].sort(([one], [other]) => compareText(one, other))));
}

/**
 * The order of texts by their letters' numbers, as Python has it.
 * @param {string} one
 * @param {string} other
 * @returns {number}
 */
export function compareText(one, other) {
  return one < other ? -1 : one > other ? 1 : 0;
}

/**
 * The first key with the largest value; `null` when there is none.
 * @template K
 * @param {Map<K, number>} amounts
 * @returns {K|null}
 */
export function heaviest(amounts) {
  let best = null;
  for (const [key, amount] of amounts) if (best === null || amount > amounts.get(best)) best = key;
  return best;
}
