/**
 * Two reports side by side, op by op, by the rule of `comparison.py`: ops are matched by module and name, then by name alone, and what is
 * left by category, compared as one. An op's time here is its self time where the report has one, so that changes sum to the total.
 */

import { compareText, heaviest, total } from "#page/groups.js";
import { show } from "#page/units.js";

/** @typedef {[number[], number[], string]} Pair  ids before, ids after, and how they were matched */

/**
 * @typedef {Object} Side  Some ops of one report, summed.
 * @property {number[]} ops
 * @property {string[]} names
 * @property {number} count
 * @property {number|null} time_s
 * @property {number|null} floor_s
 * @property {number|null} efficiency
 * @property {string|null} bound
 */

/**
 * @typedef {Object} Difference
 * @property {"pair"} kind
 * @property {number} id
 * @property {string} name
 * @property {string} module
 * @property {string} category
 * @property {string} matched  "module and name", "name", "category", "new" or "vanished"
 * @property {Side} before
 * @property {Side} after
 * @property {number|null} before_s
 * @property {number|null} after_s
 * @property {number|null} before_efficiency
 * @property {number|null} after_efficiency
 * @property {string|null} before_bound
 * @property {string|null} after_bound
 * @property {number|null} change_s
 * @property {number|null} share  of the whole change
 * @property {number|null} speedup
 * @property {number[]} ops  the ids after, for selecting them
 */

/**
 * The ops of two reports in pairs, the surest first.
 * @param {Object} before
 * @param {Object} after
 * @returns {Pair[]}
 */
export function pair(before, after) {
  let [mine, theirs] = [before.ops, after.ops];
  const pairs = [];
  const passes = [["module and name", (op) => JSON.stringify([op.module ?? "", op.name])], ["name", (op) => op.name]];
  for (const [how, key] of passes) {
    const found = paired(mine, theirs, key);
    pairs.push(...found.map(([one, other]) => [[one.id], [other.id], how]));
    mine = without(mine, found.map(([one]) => one));
    theirs = without(theirs, found.map(([, other]) => other));
  }
  const left = new Set(theirs.map((op) => op.category));
  for (const category of [...new Set(mine.map((op) => op.category))].filter((one) => one && left.has(one)).sort()) {
    const [ours, yours] = [mine, theirs].map((ops) => ops.filter((op) => op.category === category));
    pairs.push([ours.map((op) => op.id), yours.map((op) => op.id), "category"]);
    [mine, theirs] = [without(mine, ours), without(theirs, yours)];
  }
  return [...pairs, ...mine.map((op) => [[op.id], [], "vanished"]), ...theirs.map((op) => [[], [op.id], "new"])];
}

/**
 * Pairs as they were worked out before (a `Comparison` of `comparison.py` as JSON), or else worked out here.
 * @param {Object} before
 * @param {Object} after
 * @param {{deltas: {before: {ops: number[]}, after: {ops: number[]}, matched: string}[]}|null} [comparison]
 * @returns {Pair[]}
 */
export function pairsOf(before, after, comparison = null) {
  return comparison?.deltas?.map((delta) => [delta.before.ops, delta.after.ops, delta.matched]) ?? pair(before, after);
}

/** Ops with equal keys, one to one, in order of rank where several share a key. */
function paired(before, after, key) {
  const waiting = new Map();
  const byRank = (one, other) => one.rank - other.rank || one.id - other.id;
  for (const op of [...after].sort(byRank).reverse()) {
    if (!waiting.has(key(op))) waiting.set(key(op), []);
    waiting.get(key(op)).push(op);
  }
  const pairs = [];
  for (const op of [...before].sort(byRank)) {
    const partner = waiting.get(key(op))?.pop();
    if (partner) pairs.push([op, partner]);
  }
  return pairs;
}

function without(ops, gone) {
  const used = new Set(gone.map((op) => op.id));
  return ops.filter((op) => !used.has(op.id));
}

/**
 * What became of every op, the largest change first.
 * @param {Object} before
 * @param {Object} after
 * @param {Object|null} [comparison]  as `pairsOf` takes it
 * @returns {Difference[]}
 */
export function differences(before, after, comparison = null) {
  const [mine, theirs] = [before, after].map((report) => new Map(report.ops.map((op) => [op.id, op])));
  const rows = pairsOf(before, after, comparison).map(([ours, yours, how]) =>
    difference(how, ours.map((id) => mine.get(id)).filter(Boolean), yours.map((id) => theirs.get(id)).filter(Boolean)),
  );
  const change = total(rows.map((row) => row.change_s));
  for (const row of rows) row.share = change && row.change_s !== null ? row.change_s / change : null;
  rows.sort((one, other) => weight(other) - weight(one) || compareText(one.module, other.module) || compareText(one.name, other.name));
  rows.forEach((row, index) => (row.id = index));
  return rows;
}

function difference(how, before, after) {
  const [mine, theirs] = [side(before), side(after)];
  const shown = after[0] ?? before[0];
  return {
    kind: "pair",
    id: 0,
    name: how === "category" ? shown.category : shown.name,
    module: how === "category" ? "" : shown.module ?? "",
    category: shown.category ?? "",
    matched: how,
    before: mine,
    after: theirs,
    before_s: before.length ? mine.time_s : null,
    after_s: after.length ? theirs.time_s : null,
    before_efficiency: mine.efficiency,
    after_efficiency: theirs.efficiency,
    before_bound: mine.bound,
    after_bound: theirs.bound,
    change_s: mine.time_s === null || theirs.time_s === null ? null : theirs.time_s - mine.time_s,
    share: null,
    speedup: before.length && mine.time_s !== null && theirs.time_s ? mine.time_s / theirs.time_s : null,
    ops: theirs.ops,
  };
}

function seconds(op) {
  return op.self_time_s ?? op.time_s ?? null;
}

function side(ops) {
  const times = ops.map(seconds);
  return {
    ops: ops.map((op) => op.id),
    names: ops.map((op) => op.name),
    count: ops.reduce((sum, op) => sum + op.count, 0),
    time_s: times.includes(null) ? null : times.reduce((sum, time) => sum + time, 0),
    floor_s: total(ops.map((op) => op.floor_s)),
    efficiency: ops.length === 1 ? ops[0].efficiency : efficiency(ops),
    bound: boundOf(ops),
  };
}

/** Summed floors over summed times of the ops that were timed; those that nobody could price count with no floor. */
function efficiency(ops) {
  const timed = ops.filter((op) => op.time_s);
  const [time, floor] = [total(timed.map((op) => op.time_s)), total(timed.map((op) => op.floor_s))];
  return time && floor ? floor / time : null;
}

function boundOf(ops) {
  const held = new Map();
  for (const op of ops) if (op.bound !== null) held.set(op.bound, (held.get(op.bound) ?? 0) + (seconds(op) ?? 0));
  return heaviest(new Map([...held].sort(([one], [other]) => compareText(one, other))));
}

/** By how much a row changed: its time, or its floor where nothing was timed. */
function weight({ change_s, before, after }) {
  return Math.abs(change_s ?? (after.floor_s ?? 0) - (before.floor_s ?? 0));
}

/**
 * Both reports as a whole, and what differs about their machines.
 * @param {Object} before
 * @param {Object} after
 * @param {Object|null} [comparison]  as `pairsOf` takes it
 * @returns {{before: Object, after: Object, change_s: number|null, speedup: number|null, notes: string[]}}
 */
export function summary(before, after, comparison = null) {
  const [mine, theirs] = [whole(before), whole(after)];
  return {
    before: mine,
    after: theirs,
    change_s: total(differences(before, after, comparison).map((row) => row.change_s)),
    speedup: mine.time_s !== null && theirs.time_s ? mine.time_s / theirs.time_s : null,
    notes: machineNotes(before.machine, after.machine),
  };
}

function whole(report) {
  const [time_s, floor_s] = [total(report.ops.map(seconds)), total(report.ops.map((op) => op.floor_s))];
  const point = report.points.find((one) => one.scope === "total" && (one.infeed_outfeed ?? true));
  return {
    time_s,
    floor_s,
    efficiency: floor_s && time_s ? floor_s / time_s : null,
    wall_s: report.coverage?.wall_s ?? point?.time_s ?? null,
    ops: report.ops.length,
  };
}

function machineNotes(before, after) {
  const notes = before.name === after.name ? [] : [`the machine changed from ${before.name} to ${after.name}`];
  const [mine, theirs] = [before, after].map((machine) => new Map(machine.ceilings.map((one) => [one.resource, one])));
  for (const name of [...new Set([...mine.keys(), ...theirs.keys()])].sort()) {
    const [old, now] = [mine.get(name), theirs.get(name)].map((one) => one && show(one.rate, one.per));
    if (old && now && mine.get(name).rate !== theirs.get(name).rate) notes.push(`${name}: ${old} before, ${now} after`);
    else if (old && !now) notes.push(`${name}: ${old} before, not rated after`);
    else if (now && !old) notes.push(`${name}: not rated before, ${now} after`);
  }
  return notes;
}
