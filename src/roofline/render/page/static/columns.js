/** Columns of the tables: the headings and meanings that Python gives, and how their cells are written. */

import { title } from "#page/law.js";
import { percent, plain, show, UNKNOWN } from "#page/units.js";
import { VOCABULARY } from "#page/vocabulary.js";

const FORMATS = {
  text: (value) => value ?? "",
  unit: (value) => (value ? title(value) : UNKNOWN),
  number: (value) => plain(value),
  share: (value) => percent(value),
  ratio: (value) => (value === null ? UNKNOWN : `${show(value, "1", 3)}x`),
};
const UNITS = { text: "", unit: "", number: "", share: "%", ratio: "x" };

function column([key, name, kind, description]) {
  const format = FORMATS[kind] ?? ((value) => show(value, kind));
  return { key, title: name, unit: UNITS[kind] ?? kind, description, numeric: kind !== "text" && kind !== "unit", format };
}

const { ops, program, differences } = VOCABULARY.columns;
export const COLUMNS = ops.map(column);
export const PROGRAM_COLUMNS = program.map(column);
export const DIFFERENCE_COLUMNS = differences.map(column);

/** The keys of the columns shown by default: with measured times, and without, where there is no rate and nothing is lost. */
export const USUAL_COLUMNS = [
  "rank", "name", "category", "count", "time_s", "share", "rate", "bandwidth", "intensity", "bound", "efficiency", "lost_s",
];
export const UNTIMED_COLUMNS = ["rank", "name", "category", "count", "flops", "bytes", "intensity", "attainable", "bound", "floor_s"];
