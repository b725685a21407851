/** Rows of the whole program: all of it, by hardware counters, its average step, and every step. */

import { bytesOf, costOf, flopsOf, intensityOf, leastOf, place, resource } from "#page/law.js";
import { choices, OWN_LEVEL, ownMachine, select } from "#page/rows.js";

/**
 * @typedef {Object} ProgramRow
 * @property {"point"} kind
 * @property {string} id
 * @property {"total"|"hardware"|"average"|"step"} scope
 * @property {number|null} step
 * @property {string} name
 * @property {boolean} infeed_outfeed
 * @property {number|null} time_s
 * @property {number|null} busy_s
 * @property {number|null} flops
 * @property {number|null} rate
 * @property {number|null} bytes
 * @property {number|null} bandwidth
 * @property {number|null} intensity
 * @property {string|null} bound
 * @property {number|null} floor_s
 * @property {number|null} serial_s
 * @property {number|null} efficiency
 * @property {number|null} op_efficiency
 * @property {number|null} peak_share  of the busiest compute unit
 * @property {number|null} memory_utilization  of the memory level used most
 * @property {number|null} link_utilization  of the link used most
 * @property {Record<string, number>} utilization
 * @property {number|null} at_roof_s  seconds that the ops would need at their roofs, where the report says
 * @property {Record<string, number>} lost  the other seconds by cause; empty on another machine than the report's
 */

const NAMES = { total: "whole program", hardware: "whole program, by counters", average: "average step" };

/**
 * The points of a report as rows, with or without infeed and outfeed; where a program has none there is one variant, used for both.
 * @param {Object} report
 * @param {{feeds?: boolean, level?: string}} [choice]
 * @param {import("#page/law.js").Machine|null} [machine]
 * @returns {ProgramRow[]}
 */
export function programRows(report, { feeds = true, level = "hbm" } = {}, machine = null) {
  const own = ownMachine(report);
  const held = machine ?? own;
  const wanted = report.points.filter((point) => (point.infeed_outfeed ?? true) === feeds);
  // What counters saw cannot be parted, so that one stands beside both variants.
  const counted = report.points.filter((point) => point.scope === "hardware" && !wanted.includes(point));
  const points = wanted.length ? [...wanted.slice(0, 1), ...counted, ...wanted.slice(1)] : report.points;
  const titles = choices(report).stepTitles;
  const floors = held === own ? null : opFloors(report, feeds, held);
  return points.map((point) => pointRow(point, own, held, level === OWN_LEVEL ? "hbm" : level, floors, titles));
}

function pointRow(point, own, machine, level, floors, titles) {
  const cost = costOf(point);
  const { time_s } = point;
  const found = floors ? place(cost, machine, { time_s, least: leastOf(point, own) }) : point;
  const utilization = found.utilization ?? {};
  const [flops, bytes] = [flopsOf(cost), bytesOf(cost, level)];
  const most = (mine) => {
    const shares = Object.keys(utilization).filter((unit) => mine(resource(unit))).map((unit) => utilization[unit]);
    return shares.length ? Math.max(...shares) : null;
  };
  return {
    kind: "point",
    id: point.scope === "step" ? `step ${point.step}` : point.scope,
    scope: point.scope,
    step: point.step ?? null,
    name: NAMES[point.scope] ?? (point.step === null ? point.scope : `step ${titles[point.step] ?? point.step}`),
    infeed_outfeed: point.infeed_outfeed ?? true,
    time_s: time_s ?? null,
    busy_s: point.busy_s ?? null,
    flops,
    rate: flops !== null && time_s ? flops / time_s : null,
    bytes,
    bandwidth: bytes !== null && time_s ? bytes / time_s : null,
    intensity: intensityOf(cost, level),
    bound: found.bound,
    floor_s: found.floor_s,
    serial_s: found.serial_s,
    efficiency: found.efficiency,
    op_efficiency: floors ? ratio(floors(point), time_s) : point.op_efficiency ?? null,
    peak_share: most((unit) => unit.isCompute),
    memory_utilization: most((unit) => unit.isMemory),
    link_utilization: most((unit) => unit.isLink),
    utilization,
    at_roof_s: floors ? null : point.at_roof_s ?? null,
    lost: floors ? {} : point.lost ?? {},
  };
}

function ratio(part, whole) {
  return part && whole ? part / whole : null;
}

/** The sum of the ops' floors on another machine, for any point; counters say nothing of single ops. */
function opFloors(report, feeds, machine) {
  const rows = select(report, { feeds }, machine);
  const each = new Map(rows.map((row) => [row.id, row.floor_s / row.count]));
  const steps = new Map();
  for (const { op, step, count } of report.by_step ?? []) steps.set(step, (steps.get(step) ?? 0) + (each.get(op) ?? 0) * count);
  const whole = rows.reduce((sum, row) => sum + row.floor_s, 0);
  const complete = report.points.filter((point) => point.scope === "step" && (point.infeed_outfeed ?? true) === feeds);
  const mean = complete.reduce((sum, point) => sum + (steps.get(point.step) ?? 0), 0) / (complete.length || 1);
  return ({ scope, step }) => ({ total: whole, average: mean, step: steps.get(step) ?? null })[scope] ?? null;
}
