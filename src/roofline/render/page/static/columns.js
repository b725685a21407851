/** Columns of the tables: the headings and meanings that Python gives, and how their cells are written. */

import { resource, title } from "#page/law.js";
import { plainKey } from "#page/rows.js";
import { percent, plain, show, UNKNOWN } from "#page/units.js";
import { VOCABULARY } from "#page/vocabulary.js";

const FORMATS = {
  text: (value) => value ?? "", unit: (value) => (value ? title(value) : UNKNOWN), number: (value) => plain(value),
  share: (value) => percent(value), ratio: (value) => (value == null ? UNKNOWN : `${show(value, "1", 3)}x`),
};
const UNITS = { text: "", unit: "", number: "", share: "%", ratio: "x" };

function column([key, name, kind, description]) {
  // The heading has the unit: a figure without a prefix needs none of its own.
  const format = FORMATS[kind] ?? ((value) => (kind.includes("/B") ? show(value, kind).replace(` ${kind}`, "") : show(value, kind)));
  return { key, title: name, unit: UNITS[kind] ?? kind, description, numeric: kind !== "text" && kind !== "unit", format, main: false };
}

const { ops, program, differences } = VOCABULARY.columns;
/** The columns of a table, of which one names the row: it takes what the others leave, and stays in sight. */
const columns = (all, main) => all.map(column).map((one) => ({ ...one, main: one.key === main }));
const COLUMNS = columns(ops, "label");
export const PROGRAM_COLUMNS = columns(program, "name");
export const DIFFERENCE_COLUMNS = columns(differences, "label");

/** The columns that the ops of a report can have: those of every report, of each level that its bytes cross, and of its counters. */
export function opColumns(report) {
  const names = (amounts) => [...new Set(report.ops.flatMap((op) => amounts(op).flatMap((one) => Object.keys(one ?? {}))))].sort();
  const made = (some, patterns) => some.flatMap((name) => patterns.map(([key, heading, kind, description]) => column([
    `${key}_${plainKey(name)}`, heading.replace("{}", title(name)), kind || resource(name).measure, description.replace("{}", title(name)),
  ])));
  const { levels, counted: [amount, ratio] } = VOCABULARY.columns;
  const waits = report.ops.some((op) => op.dma_stall_s != null); // profiles of TPUs say so
  return [
    ...COLUMNS.filter(({ key }) => waits || key !== "dma_stall"),
    ...made(names((op) => [op.bytes]), levels),
    ...made(names((op) => [op.counters?.work, op.counters?.bytes]), [amount]),
    ...made(names((op) => [op.counters?.ratio]), [ratio]),
  ];
}

/**
 * The keys of the columns shown by default: with measured times, by step where there are steps, else with the number of executions; and
 * without, where there is no rate and nothing is lost.
 */
export const USUAL_COLUMNS = [
  "label", "name", "count", "step_s", "time_s", "share", "bound", "efficiency", "lost_s", "rate", "bandwidth", "intensity",
];
/** Those that sum up all steps of a run. */
export const RUN_COLUMNS = new Set(["count", "kernels", "time_s", "self_time_s", "floor_s", "serial_s", "lost_s", "flops", "bytes"]);
/** Those of them that a narrow window leaves out, so that names and times are in sight together. */
export const ROOMY_COLUMNS = ["name", "count"];
export const UNTIMED_COLUMNS = ["label", "name", "category", "count", "flops", "bytes", "intensity", "attainable", "bound", "floor_s"];
