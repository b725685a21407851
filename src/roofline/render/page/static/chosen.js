/**
 * What the headline is about: the time of the chosen step, devices and chip, per step where there are steps, and where it goes.
 *
 * Of a measured time these are the report's own points (`losses.py`): the minimum of the needed work, then what is lost by cause. On some of
 * several devices the same law is applied to their ops. On another chip, or without measured times, only minimum times are known, and
 * they are taken apart by what bounds each op.
 */

import { add, LATENCY, resource } from "#page/law.js";
import { total } from "#page/groups.js";
import { waitedFor } from "#page/program_rows.js";
import { ownMachine, per, stepTitle } from "#page/rows.js";
import { VOCABULARY } from "#page/vocabulary.js";

export const NEEDED = "needed"; // the part of a time that is not a loss
/** What a time goes into, in the order of a bar: what is needed first, idle last. */
export const CAUSES = Object.keys(VOCABULARY.causes);
const LEAST = 1e-6; // of the time: less than this is rounding

/** The cause that an op's time above its minimum is lost to, as `PlacedOps.causes`. */
export function causeOf(row) {
  if (row.category === VOCABULARY.autotuning) return row.category;
  if (row.unknown?.length || (row.unrated?.length && row.efficiency === null)) return "unpriced";
  if (!row.bound || row.bound === LATENCY) return LATENCY;
  const { isLink, isMemory } = resource(row.bound);
  return isMemory ? "memory" : isLink ? "communication" : "compute";
}

/** The same of an op's minimum time, of which something is known. */
export const boundCause = (row) => causeOf({ ...row, unknown: [], unrated: [] });

/**
 * @returns {{title, per, time_s, floor_s, parts: [{cause, seconds}], mfu, hfu, minimum: boolean, point, own, devices}} `minimum` when only
 *   minimum times are known; `own` says that nothing was chosen; `point` is the program's row that the figures are of, if any
 */
export function chosen(report, state, { all, program, machine }) {
  const pick = (scope, step = null) => program.find((row) => row.scope === scope && (step === null || row.step === step)) ?? null;
  const some = state.device !== null || state.host !== null;
  const whole = pick("total");
  const average = state.step === null && !some ? pick("average") : null;
  const point = state.step === null ? (average ?? whole) : pick("step", state.step);
  const devices = some ? chosenDevices(report, state).length : Math.max(1, Math.round(whole?.devices ?? per(whole?.device_seconds ?? null, whole?.time_s ?? null) ?? 1));
  const other = machine !== ownMachine(report);
  const found = {
    point, devices,
    own: !some && !other && state.step === null && state.feeds,
    per: average ? " per step" : "",
    title: titleOf(report, state),
  };
  if (other || !point?.time_s) {
    const least_s = some || whole?.floor_s == null ? null : whole.floor_s * devices;
    return { ...found, ...least(all, waitedFor(all, least_s), average && whole ? per(average.floor_s, whole.floor_s) ?? 1 : 1, devices) };
  }
  if (some) return { ...found, ...ofDevices(all, point, devices, machine, overlapOf(report, whole)) };
  const parts = Object.entries(point.lost ?? {}).map(([cause, seconds]) => ({ cause, seconds }));
  return {
    ...found, minimum: false, time_s: point.time_s, floor_s: point.at_roof_s ?? point.floor_s, mfu: point.mfu ?? null, hfu: point.hfu ?? null,
    parts: ordered([{ cause: NEEDED, seconds: point.at_roof_s ?? null }, ...parts], point.time_s),
  };
}

/** The devices that a state is about. */
export function chosenDevices(report, { device, host }) {
  return (report.input.devices ?? []).filter((one) => (device === null || one.id === device) && (host === null || one.host === host));
}

/** The chosen step, device and host in words; empty where none is. */
export function titleOf(report, state) {
  const found = (report.steps ?? []).find((one) => one.step === state.step);
  const step = state.step === null ? "" : `step ${stepTitle(found ?? { step: state.step })}`;
  const device = state.device === null ? "" : `device ${state.device}`;
  return [step, device, state.host ? `host ${state.host}` : ""].filter(Boolean).join(", ");
}

/** Minimum times of ops, as far as others wait for them, by what bounds them, for one device and, where `share` is that of a step, one step. */
function least(all, waited_s, share, devices) {
  const sums = new Map();
  for (const row of all) if (row.floor_s) add(sums, boundCause(row), waited_s(row));
  const parts = [...sums].map(([cause, seconds]) => ({ cause, seconds: (seconds * share) / devices }));
  const floor_s = total(parts.map(({ seconds }) => seconds));
  return { minimum: true, time_s: null, floor_s, mfu: null, hfu: null, parts: ordered(parts, floor_s) };
}

/** The ops of some devices, taken apart as `losses.split_losses` does, since devices are chosen here; idle is what they leave of the wall time. */
function ofDevices(all, point, devices, machine, overlap) {
  const wall = point.time_s * devices;
  const spent = total(all.map((row) => row.weight)) ?? 0;
  const share = Math.min(overlap, spent > wall ? wall / spent : 1);
  const sums = Object.fromEntries(CAUSES.map((cause) => [cause, 0]));
  let [matrix, useful] = [0, 0];
  for (const row of all) {
    const mine = row.weight * share;
    const ran = Math.min(row.floor_s ?? 0, mine);
    const least = Math.min(row.needed_s ?? ran, ran);
    sums[NEEDED] += least;
    sums.unneeded += ran - least;
    sums[causeOf(row)] += mine - ran;
    matrix += productSeconds(row.work, machine);
    useful += productSeconds(row.needed ?? row.work, machine);
  }
  sums.idle = wall - spent * share;
  const parts = Object.entries(sums).map(([cause, seconds]) => ({ cause, seconds: seconds / devices }));
  return { minimum: false, time_s: point.time_s, floor_s: sums[NEEDED] / devices, mfu: useful / wall, hfu: matrix / wall, parts: ordered(parts, point.time_s) };
}

/** The share of the ops' self times in which the device was busy: less than 1 where streams overlap. */
function overlapOf(report, whole) {
  const spent = total(report.ops.map((op) => op.self_time_s ?? op.time_s)) ?? 0;
  const busy = (whole?.busy_s ?? Infinity) * (per(whole?.device_seconds ?? null, whole?.time_s ?? null) ?? 1);
  return spent > busy ? busy / spent : 1;
}

/** What products take at the peak rates of their number formats. */
function productSeconds(work, machine) {
  const products = Object.entries(work).filter(([name]) => resource(name).unit === "matrix");
  return total(products.map(([name, amount]) => per(amount, machine.rate(name)))) ?? 0;
}

/** The needed part first, then the largest; what is rounding is left out. */
function ordered(parts, whole) {
  const rank = ({ cause }) => (cause === NEEDED ? 0 : 1);
  return parts.filter(({ seconds }) => seconds > LEAST * (whole ?? 0)).sort((one, other) => rank(one) - rank(other) || other.seconds - one.seconds);
}
