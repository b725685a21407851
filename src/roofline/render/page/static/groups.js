/** Rows summed by what they have in common, equal to `grouping.group`. */

import { add, heaviestKey } from "#page/law.js";
import { VOCABULARY } from "#page/vocabulary.js";

const NUMBERING = new RegExp(VOCABULARY.numbering);

/** What rows can be grouped by; the key "" means no grouping. */
export const GROUPINGS = [["", "no grouping"], ["fold", "equal work"], ...VOCABULARY.groupings].map(([key, title]) => ({ key, title }));

/** A name without the numbering that tells copies of one op apart. */
export function stem(name) {
  return name.replace(NUMBERING, "") || name;
}

/**
 * Rows with equal keys summed, longest first; `depth` keeps so many levels of a scope. No grouping gives the rows themselves. Equal work is
 * what the report folds; an op that is folded with no other stays as it is.
 */
export function group(rows, by, depth = null) {
  if (!by) return rows;
  const members = new Map();
  for (const row of rows) {
    const whole = by === "fold" ? row.fold ?? row : by === "name" ? stem(row.name) : row[by] ?? "";
    const key = by === "scope" && depth ? whole.split("/").slice(0, depth).join("/") : whole;
    if (!members.has(key)) members.set(key, []);
    members.get(key).push(row);
  }
  const groups = [...members].map(([key, mine]) => (key === mine[0] ? { ...key } : summed(by === "fold" ? key.label : key, by, mine)));
  const more = (field) => (one, other) => (other[field] ?? 0) - (one[field] ?? 0);
  groups.sort((one, other) => more("time_s")(one, other) || more("floor_s")(one, other) || compareText(one.name, other.name));
  groups.forEach((one, index) => (one.rank = index + 1));
  return groups;
}

const SUMS = ["count", "kernels", "time_s", "step_s", "weight", "share", "floor_s", "serial_s", "lost_s", "predicted_s", "excess_s", "dma_stall_s"];
const COMMON = ["category", "module", "scope", "location", "phase", "unit", "dtype", "ridge"];

function summed(key, by, rows) {
  const sum = (value) => total(rows.map(value));
  const sums = Object.fromEntries(SUMS.map((field) => [field, sum((row) => row[field])]));
  const common = Object.fromEntries(COMMON.map((field) => [field, rows.every((row) => row[field] === rows[0][field]) ? rows[0][field] : null]));
  const { time_s, floor_s } = sums;
  const bytes = rows.some((row) => row.bytes === null) ? null : sum((row) => row.bytes);
  const known = sum((row) => row.flops);
  const flops = known ?? 0;
  const timed = sum((row) => (row.time_s ? row.floor_s : null));
  const times = addedUp(rows.map((row) => row.times));
  return {
    ...sums,
    ...common,
    kind: "group",
    id: by === "fold" ? `fold:${rows[0].id}` : `${by}:${key}`,
    ops: rows.flatMap((row) => row.ops),
    name: key,
    label: key,
    ...(by === "scope" ? { scope: key } : {}),
    self_time_s: time_s === null ? null : sum((row) => row.self_time_s ?? row.time_s),
    priced_s: sum((row) => (row.efficiency === null ? 0 : row.time_s)) ?? 0,
    peak: heaviestBy(rows, "peak", (row) => row.weight),
    // What binds for the largest part of the time, or of the minimum time where nothing was timed.
    bound: heaviestBy(rows, "bound", (row) => row.time_s || row.floor_s || 0),
    efficiency: time_s && timed ? timed / time_s : null,
    upper: rows.some((row) => row.upper),
    flops,
    attainable: flops && floor_s ? flops / floor_s : null,
    rate: time_s && known !== null ? flops / time_s : null,
    level: rows[0].level,
    bytes,
    bandwidth: bytes !== null && time_s ? bytes / time_s : null,
    intensity: bytes && known !== null ? flops / bytes : null,
    times,
    utilization: time_s ? Object.fromEntries(Object.entries(times).map(([unit, seconds]) => [unit, seconds / time_s])) : {},
    work: addedUp(rows.map((row) => row.work)),
    moved: addedUp(rows.map((row) => row.moved)),
    unrated: union(rows, "unrated"),
    unknown: union(rows, "unknown"),
    unneeded: addedUp(rows.map((row) => row.unneeded ?? {})),
    devices: union(rows, "devices"),
  };
}

/** The sum of what is known; `null` when nothing is. */
export function total(values) {
  let sum = null;
  for (const value of values) if (value !== null && value !== undefined) sum = (sum ?? 0) + value;
  return sum;
}

/** Amounts added by resource, the known parts. */
function addedUp(amounts) {
  const sums = new Map();
  for (const one of amounts) for (const [name, amount] of Object.entries(one)) if (amount !== null) add(sums, name, amount);
  return Object.fromEntries(sums);
}

function union(rows, field) {
  return [...new Set(rows.flatMap((row) => row[field] ?? []))].sort();
}

function heaviestBy(rows, field, weight) {
  const held = new Map();
  for (const row of rows) if (row[field]) add(held, row[field], weight(row));
  return heaviestKey(new Map([...held].sort(([one], [other]) => compareText(one, other))));
}

/** The order of texts by their letters' numbers, as Python has it. */
export function compareText(one, other) {
  return one < other ? -1 : one > other ? 1 : 0;
}
