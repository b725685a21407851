/**
 * Which lanes of the timeline a state shows, and which ops ran in the stretch of it that is selected.
 *
 * A lane is a device in one step or in the whole run, in buckets; those of one host are equally long. A stretch is the first and the last
 * bucket of the longest lane. An op ran in a bucket if it is among the longest there, which is what the report lists.
 */

import { CAUSES, NEEDED } from "#page/chosen.js";

/** Whether a report's timeline has a step to show, and whether it has the run: the keys of `state.timeline`. */
export function spansOf(report) {
  const lanes = report.timeline ?? [];
  return ["step", "run"].filter((span) => lanes.some(({ step }) => (step === null) === (span === "run")));
}

/** The lanes of the chosen span, on the chosen device and host. */
export function lanesOf(report, { timeline = "step", device = null, host = null } = {}) {
  const spans = spansOf(report);
  const span = spans.includes(timeline) ? timeline : spans[0];
  const hosts = new Map((report.input.devices ?? []).map((one) => [one.id, one.host]));
  return (report.timeline ?? []).filter((lane) =>
    (lane.step === null) === (span === "run") &&
    (device === null || lane.device === device) &&
    (host === null || hosts.get(lane.device) === host));
}

/** The longest of some lanes, by which all of them are drawn. */
export const longestOf = (lanes) => lanes.reduce((longest, lane) => (lane.time_s > longest.time_s ? lane : longest), lanes[0]);

/** The bucket of a lane at the time of this bucket of the longest. */
export function bucketIn(lane, longest, bucket) {
  return lane.bucket_s === longest.bucket_s ? bucket : Math.floor((bucket * longest.bucket_s) / lane.bucket_s);
}

/** The ids of the ops that ran in the selected stretch; `null` where none is selected. */
export function opsIn(report, state) {
  const lanes = lanesOf(report, state);
  if (!state.stretch || !lanes.length) return null;
  const [first, last] = state.stretch;
  const longest = longestOf(lanes);
  return new Set(lanes.flatMap((lane) => lane.ops.slice(bucketIn(lane, longest, first), bucketIn(lane, longest, last) + 1).flat()));
}

/** The parts of one bucket in seconds: [{cause, seconds}], what the work needs at least first, idle last. */
export function partsOf(lane, bucket) {
  const parts = CAUSES.map((cause) => ({ cause, seconds: secondsOf(lane, cause)?.[bucket] ?? 0 }));
  return parts.filter(({ seconds }) => seconds > 0);
}

/** The seconds of a cause in each bucket of a lane; `undefined` where it has none. */
export const secondsOf = (lane, cause) => (cause === NEEDED ? lane.at_roof_s : lane.causes[cause]);
