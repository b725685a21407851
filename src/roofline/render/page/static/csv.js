/** Tables as CSV by RFC 4180, numbers raw in base units. */

import { VOCABULARY } from "#page/vocabulary.js";

/** Rows under columns, headed by the columns' keys; unknown is an empty cell. */
export const toCsv = (rows, columns) => written([columns.map(({ key }) => key), ...rows.map((row) => columns.map(({ key }) => row[key]))]);

/** Ops as `roofline analyze` reads them back: the fields that `--csv` begins with, and a column for each resource that any of them uses. */
export function opsCsv(rows) {
  const amounts = rows.map((row) => ({ ...row.work, ...row.moved, ...row.hops }));
  const resources = [...new Set(amounts.flatMap(Object.keys))].sort();
  const amount = (of, name) => (name in of ? of[name] ?? "?" : 0);
  const cells = (row, index) => [
    ...VOCABULARY.csv.map((field) => (field in row.main ? row.main[field] : row[field])),
    ...resources.map((name) => amount(amounts[index], name)),
  ];
  return written([[...VOCABULARY.csv, ...resources], ...rows.map(cells)]);
}

const written = (lines) => lines.map((line) => `${line.map(cell).join(",")}\n`).join("");

/** A cell. A text that a spreadsheet would take for a formula is quoted with an apostrophe before it; numbers are never touched. */
function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = Array.isArray(value) ? value.join(" ") : String(value);
  const safe = /^[=+\-@\t\r\n]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
