/** Rows of the whole program: all of it, by hardware counters, its average step, and every step. */

import { total } from "#page/groups.js";
import { bytesOf, costOf, place, resource } from "#page/law.js";
import { averagedSteps, choices, OWN_LEVEL, ownMachine, per, select, timedOn } from "#page/rows.js";
import { VOCABULARY } from "#page/vocabulary.js";

const ROUNDING = 1e-9; // sums of seconds differ by this much in their last digits

/**
 * The points of a report as rows with the report's fields, with or without infeed and outfeed; where a program has none there is one
 * variant, used for both.
 */
export function programRows(report, { feeds = true, level = "hbm" } = {}, machine = null) {
  const own = ownMachine(report);
  const wanted = report.points.filter((point) => point.infeed_outfeed === feeds);
  // Counters cannot tell infeed and outfeed apart, so their point belongs to both variants.
  const counted = report.points.filter((point) => point.scope === "hardware" && !wanted.includes(point));
  const points = wanted.length ? [...wanted.slice(0, 1), ...counted, ...wanted.slice(1)] : report.points;
  const titles = choices(report).stepTitles;
  const other = machine && machine !== own ? machine : null;
  const parts = other && opParts(report, points, feeds, other);
  const placed = (point) => (!other ? point : timedOn(report, other) ? moved(point, other, parts(point)) : elsewhere(point, other, parts(point)));
  return points.map((point) => pointRow(placed(point), level === OWN_LEVEL ? "hbm" : level, titles));
}

/** A point on another chip, where nothing was measured: `least_s` are the minimum times of its ops, `measured_s` what it took on its own. */
function elsewhere(point, machine, { floor_s }) {
  const devices = per(deviceSeconds(point), point.time_s) ?? 1;
  const unknown = { time_s: null, device_seconds: null, slowest_s: null, busy_s: null, efficiency: null, op_efficiency: null, mfu: null, hfu: null, utilization: {} };
  return { ...moved(point, machine, {}), ...unknown, least_s: floor_s, measured_s: point.time_s, devices };
}

/** A point on another machine than its report's, whose losses are not known. */
function moved(point, machine, { reached_s = null }) {
  const { known = {} } = point;
  const time_s = deviceSeconds(point);
  const devices = per(time_s, point.time_s) ?? 1;
  const { unit, unknown, floor_s, serial_s, ...found } = place(costOf(point), machine, { time_s, known });
  return { ...point, ...found, floor_s: per(floor_s, devices), serial_s: per(serial_s, devices), op_efficiency: per(reached_s, time_s), lost: {} };
}

/** What rates are of: work and bytes are those of all devices. */
function deviceSeconds({ device_seconds = null, time_s }) {
  return device_seconds ?? time_s;
}

function pointRow(point, level, titles) {
  const { scope, step, flops, utilization = {} } = point;
  const seconds = deviceSeconds(point);
  const bytes = Object.keys(point.bytes).length ? bytesOf(point.bytes, level) : null; // counters may see no traffic at all
  const busiest = (mine) => Object.keys(utilization).filter((unit) => mine(resource(unit))).reduce(
    (most, unit) => Math.max(most, utilization[unit]),
    null,
  );
  return {
    lost: {},
    ...point,
    kind: "point",
    id: scope === "step" ? `step ${step}` : scope,
    name: scope === "step" ? `${VOCABULARY.points.step} ${titles[step] ?? step}` : VOCABULARY.points[scope] ?? scope,
    moved: point.bytes,
    bytes,
    rate: per(flops, seconds),
    bandwidth: per(bytes, seconds),
    intensity: per(flops, bytes),
    peak_share: busiest((unit) => unit.isCompute),
    memory_utilization: busiest((unit) => unit.isMemory),
    link_utilization: busiest((unit) => unit.isLink),
  };
}

/**
 * Of any point the sum of its ops' minimum times on another machine, and as `reached_s` how much of its time they take: ops that overlap
 * share the time in which they ran, as `losses.split_losses` has it. Counters say nothing of single ops.
 */
function opParts(report, points, feeds, machine) {
  const rows = select(report, { feeds }, machine);
  const byId = new Map(rows.map((row) => [row.id, row]));
  const steps = new Map();
  for (const { op, step, count, time_s } of report.by_step ?? []) {
    const row = byId.get(op);
    if (!row) continue;
    if (!steps.has(step)) steps.set(step, []);
    steps.get(step).push({ floor_s: row.floor_s * (count / row.count), weight: row.time_s ? row.weight * (time_s / row.time_s) : 0 });
  }
  const pointOf = new Map(points.map((point) => [point.step ?? point.scope, point]));
  const { attributed_s, busy_s } = report.coverage;
  const isAll = attributed_s != null && busy_s > 0 && attributed_s >= (1 - ROUNDING) * busy_s;
  const ofStep = (step) => sums(steps.get(step) ?? [], pointOf.get(step), isAll);
  const averaged = averagedSteps(report).map(ofStep);
  const mean = (key) => averaged.reduce((sum, one) => sum + one[key], 0) / (averaged.length || 1);
  const whole = pointOf.get("total");
  const waited_s = waitedFor(rows, whole ? place(costOf(whole), machine, {}).floor_s : null);
  const found = {
    total: sums(rows.map((row) => ({ floor_s: waited_s(row), weight: row.time_s === null ? 0 : row.weight })), whole, false),
    average: { floor_s: mean("floor_s"), reached_s: mean("reached_s") },
  };
  return ({ scope, step }) => {
    const { floor_s = null, reached_s = null } = scope === "step" ? ofStep(step) : found[scope] ?? {};
    return { floor_s: floor_s || null, reached_s: reached_s || null };
  };
}

/**
 * What gives an op's minimum time as far as others wait for it, as `op_times.share_waited_for` has it: of ops that run beside others the
 * share for which a memory or link is busy for longer than the ops that run one after another. `least_s` is the minimum of all of their work.
 */
export function waitedFor(rows, least_s) {
  const [beside_s, inTurn_s] = [true, false].map((beside) => total(rows.map((row) => (row.beside === beside ? row.floor_s : 0))));
  const share = beside_s && least_s !== null ? Math.min(Math.max((least_s - inTurn_s) / beside_s, 0), 1) : 1;
  return (row) => (row.beside ? row.floor_s * share : row.floor_s);
}

function sums(parts, point, isAll) {
  const spent = parts.reduce((sum, one) => sum + one.weight, 0);
  const devices = per(deviceSeconds(point ?? {}), point?.time_s) ?? 1;
  const wall = deviceSeconds(point ?? {}) ?? spent;
  const busy = Math.min(point?.busy_s == null ? spent : point.busy_s * devices, wall);
  const share = isAll || busy < spent ? per(busy, spent) ?? 1 : 1;
  return {
    floor_s: parts.reduce((sum, one) => sum + one.floor_s, 0),
    reached_s: parts.reduce((sum, one) => sum + Math.min(one.floor_s, one.weight * share), 0),
  };
}
