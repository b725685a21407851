/** What is known about an op, a point of the program or a roof, as pairs of a word and a figure: for cards and for the details. */

import { h, named } from "#page/dom.js";
import { LATENCY, resource, title as resourceTitle } from "#page/law.js";
import { meaning } from "#page/terms.js";
import { percent, plain, show } from "#page/units.js";

/** What bounds an op, as `resource.bound_words`: ["memory-bound", "HBM"]. It is needed here because another chip may bind otherwise. */
export function boundWords(bound) {
  if (!bound) return ["", "unknown"];
  const { isLink, isMemory } = resource(bound);
  return [bound === LATENCY ? "" : isMemory ? "memory-bound" : isLink ? "communication-bound" : "compute-bound", resourceTitle(bound)];
}

/** The same as one phrase: "memory-bound (HBM)". */
export function boundTitle(bound) {
  const [kind, unit] = boundWords(bound);
  return kind ? `${kind} (${unit})` : bound ? `${unit}-bound` : "no known bound";
}

/** The efficiency of a row; that of a cost that is an upper bound is one too, and at most 100%. */
export function efficiencyText({ efficiency, upper }) {
  return upper && efficiency !== null ? `≤ ${percent(Math.min(efficiency, 1))}` : percent(efficiency);
}

/** An op or group, or a point of the program, in full: [[word, figure, remark], …]; what is not known is left out. */
export function facts(row) {
  const known = (value) => value !== null && value !== undefined;
  const run = known(row.step_s) ? " in run" : ""; // beside a time per step the others say what they are of
  const found = [
    known(row.step_s) && ["Time per step", show(row.step_s, "s"), ""],
    [`Time${run}`, show(row.time_s, "s"), known(row.share) ? `${percent(row.share)} of total` : ""],
    differs(row.self_time_s, row.time_s) && ["Self time", show(row.self_time_s, "s"), "excluding nested ops"],
    row.dma_stall_s > 0 && ["Stalled by DMA", show(row.dma_stall_s, "s"), row.time_s ? `${percent(row.dma_stall_s / row.time_s)} of its time` : ""],
    differs(row.slowest_s, row.time_s) && ["Slowest device", show(row.slowest_s, "s"), ""],
    differs(row.device_seconds, row.time_s) && ["Device-seconds", show(row.device_seconds, "s"), "summed over devices"],
    known(row.busy_s) && ["Busy", show(row.busy_s, "s"), row.time_s ? percent(row.busy_s / row.time_s) : ""],
    [`Minimum time${run}`, show(row.floor_s, "s"), lostWords(row.lost_s)],
    known(row.expected) && [`Expected time${run}`, show(row.expected.time_s, "s"), `${show(row.expected.low_s, "s")} to ${show(row.expected.high_s, "s")}`],
    ["Roofline efficiency", efficiencyText(row), boundTitle(row.bound)],
    known(row.op_efficiency) && ["Per-op roofline", percent(row.op_efficiency), "of the measured time"],
    ["Achieved", show(row.rate, "FLOP/s"), row.attainable ? `of ${show(row.attainable, "FLOP/s")} attainable` : ""],
    ["Intensity", show(row.intensity, "FLOP/B"), row.ridge ? `ridge point ${show(row.ridge, "FLOP/B")}` : ""],
    row.kind !== "point" && ["Executions", plain(row.count), row.kernels ? `${plain(row.kernels)} kernel${row.kernels === 1 ? "" : "s"}` : ""],
    row.kind === "group" && ["Operations", plain(row.ops.length), ""],
  ];
  return found.filter(Boolean);
}

function lostWords(lost_s) {
  if (lost_s === null || lost_s === undefined) return "";
  return lost_s < 0 ? `${show(-lost_s, "s")} above the measured time` : `${show(lost_s, "s")} lost`;
}

/** Whether two times are told apart in four digits. */
function differs(one, other) {
  return one !== null && one !== undefined && one !== other && Math.abs(one - other) > 1e-3 * Math.abs(other ?? 0);
}

/** Work and traffic by resource: [[word, amount, share of that unit's rate]]. */
export function amounts(row) {
  const utilization = row.utilization ?? {};
  const used = (name) => {
    const share = utilization[name.split("/")[0]];
    return share === undefined || share === null ? "" : `${percent(share)} of peak`;
  };
  const work = Object.entries(row.work ?? {}).map(([name, amount]) => [resourceTitle(name), show(amount, "FLOP"), used(name)]);
  const seconds = row.device_seconds ?? row.time_s;
  const moved = Object.entries(row.moved ?? {}).map(([name, amount]) => [
    resourceTitle(name),
    show(amount, "B"),
    [seconds && amount !== null ? show(amount / seconds, "B/s") : "", used(name)].filter(Boolean).join(" · "),
  ]);
  const hops = Object.entries(row.hops ?? {}).map(([name, amount]) => [resourceTitle(name), show(amount, "hop"), ""]);
  return [...work, ...moved, ...hops];
}

/** What hardware counters measured, beside the model. */
export function counted({ counters }) {
  if (!counters) return [];
  return [
    ...Object.entries(counters.work ?? {}).map(([name, amount]) => [resourceTitle(name), show(amount, "FLOP"), "hardware counters"]),
    ...Object.entries(counters.bytes ?? {}).map(([name, amount]) => [resourceTitle(name), show(amount, "B"), "hardware counters"]),
    ...(counters.time_s ? [["Time", show(counters.time_s, "s"), "hardware counters"]] : []),
  ];
}

/** Where an op and its counts come from. */
export function origin(row) {
  const found = [
    ["Category", row.category],
    ["Program", row.module],
    ["Scope", row.scope],
    ["Location", row.location],
    ["Phase", row.phase],
    ["Unit", [row.unit, row.dtype].filter(Boolean).join(" ")],
    ["FLOP count from", row.provenance?.work],
    ["Byte count from", row.provenance?.bytes],
    ["No ceiling for", (row.unrated ?? []).map(resourceTitle).join(", ")],
    ["Unknown amount", (row.unknown ?? []).map(resourceTitle).join(", ")],
  ];
  return found.filter(([, value]) => value);
}

/** A list of facts as rows of words, figures and remarks. */
export function factList(rows, label) {
  return h("table", { class: "facts", "aria-label": label },
    h("tbody", {},
      rows.map(([word, figure, remark]) => h("tr", {},
        h("th", { scope: "row", text: word, title: meaning(word) }),
        h("td", { class: "figure", text: figure }),
        h("td", { class: "remark", text: remark ?? "" }),
      )),
    ),
  );
}

/** Words from a program beside what they are. */
export function wordList(rows) {
  return h("dl", { class: "words" }, rows.map(([word, value]) => [h("dt", { text: word }), h("dd", {}, named(String(value), { most: 160 }))]));
}

/** One sentence for a screen reader. */
export function spoken(row) {
  const parts = [
    (row.label ?? row.name).slice(0, 120),
    row.label && row.label !== row.name ? row.name.slice(0, 60) : null,
    row.time_s === null ? null : show(row.time_s, "s"),
    row.efficiency === null ? null : `${efficiencyText(row)} roofline efficiency`,
    boundTitle(row.bound),
  ];
  return parts.filter(Boolean).join(", ");
}
