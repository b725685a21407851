/** Rows of the whole program: all of it, by hardware counters, its average step, and every step. */

import { bytesOf, costOf, place, resource } from "#page/law.js";
import { averagedSteps, choices, OWN_LEVEL, ownMachine, per, select, timedOn } from "#page/rows.js";
import { VOCABULARY } from "#page/vocabulary.js";

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
  const floors = other && opFloors(report, feeds, other);
  const placed = (point) => (!other ? point : timedOn(report, other) ? moved(point, other, floors(point)) : elsewhere(point, other, floors(point)));
  return points.map((point) => pointRow(placed(point), level === OWN_LEVEL ? "hbm" : level, titles));
}

/** A point on another chip, where nothing was measured: `least_s` are the minimum times of its ops, `measured_s` what it took on its own. */
function elsewhere(point, machine, floors) {
  const devices = per(deviceSeconds(point), point.time_s) ?? 1;
  const unknown = { time_s: null, device_seconds: null, slowest_s: null, busy_s: null, efficiency: null, op_efficiency: null, mfu: null, hfu: null, utilization: {} };
  return { ...moved(point, machine, floors), ...unknown, least_s: floors, measured_s: point.time_s, devices };
}

/** A point on another machine than its report's, whose losses are not known. */
function moved(point, machine, floors) {
  const { known = {} } = point;
  const time_s = deviceSeconds(point);
  const devices = per(time_s, point.time_s) ?? 1;
  const { unit, unknown, floor_s, serial_s, ...found } = place(costOf(point), machine, { time_s, known });
  return { ...point, ...found, floor_s: per(floor_s, devices), serial_s: per(serial_s, devices), op_efficiency: per(floors, time_s), lost: {} };
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

/** The sum of the ops' minimum times on another machine, for any point; counters say nothing of single ops. */
function opFloors(report, feeds, machine) {
  const rows = select(report, { feeds }, machine);
  const each = new Map(rows.map((row) => [row.id, row.floor_s / row.count]));
  const steps = new Map();
  for (const { op, step, count } of report.by_step ?? []) steps.set(step, (steps.get(step) ?? 0) + (each.get(op) ?? 0) * count);
  const averaged = averagedSteps(report);
  const sums = {
    total: rows.reduce((sum, row) => sum + row.floor_s, 0),
    average: averaged.reduce((sum, step) => sum + (steps.get(step) ?? 0), 0) / (averaged.length || 1),
  };
  return ({ scope, step }) => (scope === "step" ? steps.get(step) : sums[scope]) || null;
}
