/**
 * Rows of the table, one per op, from a report, a choice of steps and devices, and a machine.
 *
 * A row has the fields of the report's op, in base units, `null` where unknown, for that part of the op on that machine. `bytes`, `bandwidth`,
 * `intensity` and `ridge` are over the `level` of the x axis; `moved` are the bytes by resource.
 */

import { compareText, total } from "#page/groups.js";
import { bytesOf, costOf, heaviestKey, machine as machineFrom, place, resource, title } from "#page/law.js";
import { VOCABULARY } from "#page/vocabulary.js";

export const OWN_LEVEL = "bound"; // the x axis on which every op stands over the level that binds it
const ROUNDING = 1e-9; // of a time, as `selection.ROUNDING`
const ALL = Object.freeze({ fraction: 1, time: 1 });
const ABSENT = { phase: "", label: "", needed: null, needed_s: null, unneeded: {}, attainable: null, expected_s: null, hops: {}, known: {}, times: {}, roofs: [], unrated: [], notes: [] };

const indexed = new WeakMap();

/** A report's ops with their shares by step and device, its own machine, and the rows selected last. */
function indexOf(report) {
  let found = indexed.get(report);
  if (!found) {
    const [steps, devices] = [byOp(report.by_step, "step"), byOp(report.by_device, "device")];
    const both = byStepAndDevice(report.by_step_and_device ?? []);
    const averaged = report.by_step?.length ? averagedSteps(report) : [];
    const ran = new Set((report.by_device ?? []).map((share) => share.device)).size || 1;
    const folds = new Map((report.folds ?? []).flatMap((fold) => fold.ops.map((id) => [id, fold])));
    const ops = report.ops.map((op) => ({
      fold: folds.get(op.id) ?? null,
      op: op.known && op.needed_s !== undefined ? op : { ...ABSENT, ...op }, // fields that reports of other writers need not have
      steps: steps.get(op.id) ?? new Map(),
      devices: devices.get(op.id) ?? new Map(),
      both: both && (both.get(op.id) ?? new Map()),
      step_s: op.time_s === null ? null : timeOfStep(steps.get(op.id) ?? new Map(), averaged, ran),
      feeds: isFeed(op),
    }));
    indexed.set(report, (found = { own: machineFrom(report.machine), ops, last: null }));
  }
  return found;
}

/** The keys of the steps that the average step is of, as `selection.averaged_steps` has them. */
export function averagedSteps({ steps = [] }) {
  const complete = steps.filter((one) => one.complete ?? true);
  const steady = complete.filter((one) => one.steady ?? true);
  const followed = steady.filter((one) => one.followed ?? true);
  return [followed, steady, complete].find((some) => some.length)?.map(({ step }) => step) ?? [];
}

/** The time of an op in one step on one device, as `selection.per_step`; `null` without steps. */
function timeOfStep(steps, averaged, devices) {
  return averaged.length ? total(averaged.map((step) => steps.get(step)?.time_s ?? 0)) / (averaged.length * devices) : null;
}

function byOp(shares, key) {
  const all = new Map();
  for (const { op, count, time_s, [key]: where } of shares ?? []) {
    if (!all.has(op)) all.set(op, new Map());
    const had = all.get(op).get(where) ?? { count: 0, time_s: 0 };
    all.get(op).set(where, { count: had.count + count, time_s: had.time_s + time_s });
  }
  return all;
}

/** The parts of each op by device and step, where a report has them. */
function byStepAndDevice(table) {
  if (!table.length) return null;
  const all = new Map();
  for (const { op, device, steps, counts, times_s } of table) {
    if (!all.has(op)) all.set(op, new Map());
    all.get(op).set(device, new Map(steps.map((step, place) => [step, { count: counts[place], time_s: times_s[place] }])));
  }
  return all;
}

/** The machine that a report was made with. */
export function ownMachine(report) {
  return indexOf(report).own;
}

/** Whether times measured on a report's own machine say something of this one: it is the same chip, if with other ceilings. */
export function timedOn(report, machine) {
  return machine.name === ownMachine(report).name;
}

/** The memory levels and links that the ops' bytes cross and the machine rates, main memory first: [{key, title}]. */
export function levels(report, machine = ownMachine(report)) {
  const used = new Set(report.ops.flatMap((op) => [...Object.keys(op.bytes ?? {}), ...Object.keys(op.counters?.bytes ?? {})]));
  const rated = machine.ceilings.map((one) => one.resource).filter((name) => resource(name).isMemory || (resource(name).isLink && resource(name).measure === "B"));
  const keys = rated.filter((name) => name === "hbm" || used.has(name) || [...used].some((each) => each.startsWith(`${name}.`)));
  keys.sort((one, other) => (other === "hbm") - (one === "hbm"));
  return keys.map((key) => ({ key, title: title(key) }));
}

/** A step in words, as Python titled it. */
export const stepTitle = ({ step, title }) => title ?? String(step);

/** What the choosers of the page offer. */
export function choices(report) {
  const of = (key) => [...new Set(report.ops.map((op) => op[key]).filter(Boolean))].sort();
  const devices = report.input.devices ?? [];
  return {
    steps: [...new Set((report.by_step ?? []).map((share) => share.step))].sort((one, other) => one - other),
    stepTitles: Object.fromEntries((report.steps ?? []).map((one) => [one.step, stepTitle(one)])), devices,
    hosts: [...new Set(devices.map((device) => device.host).filter(Boolean))].sort(), categories: of("category"),
    bounds: of("bound"), dtypes: of("dtype"), hasFeeds: report.ops.some(isFeed),
    scopeDepth: report.ops.reduce((deepest, op) => Math.max(deepest, op.scope ? op.scope.split("/").length : 0), 0),
  };
}

/** Whether an op only moves data from or to the host. */
function isFeed({ category = "" }) {
  return VOCABULARY.feeds.some((word) => category.includes(word));
}

/**
 * The ops of a report as rows: the part that falls into the chosen step and on the chosen devices, placed on a machine.
 *
 * Work is shared out by executions and time as it was measured. A step on some of several devices is measured where the report has the
 * times of both at once; otherwise it is the product of both shares. `level` is a memory level or link, or "bound". On another chip an op
 * has no measured time, only its minimum there.
 */
export function select(report, { step = null, device = null, host = null, feeds = true, level = "hbm" } = {}, machine = null) {
  const index = indexOf(report);
  const on = machine ?? index.own;
  const key = JSON.stringify([step, device, host, feeds, level]);
  // A filter is typed letter by letter over one selection.
  if (index.last?.key === key && index.last.machine === on) return index.last.rows;
  const wanted = (one) => (device === null || one.id === device) && (host === null || one.host === host);
  const chosen = device === null && host === null ? null : (report.input.devices ?? []).filter(wanted).map((one) => one.id);
  const rows = [];
  for (const one of index.ops) {
    const part = feeds || !one.feeds ? partOf(one, step, chosen) : null;
    if (part) rows.push(rowOf(one, part, on, on === index.own, level, on.name === index.own.name));
  }
  const whole = rows.reduce((sum, row) => sum + row.weight, 0);
  for (const row of rows) row.share = whole ? row.weight / whole : null;
  complete(rows, total(rows.map((row) => row.time_s)));
  index.last = { key, machine: on, rows };
  return rows;
}

/** The part of an op that a choice leaves: the fraction of its executions and of its time, or `null` when nothing is left. */
function partOf({ op, steps, devices, both }, step, chosen) {
  if (step === null && chosen === null) return ALL;
  const measured = both && step !== null && chosen !== null;
  const parts = step === null || measured ? [] : [steps.get(step)];
  if (chosen !== null) {
    const mine = chosen.map((id) => (measured ? both.get(id)?.get(step) : devices.get(id))).filter(Boolean);
    parts.push({ count: total(mine.map((one) => one.count)), time_s: total(mine.map((one) => one.time_s)) });
  }
  if (!parts.every((part) => part?.count > 0)) return null;
  return {
    fraction: parts.reduce((product, part) => product * (part.count / op.count), 1),
    time: op.time_s ? parts.reduce((product, part) => product * (part.time_s / op.time_s), 1) : 1,
  };
}

function rowOf({ op, fold, steps, devices, step_s, feeds }, part, machine, asReported, chosen, timed) {
  const measured = part === ALL ? op : cut(op, part);
  const run = timed ? measured : { ...measured, time_s: null, self_time_s: null };
  const { count, kernels, time_s, self_time_s, flops, work, bytes: moved, hops } = run;
  const found = place(costOf(run), machine, { time_s, launches: kernels || count, known: run.known });
  const { floor_s, serial_s, bound, efficiency, attainable, times, utilization, roofs, unrated, intensity, ridge } = asReported ? run : found;
  const { unit, kind: dtype } = asReported ? { unit: op.unit, kind: op.dtype } : found.compute ? resource(found.compute) : NO_ARITHMETIC;
  const level = chosen === OWN_LEVEL ? slowestLevel(times) : chosen;
  // Over a level that the model does not have, counters say how many.
  const seen = run.counters?.bytes ?? {};
  const bytes = bytesOf(!crosses(moved, level) && crosses(seen, level) ? seen : moved, level);
  const arithmetic = dtype ? `${unit}/${dtype}` : unit;
  const { id, rank, name, label, category, module, scope, location, phase, notes, provenance } = op;
  const { counters } = run;
  // Every row has the same shape, field by field: spreading an op into 20,000 of them takes the browser a second.
  return {
    kind: "op", id, ops: [id], fold, rank, name, label: label || name, category, module, scope, location, phase, notes, provenance, counters,
    count, kernels, time_s, self_time_s, flops, work, moved, hops,
    floor_s, beside: op.compiled?.beside ?? false, serial_s, bound, efficiency, attainable, times, utilization, roofs, unrated, unit, dtype,
    dma_stall_s: run.time_s === null ? null : run.dma_stall_s ?? null,
    needed: run.needed,
    needed_s: asReported ? run.needed_s : null,
    unneeded: run.unneeded,
    step_s: part === ALL && timed ? step_s : null,
    weight: self_time_s ?? time_s ?? floor_s ?? 0, // the seconds that its size shows
    share: null,
    upper: notes.some((note) => note.startsWith(VOCABULARY.upper_bound)), // its cost is an upper bound, and so is its efficiency
    // Corrections for overlap and launches are the report's; on another machine only a report without them has the figure.
    expected_s: asReported ? run.expected_s : op.expected_s === op.floor_s ? floor_s : null,
    expected: asReported ? run.expected ?? null : null,
    predicted_s: asReported ? run.expected?.time_s ?? null : null,
    excess_s: asReported ? run.excess_s ?? null : null,
    lost_s: asReported && run.lost_s !== undefined ? run.lost_s : efficiency === null ? null : above(self_time_s ?? time_s, floor_s),
    rate: per(flops, time_s),
    level,
    bytes,
    bandwidth: per(bytes, time_s),
    intensity: per(flops, bytes),
    ridge: arithmetic ? machine.ridge(arithmetic, level) : null,
    main: { intensity, ridge }, // over main memory
    peak: found.peak,
    unknown: found.unknown,
    feeds,
    steps: [...steps.keys()],
    devices: [...devices.keys()],
  };
}

/** Adds what follows from the other fields of rows: averages, running sums, utilizations, and figures over each level and of counters. */
export function complete(rows, time_s) {
  let sum = 0;
  for (const row of [...rows].sort((one, other) => (other.share ?? 0) - (one.share ?? 0) || one.rank - other.rank)) {
    row.cumulative = row.share === null ? null : (sum += row.share);
    row.time_share = per(row.time_s, time_s);
    row.dma_stall = per(row.dma_stall_s ?? null, row.time_s);
    row.average_s = per(row.time_s, row.count);
    row.average_self_s = per(row.self_time_s ?? row.time_s, row.count);
    row.device_time_s = per(row.time_s, Math.max(1, row.devices?.length ?? 1));
    const unneeded = total(Object.values(row.unneeded ?? {})) ?? 0;
    const padding = row.needed === null ? unneeded : 0; // of the matrix unit: beyond the counted work, all of which was needed
    row.unneeded_share = unneeded ? Math.min(1, per(unneeded, (row.flops || total(Object.values(row.moved))) + padding) ?? 0) : 0;
    row.needed_rate = per(row.flops === null ? null : row.flops * (row.flops && !padding ? 1 - row.unneeded_share : 1), row.time_s);
    const busiest = (mine) => Object.entries(row.utilization).reduce((most, [unit, used]) => (mine(resource(unit)) ? Math.max(most ?? 0, used) : most), null);
    row.compute_utilization = busiest((unit) => unit.isCompute);
    row.memory_utilization = busiest((unit) => unit.isMemory);
    row.bound_intensity = per(row.flops, bytesOf(row.moved, slowestLevel(row.times)));
    for (const level of Object.keys(row.moved)) {
      row[`bandwidth_${plainKey(level)}`] = per(row.moved[level], row.time_s);
      row[`intensity_${plainKey(level)}`] = per(row.flops, row.moved[level]);
    }
    for (const [name, ratio] of Object.entries(row.counters?.ratio ?? {})) row[`ratio_${plainKey(name)}`] = ratio;
    for (const [name, amount] of Object.entries({ ...row.counters?.work, ...row.counters?.bytes })) row[`counted_${plainKey(name)}`] = amount;
  }
  return rows;
}

/** The name of a resource as a part of a column's key, as addresses have it. */
export const plainKey = (name) => name.replace(/[^a-z0-9]/g, "_");

/** Whether some bytes are those of a level, or of one of its directions. */
function crosses(amounts, level) {
  return Object.keys(amounts).some((name) => name === level || name.startsWith(`${level}.`));
}

const NO_ARITHMETIC = { unit: null, kind: null };

/** Some executions of an op, as `selection.narrow` gives them, here for the slider of steps: what binds an op stays what binds it in all. */
function cut(op, { fraction, time }) {
  const of = (value) => (value === null ? null : value * fraction);
  const all = (amounts) => Object.fromEntries(Object.entries(amounts).map(([name, amount]) => [name, of(amount)]));
  const time_s = op.time_s === null ? null : op.time_s * time;
  const [floor_s, times, own] = [of(op.floor_s), all(op.times), op.self_time_s ?? op.time_s];
  return {
    ...op,
    count: of(op.count),
    kernels: of(op.kernels),
    time_s,
    self_time_s: op.self_time_s === null ? null : op.self_time_s * time,
    dma_stall_s: op.dma_stall_s == null ? null : op.dma_stall_s * time,
    flops: of(op.flops),
    work: all(op.work),
    bytes: all(op.bytes),
    hops: all(op.hops),
    known: all(op.known),
    needed: op.needed && all(op.needed),
    needed_s: of(op.needed_s),
    unneeded: all(op.unneeded),
    counters: op.counters && { ...op.counters, work: all(op.counters.work), bytes: all(op.counters.bytes), flops: of(op.counters.flops), time_s: of(op.counters.time_s) },
    floor_s,
    serial_s: of(op.serial_s),
    expected_s: of(op.expected_s),
    expected: op.expected && { ...op.expected, time_s: of(op.expected.time_s), low_s: of(op.expected.low_s), high_s: of(op.expected.high_s) },
    excess_s: op.excess_s ? Math.max(0, own * time - (own - op.excess_s) * fraction) : op.excess_s,
    efficiency: op.efficiency === null ? null : per(floor_s, time_s),
    lost_s: lostPart(op, fraction, time),
    times,
    utilization: time_s ? Object.fromEntries(Object.entries(times).map(([unit, seconds]) => [unit, seconds / time_s])) : {},
  };
}

/** The part of a time above a minimum, if it is more than rounding. */
function above(seconds, least) {
  return seconds - least > ROUNDING * seconds ? seconds - least : 0;
}

/** What is lost in a part of an op: its part of the self time above its part of the minimum. */
function lostPart({ lost_s, self_time_s, time_s, needed_s, floor_s }, fraction, time) {
  const own = self_time_s ?? time_s;
  return lost_s === null || lost_s === undefined || own === null ? lost_s : above(own * time, (needed_s ?? floor_s) * fraction);
}

/** One amount over another; `null` when one is unknown or the second is 0. */
export function per(amount, of) {
  return amount === null || !of ? null : amount / of;
}

/** The memory level or link with the longest time; main memory when there is none. */
function slowestLevel(times) {
  return heaviestKey(new Map(Object.entries(times).filter(([unit]) => resource(unit).measure === "B"))) ?? "hbm";
}

/** A stably sorted copy; what is unknown comes last either way. */
export function sort(rows, key, descending = true) {
  const sign = descending ? -1 : 1;
  const absent = (value) => value === null || value === undefined || value === "";
  return [...rows].sort((a, b) => {
    const [one, other] = [a[key], b[key]];
    if (absent(one) || absent(other)) return absent(one) - absent(other);
    return sign * (typeof one === "number" && typeof other === "number" ? one - other : compareText(String(one), String(other)));
  });
}

/** Rows summed: seconds, work and how many; `lost_s` leaves out rows above their roof. */
export function totals(rows) {
  const sum = (value) => total(rows.map(value));
  const time_s = sum((row) => row.time_s);
  return {
    ops: rows.reduce((all, row) => all + row.ops.length, 0), count: sum((row) => row.count) ?? 0, time_s,
    step_s: sum((row) => row.step_s), weight: sum((row) => row.weight), floor_s: sum((row) => row.floor_s),
    lost_s: sum((row) => (row.lost_s === null ? null : Math.max(0, row.lost_s))), flops: sum((row) => row.flops),
    bytes: sum((row) => row.bytes), efficiency: per(sum((row) => (row.time_s ? row.floor_s : null)), time_s) || null,
    upper: rows.some((row) => row.upper),
  };
}
