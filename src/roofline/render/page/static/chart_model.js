/**
 * What a chart shows, from a report and the state of the page. For the default state it says the same as `render/chart.py`.
 *
 * A dot stands at its intensity over one memory level or link and at its measured rate; without a measured time it stands on its roof, and
 * so does one whose cost is an upper bound that would put it above.
 *
 *     level, timed, machine   what the axes count, and the machine's title
 *     roofs                   ceilings: a memory level or link (slanted) or a compute peak (flat), fastest first; `usual` ones are shown
 *                             unless switched off, `axis` is the level of the x axis, `binds` and `used` count ops
 *     dots, strip             rows at {x, y} in FLOP/B and FLOP/s, and rows without FLOP at their `share` of a unit's bandwidth; heaviest first
 *     twins                   where hardware counters put ops that have them, at {x, y}, beside the modelled spot `from`
 *     program                 points of the program at {x, y}
 *     arrows                  {from, to} spots of an op before and after, and the change of its time; `predicted` where a change was applied
 *     leftOut, caption        why ops are not drawn and how many, and that in words
 *     edge                    how many ops are beyond the home window, in words
 *     home                    the window that the drawn dots of 99% of the time fit into
 *     reach                   the window that shows everything, as far as one can go
 */

import { parse } from "#page/filter.js";
import { group } from "#page/groups.js";
import { add, bytesOf, machine as machineFrom, rateTitle, resource, scaled, title } from "#page/law.js";
import { programRows } from "#page/program_rows.js";
import { chosenDevices, titleOf } from "#page/chosen.js";
import { complete, OWN_LEVEL, ownMachine, per, select, sort, totals } from "#page/rows.js";
import { around, extent, fitted, flat, slant } from "#page/scale.js";
import { opsIn } from "#page/stretch.js";
import { percent, plain, show } from "#page/units.js";
import { VOCABULARY } from "#page/vocabulary.js";

/** The machine of a state: the report's own or another chip of the catalogue, with its ceilings scaled. */
export function machineOf(report, state, catalogue = []) {
  const other = state.chip === null ? null : catalogue.find((one) => one.name === state.chip);
  const whole = other ? machineFrom(other) : ownMachine(report);
  return Object.values(state.factors).some((factor) => factor !== 1) ? scaled(whole, state.factors) : whole;
}

/**
 * The rows that a state shows. `all` are the ops of the chosen steps and devices, `filtered` those that pass the filters, and `rows` these
 * grouped and sorted; `totals` sum up `all`, `shown` the filtered ones; `problem` says what is wrong with the filter.
 */
export function rowsOf(report, state, machine = ownMachine(report)) {
  const all = select(report, state, machine);
  const whole = totals(all);
  const { test, problem } = parse(state.filter);
  const sets = [["category", state.categories], ["bound", state.bounds], ["dtype", state.dtypes]].filter(([, words]) => words.length);
  const wanted = sets.map(([key, words]) => [key, new Set(words)]);
  const ran = opsIn(report, state);
  const passes = (row) => wanted.every(([key, words]) => words.has(row[key] ?? "")) && test(row, whole);
  const filtered = all.filter((row) => (!ran || ran.has(row.id)) && passes(row));
  const grouped = group(filtered, state.group, state.depth);
  const rows = sort(state.group ? complete(grouped, whole.time_s) : grouped, sortKey(state, report, whole.time_s), state.descending);
  return { rows, filtered, all, totals: whole, shown: totals(filtered), problem };
}

/** The column that rows are sorted by. What is hidden beside the core has a long time in flight: there the time lost is what matters. */
export function sortKey({ sort: key }, { predicted }, time_s) {
  if (key !== "usual") return key;
  if (time_s === null) return "floor_s";
  return predicted ? "lost_s" : "time_s";
}

/**
 * The chart of a report: `rows` are drawn and `all` decide the roofs and the home, both as `rowsOf` gives them; `before` is another report
 * to draw arrows from, and `comparison` what Python says of the two.
 */
export function chartModel(report, state, { rows, all, machine = ownMachine(report), before = null, comparison = null } = {}) {
  const every = all ?? select(report, state, machine);
  const drawn = rows ?? rowsOf(report, state, machine).rows;
  const program = starsOf(report, state, programOf(report, state, machine), every);
  const { dots, strip, leftOut } = marksOf(drawn, state.size);
  const whole = program.map(({ x, y }) => [x, y]);
  const twins = twinsOf(dots);
  const spots = every.filter((row) => row.flops && !reasonAgainst(row)).map(spotOf);
  const changed = predictedArrows(report.findings?.[state.whatif]?.predicted, drawn, state.level);
  const after = changed.map(({ to: [x, y], after: row }) => ({ x, y, row }));
  const frame = framed(report, state, machine, every, [...spots, ...(state.group ? dots.map(({ x, y }) => [x, y]) : []), ...whole, ...[...after, ...twins].map(({ x, y }) => [x, y])], [...dots, ...twins, ...after], whole);
  return {
    ...frame,
    dots,
    strip,
    twins,
    program: program.filter((point) => state.scopes.includes(point.scope)),
    arrows: [...(before && state.compare ? notable(arrowsOf(before, drawn, state, comparison.deltas), drawn) : []), ...changed],
    threshold: VOCABULARY.notable_change,
    leftOut,
    caption: captionOf(report.coverage, leftOut),
    edge: edgeWords(dots, drawn, frame),
  };
}

/** The chart of the program alone: the same roofs, the points of the program, and a home that shows them closely. */
export function programModel(report, state, { all, machine = ownMachine(report) } = {}) {
  const program = programOf(report, state, machine);
  const every = all ?? select(report, state, machine);
  const shown = program.filter((point) => state.scopes.includes(point.scope));
  const nothing = { dots: [], strip: [], twins: [], arrows: [], leftOut: [], caption: "", edge: "" };
  return { ...framed(report, state, machine, every, program.map(({ x, y }) => [x, y])), ...nothing, program: shown };
}

/** What charts of ops and of the program have in common: the roofs, and the window that shows them and these spots. */
function framed(report, state, machine, every, spots, dots = [], also = spots) {
  const roofs = roofsOf(every, state, machine);
  const lines = linesOf(roofs, machine, state);
  const home = fitted(lines, dots.map(({ x, y, row }) => [x, y, row.weight]), also);
  return {
    machine: machine.title, level: state.level, roofs, home, reach: around(home, extent(lines, spots)),
    timed: every.some((row) => row.time_s) || (!every.length && report.ops.some((op) => op.time_s)),
    predicted: Boolean(report.changes?.length || report.predicted),
  };
}

const SIZES = {
  time: (row) => row.weight, self: (row) => row.self_time_s ?? row.weight, lost: (row) => Math.max(0, row.lost_s ?? 0),
  flops: (row) => row.flops ?? 0, bytes: (row) => row.bytes ?? 0, equal: () => 1,
};

/** Dots and the strip, heaviest first, and why the others are not drawn. */
function marksOf(rows, size) {
  const [dots, strip, reasons] = [[], [], new Map()];
  for (const row of rows) {
    const reason = reasonAgainst(row);
    if (reason) {
      add(reasons, reason, 1);
      continue;
    }
    const { id, ops, name, label, bound, category, dtype, unit, phase, efficiency } = row;
    const mark = { id, ops, name, label, bound, category, dtype, unit, phase, efficiency, weight: SIZES[size](row), row };
    if (!row.flops) {
      strip.push({ ...mark, share: row.upper ? Math.min(1, efficiency ?? 1) : efficiency ?? 1 });
    } else {
      const [x, y] = spotOf(row);
      dots.push({ ...mark, x, y });
    }
  }
  const byWeight = (one, other) => other.weight - one.weight || (one.row.rank ?? 0) - (other.row.rank ?? 0);
  return { dots: dots.sort(byWeight), strip: strip.sort(byWeight), leftOut: [...reasons].sort(([, one], [, other]) => other - one) };
}

/** The counted twin of each dot whose op has counters: counted FLOP over counted bytes, by the op's own time. */
function twinsOf(dots) {
  const counted = dots.filter(({ row }) => row.kind === "op" && row.counters?.flops && row.time_s);
  const placed = counted.map((dot) => {
    const { counters, level, time_s } = dot.row;
    return { ...dot, x: per(counters.flops, bytesOf(counters.bytes, level)), y: counters.flops / time_s, from: [dot.x, dot.y] };
  });
  return placed.filter(({ x }) => x);
}

function reasonAgainst(row) {
  if (row.flops === null) return "with unknown work";
  if (!row.flops) return row.efficiency === null && !row.floor_s ? "without work or bytes" : null;
  if (row.bytes === null) return `with unknown ${title(row.level)} traffic`;
  if (!row.bytes) return `without ${title(row.level)} traffic`;
  return row.time_s || row.floor_s ? null : "without a measured or minimum time";
}

/** Every roof the machine has for this work: the level of the x axis, levels and peaks in use, and the other peaks, switched off. */
function roofsOf(all, state, machine) {
  const [binds, used, computing, bound] = [new Map(), new Map(), new Set(), new Map()];
  for (const row of [...all].sort((one, other) => one.rank - other.rank)) {
    if (row.bound) add(binds, row.bound, 1);
    for (const name of row.roofs) add(used, name, 1);
    if (row.peak && row.flops && row.bytes) computing.add(row.peak);
    if (row.peak && row.bound === resource(row.peak).unit) add(bound, row.peak, 1);
  }
  if (!computing.size && machine.bestMatrix) computing.add(machine.bestMatrix.resource);
  const usualPeaks = distinct(computing, machine);
  const info = (ceiling, kind, usual, axis) => {
    const name = ceiling.resource;
    const switched = state.hidden.includes(name) ? true : state.shown.includes(name) ? false : !usual;
    const count = kind === "memory" ? binds.get(resource(name).unit) : bound.get(name);
    return { ...described(ceiling), kind, usual, axis, hidden: switched, binds: count ?? 0, used: used.get(name) ?? 0 };
  };
  // Bytes over a link are not those of a memory: its roof has no meaning on their axis.
  const counted = ({ resource: name }) => resource(name).isMemory || (resource(name).measure === "B" && resource(name).isLink && (name === state.level || state.level === OWN_LEVEL));
  const memory = machine.ceilings.filter(counted).map((one) => {
    const axis = one.resource === state.level;
    return info(one, "memory", axis || binds.has(resource(one.resource).unit), axis);
  });
  const peaks = machine.ceilings.filter((one) => resource(one.resource).isArithmetic);
  const compute = peaks.map((one) => info(one, "compute", usualPeaks.has(one.resource), false));
  const fastest = (one, other) => other.rate - one.rate;
  return [...memory.filter((one) => one.axis || one.used || one.binds).sort(fastest), ...compute.sort(fastest)];
}

/** Of roofs that are equally high one is drawn: the first that was met. */
function distinct(names, machine) {
  const heights = new Map();
  for (const name of names) if (!heights.has(machine.rate(name))) heights.set(machine.rate(name), name);
  return new Set(heights.values());
}

function described(ceiling) {
  const { resource: id, rate, provenance = "", citation = "", note = "", peak = null, factor = 1, others = [] } = ceiling;
  const { per } = resource(id);
  const origin = [provenance, citation].filter(Boolean).join(": ");
  const details = [
    origin,
    note,
    peak ? `vendor peak ${show(peak, per)}` : "",
    factor === 1 ? "" : `scaled to ${percent(factor)} of ${show(rate / factor, per)}`,
    ...others.map((other) => `other figure ${show(other.rate, per)}: ${other.citation || other.note}`),
  ].filter(Boolean);
  return { id, title: title(id), label: rateTitle(id, rate), rate, per, provenance: origin, details };
}

/** Points of the program that have a place on the chart. */
function programOf(report, state, machine) {
  const rows = programRows(report, { feeds: state.feeds, level: state.level }, machine);
  const placed = rows.filter((row) => row.flops && row.bytes && (row.rate || row.least_s));
  return placed.map((row) => ({ ...row, x: row.flops / row.bytes, y: row.rate ?? row.flops / row.least_s }));
}

/** The program on the chart of ops, where the steps would hide them: all of it and what counters say, or the chosen step and devices. */
function starsOf(report, state, program, every) {
  const some = state.device !== null || state.host !== null;
  if (state.step === null && !some) return program.filter(({ scope }) => scope === "total" || scope === "hardware");
  const point = program.find(({ scope, step }) => (state.step === null ? scope === "total" : scope === "step" && step === state.step));
  if (!point) return [];
  const name = titleOf(report, state);
  if (!some) return [{ ...point, scope: "total", name }];
  const { flops, bytes, floor_s } = totals(every);
  const seconds = point.time_s === null ? floor_s : point.time_s * chosenDevices(report, state).length;
  const unknown = { slowest_s: null, busy_s: null, efficiency: null, op_efficiency: null, lost_s: null, attainable: null, ridge: null, work: {}, moved: {}, utilization: {} };
  const sums = { flops, bytes, rate: per(flops, seconds), intensity: per(flops, bytes), floor_s: per(floor_s, chosenDevices(report, state).length) };
  return sums.rate && sums.intensity ? [{ ...point, ...unknown, ...sums, scope: "total", name, device_seconds: seconds, x: sums.intensity, y: sums.rate }] : [];
}

/** The peaks that are drawn, or would be if none were switched off, each with the bandwidth of the x axis. */
function linesOf(roofs, machine, state) {
  const level = state.level === OWN_LEVEL ? "hbm" : state.level;
  const bandwidth = machine.rate(level) ?? roofs.find((one) => one.kind === "memory" && one.usual)?.rate;
  const compute = roofs.filter((one) => one.kind === "compute");
  const peaks = compute.some((one) => !one.hidden) ? compute.filter((one) => !one.hidden) : compute.filter((one) => one.usual);
  return bandwidth ? peaks.map((one) => ({ peak: one.rate, bandwidth })) : [];
}

/** Arrows from where an op, or a group of ops, stood before to where it stands now. */
function arrowsOf(before, rows, state, deltas) {
  const all = select(before, { feeds: state.feeds, level: state.level });
  const old = state.group ? group(all, state.group, state.depth) : all;
  const whole = state.step === null && state.device === null && state.host === null;
  const places = new Map(old.filter((row) => row.flops && !reasonAgainst(row)).map((row) => [row.id, row]));
  const pairs = deltas.filter((delta) => delta.before.ops.length === 1 && delta.after.ops.length === 1);
  const partner = new Map(pairs.map((delta) => [delta.after.ops[0], delta.before.ops[0]]));
  const arrows = [];
  for (const row of rows) {
    const was = places.get(row.kind === "group" ? row.id : partner.get(row.id));
    if (!was || !row.flops || reasonAgainst(row)) continue;
    const change_s = !whole || row.time_s === null || was.time_s === null ? null : row.weight - was.weight;
    arrows.push({ from: spotOf(was), to: spotOf(row), before: was, after: row, change_s });
  }
  return arrows;
}

/** Arrows from where ops stand to where a change is predicted to bring them, over main memory. */
function predictedArrows(predicted, rows, level) {
  if (!predicted?.ops || level !== "hbm") return [];
  const places = new Map(rows.filter((row) => row.flops && !reasonAgainst(row)).map((row) => [row.id, row]));
  const there = predicted.ops.filter(({ op, time_s, flops, hbm }) => places.has(op) && time_s && flops && hbm);
  return there.map(({ op, time_s, flops, hbm }) => {
    const row = places.get(op);
    return { from: spotOf(row), to: [flops / hbm, flops / time_s], before: row, after: row, change_s: time_s - (row.time_s ?? 0), predicted: true };
  });
}

/** The arrows of changes that matter: of more than a hundredth of the time; where no change is known, of ops that take that much. */
function notable(arrows, rows) {
  const least = VOCABULARY.notable_change * rows.reduce((sum, row) => sum + row.weight, 0);
  return arrows.filter(({ change_s, after }) => (change_s === null ? after.weight : Math.abs(change_s)) >= least);
}

function spotOf({ flops, bytes, time_s, floor_s, upper }) {
  return [flops / bytes, flops / (time_s && upper ? Math.max(time_s, floor_s) : time_s || floor_s)];
}

/** How much of the time is explained, and what is not on the chart. */
function captionOf({ busy_s, attributed_s, priced_s }, leftOut) {
  const known = [["is matched to ops", attributed_s], ["has a known cost", priced_s]].filter(([, seconds]) => busy_s && seconds != null);
  const shares = known.map(([what, seconds], index) => `${percent(seconds / busy_s)} of ${index ? "it" : "busy time"} ${what}`);
  const reasons = leftOut.map(([why, number]) => `${plain(number)} op${number === 1 ? "" : "s"} ${why}`);
  return [shares.length ? `${shares.join("; ")}.` : "", reasons.length ? `Not drawn: ${reasons.join(", ")}.` : ""].filter(Boolean).join(" ");
}

/** How many ops are beyond the window that the chart opens with, as arrows at its edge, and how much time they take; empty for none. */
function edgeWords(dots, rows, { home: [left, right, bottom, top], timed }) {
  const weight = (some) => some.reduce((sum, row) => sum + row.weight, 0);
  const far = dots.filter(({ x, y }) => x < left || x > right || y < bottom || y > top).map(({ row }) => row);
  if (!far.length) return "";
  const share = weight(rows) ? ` (${percent(weight(far) / weight(rows))} of ${timed ? "time" : "minimum time"})` : "";
  return `At the edge: ${plain(far.length)} op${far.length === 1 ? "" : "s"}${share} beyond the axes.`;
}

/** The words below a chart in a window, which is `null` for its home. */
export const captionIn = ({ caption, edge }, window) => [caption, window ? "" : edge].filter(Boolean).join(" ");

/** The visible roofs as lines inside a window: slants up to the highest peak in sight, peaks from the fastest memory in sight. */
export function roofLines(model, window) {
  const visible = model.roofs.filter((one) => !one.hidden);
  const memory = visible.filter((one) => one.kind === "memory");
  const compute = visible.filter((one) => one.kind === "compute");
  const [peak, bandwidth] = [compute, memory].map((roofs) => roofs.reduce((most, one) => Math.max(most, one.rate), 0));
  const lines = visible.map((one) => {
    const points = one.kind === "memory"
      ? slant({ peak: peak || Infinity, bandwidth: one.rate }, window, !peak)
      : flat({ peak: one.rate, bandwidth: bandwidth || Infinity }, window, !bandwidth);
    return { ...one, points };
  });
  return lines.filter((line) => line.points.length);
}
