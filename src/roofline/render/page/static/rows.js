/**
 * Rows of the table: one an op, from a report, a choice of steps and devices, and a machine.
 *
 * Keys are those of the report's JSON where it has the figure, in base units; `null` is unknown.
 */

import { compareText, heaviest, total } from "#page/groups.js";
import { bytesOf, costOf, flopsOf, leastOf, machine as machineFrom, place, resource, title } from "#page/law.js";

export { group, GROUPINGS, stem } from "#page/groups.js";

/**
 * @typedef {Object} Row  One op, or a group of ops, or a point of the program, held against a machine.
 * @property {"op"|"group"|"point"} kind
 * @property {number|string} id  of the op; a group's is its key
 * @property {number[]} ops  the ids of the ops it stands for
 * @property {number|null} rank
 * @property {string} name
 * @property {string} category
 * @property {string} module
 * @property {string} scope
 * @property {string} location
 * @property {string} phase
 * @property {number} count
 * @property {number|null} kernels
 * @property {number|null} time_s
 * @property {number|null} self_time_s
 * @property {number} weight  the seconds that its size shows: self time, else time, else the floor
 * @property {number|null} share  of the weights of all rows selected
 * @property {number|null} flops
 * @property {number|null} rate  FLOP/s measured
 * @property {number|null} attainable  FLOP/s on the roof
 * @property {string} level  over which bytes, bandwidth, intensity and ridge are counted
 * @property {number|null} bytes
 * @property {number|null} bandwidth  B/s measured
 * @property {number|null} intensity
 * @property {number|null} ridge
 * @property {number|null} main_ridge  over main memory, whatever the level
 * @property {string|null} unit  that does the arithmetic which takes the most time
 * @property {string|null} dtype  of that arithmetic
 * @property {string|null} compute  the rated resource whose roof that arithmetic runs under
 * @property {number|null} floor_s
 * @property {number|null} serial_s
 * @property {number|null} expected_s
 * @property {number|null} lost_s  time minus floor: what a perfect kernel would save
 * @property {string|null} bound
 * @property {number|null} efficiency
 * @property {Record<string, number>} times
 * @property {Record<string, number>} utilization
 * @property {Record<string, number|null>} work
 * @property {Record<string, number|null>} moved  bytes by resource
 * @property {Record<string, number|null>} hops
 * @property {string[]} roofs
 * @property {string[]} unrated
 * @property {string[]} unknown
 * @property {boolean} feeds  whether it only brings data in or out
 * @property {number[]} steps  in which it ran
 * @property {number[]} devices  on which it ran
 * @property {string[]} notes
 * @property {Record<string, string>} provenance
 * @property {Object|null} counters
 */

/**
 * @typedef {Object} Choice  What part of a report to show; `null` or absent is all of it.
 * @property {number|null} [step]
 * @property {number|null} [device]
 * @property {string|null} [host]
 * @property {boolean} [feeds]  whether to include infeed and outfeed
 * @property {string} [level]  a memory level or link, or "bound": each op over the level where it spends the most time
 */

/** @typedef {import("#page/law.js").Machine} Machine */

export const OWN_LEVEL = "bound"; // the x axis on which every op stands over the level that binds it

/** @type {WeakMap<object, Object>} */
const indexed = new WeakMap();

/** A report's shares by op, its own machine and what never changes about its ops, worked out once; and the rows selected last. */
function indexOf(report) {
  let found = indexed.get(report);
  if (!found) {
    const own = machineFrom(report.machine);
    const [steps, devices] = [byOp(report.by_step, "step"), byOp(report.by_device, "device")];
    found = { own, steps, devices, facts: new Map(report.ops.map((op) => [op, factsOf(op, own, steps, devices)])), last: null };
    indexed.set(report, found);
  }
  return found;
}

function factsOf(op, own, steps, devices) {
  const cost = costOf(op);
  return {
    cost,
    least: leastOf(op, own),
    unknown: Object.keys(cost).filter((name) => cost[name] === null).sort(),
    feeds: isFeed(op),
    ops: [op.id],
    steps: [...(steps.get(op.id)?.keys() ?? [])],
    devices: [...(devices.get(op.id)?.keys() ?? [])],
  };
}

function byOp(shares, key) {
  const all = new Map();
  for (const share of shares ?? []) {
    if (!all.has(share.op)) all.set(share.op, new Map());
    const mine = all.get(share.op);
    const { count, time_s } = mine.get(share[key]) ?? { count: 0, time_s: 0 };
    mine.set(share[key], { count: count + share.count, time_s: time_s + share.time_s });
  }
  return all;
}

/**
 * The machine that a report was made with.
 * @param {Object} report
 * @returns {Machine}
 */
export function ownMachine(report) {
  return indexOf(report).own;
}

/**
 * The memory levels and links that the ops' bytes cross and the machine rates, main memory first.
 * @param {Object} report
 * @param {Machine} [machine]
 * @returns {{key: string, title: string}[]}
 */
export function levels(report, machine = ownMachine(report)) {
  const used = new Set(report.ops.flatMap((op) => Object.keys(op.bytes ?? {})));
  const rated = machine.ceilings.map((one) => one.resource).filter((name) => resource(name).measure === "B");
  const keys = rated.filter((name) => name === "hbm" || used.has(name) || [...used].some((each) => each.startsWith(`${name}.`)));
  keys.sort((one, other) => (other === "hbm") - (one === "hbm"));
  return keys.map((key) => ({ key, title: title(key) }));
}

/**
 * What the choosers of the page offer.
 * @param {Object} report
 * @returns {{steps: number[], stepTitles: Record<number, string>, devices: {id: number, name: string, host: string}[], hosts: string[],
 *   categories: string[], bounds: string[], dtypes: string[], modules: string[], hasFeeds: boolean, scopeDepth: number}}
 */
export function choices(report) {
  const of = (key) => [...new Set(report.ops.map((op) => op[key]).filter(Boolean))].sort();
  const devices = report.input.devices ?? [];
  return {
    steps: [...new Set((report.by_step ?? []).map((share) => share.step))].sort((one, other) => one - other),
    stepTitles: Object.fromEntries((report.steps ?? []).map(({ step, name }) => [step, `${step} ${name ?? ""}`.trim()])),
    devices,
    hosts: [...new Set(devices.map((device) => device.host).filter(Boolean))].sort(),
    categories: of("category"),
    bounds: of("bound"),
    dtypes: of("dtype"),
    modules: of("module"),
    hasFeeds: report.ops.some(isFeed),
    scopeDepth: report.ops.reduce((deepest, op) => Math.max(deepest, op.scope ? op.scope.split("/").length : 0), 0),
  };
}

/** Whether an op only brings data in or out. */
function isFeed(op) {
  return /infeed|outfeed/.test(op.category ?? "");
}

/**
 * The ops of a report as rows: the part that falls into the chosen step and on the chosen devices, held against a machine.
 *
 * Work is shared out by executions and time as it was measured. A step on one device is the product of both shares, which is exact
 * where every step does the same on every device.
 * @param {Object} report
 * @param {Choice} [choice]
 * @param {Machine|null} [machine]  the report's own when absent
 * @returns {Row[]}
 */
export function select(report, { step = null, device = null, host = null, feeds = true, level = "hbm" } = {}, machine = null) {
  const index = indexOf(report);
  const held = machine ?? index.own;
  const key = JSON.stringify([step, device, host, feeds, level]);
  // A filter is typed letter by letter over one selection.
  if (index.last?.key === key && index.last.machine === held) return index.last.rows;
  const chosen = device === null && host === null ? null : devicesOf(report, device, host);
  const rows = [];
  for (const op of report.ops) {
    if (!feeds && index.facts.get(op).feeds) continue;
    const part = partOf(index, op, step, chosen);
    if (part) rows.push(opRow(index, op, part, held, level));
  }
  index.last = { key, machine: held, rows: shared(rows) };
  return rows;
}

function devicesOf(report, device, host) {
  const wanted = (one) => (device === null || one.id === device) && (host === null || one.host === host);
  return (report.input.devices ?? []).filter(wanted).map((one) => one.id);
}

const ALL = Object.freeze({ fraction: 1, time: 1 });

/** The part of an op that a choice leaves: the fraction of its executions and of its time, or `null` when nothing is left. */
function partOf(index, op, step, chosen) {
  if (step === null && chosen === null) return ALL;
  const parts = [];
  if (step !== null) parts.push(index.steps.get(op.id)?.get(step));
  if (chosen !== null) {
    const mine = chosen.map((id) => index.devices.get(op.id)?.get(id)).filter(Boolean);
    parts.push(mine.length ? mine.reduce((sum, one) => ({ count: sum.count + one.count, time_s: sum.time_s + one.time_s })) : undefined);
  }
  if (!parts.every((part) => part && part.count > 0)) return null;
  return {
    fraction: parts.reduce((product, part) => product * (part.count / op.count), 1),
    time: op.time_s ? parts.reduce((product, part) => product * (part.time_s / op.time_s), 1) : 1,
  };
}

function opRow(index, op, { fraction, time }, machine, chosen) {
  const facts = index.facts.get(op);
  const asReported = machine === index.own;
  const time_s = scale(op.time_s, time);
  const self_time_s = scale(op.self_time_s, time);
  const count = op.count * fraction;
  const kernels = scale(op.kernels, fraction);
  const found = asReported
    ? reduced(op, fraction, time_s)
    : place(portion(facts.cost, fraction), machine, { time_s, launches: kernels || count, least: portion(facts.least, fraction) });
  const [work, moved] = [portion(op.work, fraction), portion(op.bytes, fraction)];
  const arithmetic = asReported ? { unit: op.unit, kind: op.dtype } : found.compute ? resource(found.compute) : NO_ARITHMETIC;
  const asked = arithmetic.kind ? `${arithmetic.unit}/${arithmetic.kind}` : arithmetic.unit;
  const level = chosen === OWN_LEVEL ? slowestLevel(found.times) : chosen;
  const [flops, bytes] = [flopsOf(work), bytesOf(moved, level)];
  return {
    kind: "op",
    id: op.id,
    ops: facts.ops,
    rank: op.rank,
    name: op.name,
    category: op.category ?? "",
    module: op.module ?? "",
    scope: op.scope ?? "",
    location: op.location ?? "",
    phase: op.phase ?? "",
    count,
    kernels,
    time_s,
    self_time_s,
    weight: self_time_s || time_s || found.floor_s || 0,
    share: null,
    flops,
    rate: flops !== null && time_s ? flops / time_s : null,
    attainable: found.attainable ?? null,
    level,
    bytes,
    bandwidth: bytes !== null && time_s ? bytes / time_s : null,
    intensity: flops === null || !bytes ? null : flops / bytes,
    ridge: asked === null ? null : machine.ridge(asked, level),
    main_ridge: asked === null ? null : machine.ridge(asked, "hbm"),
    unit: arithmetic.unit,
    dtype: arithmetic.kind,
    compute: computeOf(op.work, machine),
    floor_s: found.floor_s,
    serial_s: found.serial_s,
    // Corrections for overlap and launches are the report's; on another machine only a report without them has the figure.
    expected_s: asReported ? scale(op.expected_s, fraction) : op.expected_s === op.floor_s ? found.floor_s : null,
    lost_s: found.efficiency === null ? null : time_s - found.floor_s,
    bound: found.bound,
    efficiency: found.efficiency,
    times: found.times ?? NOTHING,
    utilization: found.utilization ?? NOTHING,
    work,
    moved,
    hops: portion(op.hops ?? NOTHING, fraction),
    roofs: found.roofs ?? NONE,
    unrated: found.unrated ?? NONE,
    unknown: facts.unknown,
    feeds: facts.feeds,
    steps: facts.steps,
    devices: facts.devices,
    notes: op.notes ?? NONE,
    provenance: op.provenance ?? NOTHING,
    counters: op.counters ?? null,
  };
}

const [NOTHING, NONE, NO_ARITHMETIC] = [Object.freeze({}), Object.freeze([]), Object.freeze({ unit: null, kind: null })];

/** What the report itself says of some executions of an op, as `selection.narrow` does: what binds an op stays what binds it in all. */
function reduced(op, fraction, time_s) {
  if (fraction === 1 && time_s === (op.time_s ?? null)) return op;
  const [floor_s, spent] = [scale(op.floor_s, fraction), portion(op.times ?? {}, fraction)];
  return {
    floor_s,
    serial_s: scale(op.serial_s, fraction),
    bound: op.bound,
    efficiency: op.efficiency !== null && floor_s !== null && time_s ? floor_s / time_s : null,
    attainable: op.attainable,
    times: spent,
    utilization: time_s ? Object.fromEntries(Object.entries(spent).map(([unit, seconds]) => [unit, seconds / time_s])) : {},
    roofs: op.roofs,
    unrated: op.unrated,
  };
}

function portion(amounts, fraction) {
  if (fraction === 1) return amounts;
  const part = {};
  for (const name of Object.keys(amounts)) part[name] = scale(amounts[name], fraction);
  return part;
}

function scale(value, fraction) {
  return value === null || value === undefined ? null : value * fraction;
}

/** The rated resource whose roof an op's arithmetic runs under: where it takes the most time. */
function computeOf(work, machine) {
  const spent = new Map();
  for (const name of Object.keys(work)) {
    const ceiling = work[name] && resource(name).isArithmetic ? machine.resolve(name) : null;
    if (ceiling) spent.set(ceiling.resource, (spent.get(ceiling.resource) ?? 0) + work[name] / ceiling.rate);
  }
  return heaviest(spent);
}

/** The memory level or link with the longest time; main memory when there is none. */
function slowestLevel(spent = NOTHING) {
  return heaviest(new Map(Object.entries(spent).filter(([unit]) => resource(unit).measure === "B"))) ?? "hbm";
}

function shared(rows) {
  const whole = rows.reduce((sum, row) => sum + row.weight, 0);
  for (const row of rows) row.share = whole ? row.weight / whole : null;
  return rows;
}

/**
 * A stably sorted copy; what is unknown comes last either way.
 * @template T
 * @param {T[]} rows
 * @param {string} key
 * @param {boolean} [descending]
 * @returns {T[]}
 */
export function sort(rows, key, descending = true) {
  const sign = descending ? -1 : 1;
  const absent = (value) => value === null || value === undefined || value === "";
  return [...rows].sort((a, b) => {
    const [one, other] = [a[key], b[key]];
    if (absent(one) || absent(other)) return absent(one) - absent(other);
    return sign * (typeof one === "number" && typeof other === "number" ? one - other : compareText(String(one), String(other)));
  });
}

/**
 * Rows summed: seconds, work and how many; `lost_s` leaves out rows above their roof.
 * @param {Row[]} rows
 * @returns {{rows: number, ops: number, count: number, time_s: number|null, self_time_s: number|null, weight: number, priced_s: number,
 *   floor_s: number|null, lost_s: number|null, flops: number|null, bytes: number|null, efficiency: number|null}}
 */
export function totals(rows) {
  const sum = (value) => total(rows.map(value));
  const time_s = sum((row) => row.time_s);
  const floors = rows.reduce((all, row) => all + (row.time_s ? row.floor_s ?? 0 : 0), 0);
  return {
    rows: rows.length,
    ops: rows.reduce((all, row) => all + row.ops.length, 0),
    count: sum((row) => row.count) ?? 0,
    time_s,
    self_time_s: sum((row) => row.self_time_s ?? row.time_s),
    weight: sum((row) => row.weight) ?? 0,
    priced_s: rows.reduce((all, row) => all + (row.efficiency === null ? 0 : row.time_s ?? 0), 0),
    floor_s: sum((row) => row.floor_s),
    lost_s: sum((row) => (row.lost_s === null ? null : Math.max(0, row.lost_s))),
    flops: sum((row) => row.flops),
    bytes: sum((row) => row.bytes),
    efficiency: time_s && floors ? floors / time_s : null,
  };
}
