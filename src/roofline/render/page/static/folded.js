/** The table's rows with equal work as one, as the terminal has them: layers that do the same are one row, which opens. */

import { group } from "#page/groups.js";
import { complete, sort } from "#page/rows.js";

/**
 * Rows with those that the report folds as one; `opened` are the ids of folds whose ops follow them. A fold has `opens`, true where it is
 * open, and the rows inside of it `inside`.
 */
export function foldedRows(rows, { key, descending, whole_s, opened }) {
  const folds = complete(group(rows, "fold"), whole_s).map((row) => (row.kind === "group" ? { ...row, name: `${row.ops.length} ops` } : row));
  const known = new Map(rows.map((row) => [row.id, row]));
  return sort(folds, key, descending).flatMap((row) => {
    if (row.kind !== "group") return [row];
    const fold = { ...row, opens: opened.has(row.id) };
    return fold.opens ? [fold, ...row.ops.map((id) => ({ ...known.get(id), inside: true }))] : [fold];
  });
}
