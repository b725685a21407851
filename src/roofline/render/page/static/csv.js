/** Tables as CSV by RFC 4180, numbers raw in base units, so that `roofline analyze` and spreadsheets read them back. */

import { per } from "#page/rows.js";
import { ranges } from "#page/units.js";
import { VOCABULARY } from "#page/vocabulary.js";

const UNKNOWN_AMOUNT = "?";

/** Rows under columns, headed by the columns' keys; unknown is an empty cell. */
export function toCsv(rows, columns) {
  const lines = [columns.map((column) => column.key), ...rows.map((row) => columns.map((column) => row[column.key]))];
  return written(lines);
}

/**
 * Ops under the same headings as `roofline analyze --csv`: their fields, a column for each resource that any of them uses, then rates and
 * intensities over each level, what counters saw, and the steps and devices they ran in.
 */
export function opsCsv(rows) {
  const amountsOf = (row) => ({ ...row.work, ...row.moved, ...row.hops });
  const resources = named(rows.map(amountsOf));
  const levels = named(rows.map((row) => row.moved));
  const counted = named(rows.flatMap(({ counters }) => (counters ? [counters.work, counters.bytes] : [])));
  const about = counted.length ? ["launches", "of", "time_s"] : [];
  const heading = [
    ...VOCABULARY.csv, "work_provenance", "bytes_provenance", ...resources,
    ...levels.map((level) => `bandwidth:${level}`), ...levels.map((level) => `intensity:${level}`),
    ...[...about, ...counted].map((name) => `counted:${name}`), "steps", "devices",
  ];
  const cells = (row) => {
    const [amounts, seen] = [amountsOf(row), row.counters];
    const measured = { ...seen?.work, ...seen?.bytes };
    return [
      ...VOCABULARY.csv.map((field) => (field in row.main ? row.main[field] : row[field])),
      row.provenance.work, row.provenance.bytes,
      ...resources.map((name) => (name in amounts ? amounts[name] ?? UNKNOWN_AMOUNT : 0)),
      ...levels.map((level) => per(row.moved[level] ?? null, row.time_s)),
      ...levels.map((level) => row.main.intensities[level]),
      ...about.map((name) => seen?.[name]),
      ...counted.map((name) => (seen && !(name in measured) ? 0 : measured[name])),
      ranges(row.steps), ranges(row.devices),
    ];
  };
  return written([heading, ...rows.map(cells)]);
}

function named(amounts) {
  return [...new Set(amounts.flatMap(Object.keys))].sort();
}

function written(lines) {
  return lines.map((line) => `${line.map(cell).join(",")}\n`).join("");
}

/** A cell. A text that a spreadsheet would take for a formula is quoted with an apostrophe before it; numbers are never touched. */
function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = Array.isArray(value) ? value.join(" ") : String(value);
  const safe = /^[=+\-@\t\r\n]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
