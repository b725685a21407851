/** Tables as CSV by RFC 4180, numbers raw in base units, so that `roofline analyze` and spreadsheets read them back. */

import { ranges } from "#page/units.js";

/** The fields of an op in the order of the Python export (`export.py`); a column a resource follows. */
const OP_FIELDS = [
  "id", "rank", "name", "category", "module", "scope", "location", "phase", "count", "kernels", "time_s", "self_time_s", "unit", "dtype",
  "flops", "rate", "intensity", "ridge", "attainable", "floor_s", "serial_s", "expected_s", "bound", "efficiency",
];
const UNKNOWN_AMOUNT = "?";

/**
 * Rows under columns, headed by the columns' keys; unknown is an empty cell.
 * @param {Object[]} rows
 * @param {{key: string}[]} columns
 * @returns {string}
 */
export function toCsv(rows, columns) {
  const lines = [columns.map((column) => column.key), ...rows.map((row) => columns.map((column) => row[column.key]))];
  return written(lines);
}

/**
 * Ops under the same headings as `roofline analyze --csv`: their fields, a column for each resource that any of them uses, then rates and
 * intensities over each level, what counters saw, and the steps and devices they ran in.
 * @param {import("#page/rows.js").Row[]} rows
 * @returns {string}
 */
export function opsCsv(rows) {
  const counters = rows.map((row) => row.counters);
  const resources = named(rows.flatMap((row) => [row.work, row.moved, row.hops]));
  const levels = named(rows.map((row) => row.moved));
  const counted = named(counters.filter(Boolean).flatMap((seen) => [seen.work, seen.bytes]));
  const about = counters.some(Boolean) && counted.length ? ["launches", "of", "time_s"] : [];
  const zeros = Object.fromEntries(counted.map((name) => [name, 0])); // what was counted and not found
  const heading = [
    ...OP_FIELDS, "work_provenance", "bytes_provenance", ...resources,
    ...levels.map((level) => `bandwidth:${level}`), ...levels.map((level) => `intensity:${level}`),
    ...[...about, ...counted].map((name) => `counted:${name}`), "steps", "devices",
  ];
  const cells = (row) => {
    const amounts = { ...row.work, ...row.moved, ...row.hops };
    const seen = row.counters;
    return [
      ...OP_FIELDS.map((field) => fieldOf(row, field)),
      row.provenance.work ?? "", row.provenance.bytes ?? "",
      ...resources.map((name) => (name in amounts ? amounts[name] ?? UNKNOWN_AMOUNT : 0)),
      ...levels.map((level) => ratio(row.moved[level], row.time_s)),
      ...levels.map((level) => (row.flops ? ratio(row.flops, row.moved[level]) : null)),
      ...about.map((name) => seen?.[name]),
      ...counted.map((name) => (seen ? { ...zeros, ...seen.work, ...seen.bytes }[name] : null)),
      ranges(row.steps), ranges(row.devices),
    ];
  };
  return written([heading, ...rows.map(cells)]);
}

/** A field of a row; those over a level are over main memory here, whatever the page shows. */
function fieldOf(row, field) {
  if (field === "intensity") return row.flops === null || "hbm" in row.moved === false ? null : ratio(row.flops, row.moved.hbm);
  return field === "ridge" ? row.main_ridge : row[field];
}

function named(amounts) {
  return [...new Set(amounts.flatMap(Object.keys))].sort();
}

function ratio(part, whole) {
  return part === null || part === undefined || !whole ? null : part / whole;
}

function written(lines) {
  return lines.map((line) => `${line.map(cell).join(",")}\n`).join("");
}

/** A cell. A text that a spreadsheet would take for a formula is quoted with an apostrophe before it; numbers are never touched. */
function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = Array.isArray(value) ? value.join(" ") : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
