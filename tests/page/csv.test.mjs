import assert from "node:assert/strict";
import test from "node:test";

import { opColumns } from "../../src/roofline/render/page/static/columns.js";
import { opsCsv, toCsv } from "../../src/roofline/render/page/static/csv.js";
import { select } from "../../src/roofline/render/page/static/rows.js";
import { cases } from "./cases.mjs";
import { close } from "./close.mjs";

/** Records of a CSV text, quotes taken off. */
function records(text) {
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|$)/g)) {
    rows[rows.length - 1].push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end.includes("\n")) rows.push([]);
  }
  return rows.slice(0, -1);
}

test("ops have the headings and cells of the Python export", () => {
  for (const { name, report, csv } of cases("report")) {
    const [mine, theirs] = [records(opsCsv(select(report))), records(csv)];
    assert.deepEqual(mine[0], theirs[0], name);
    assert.equal(mine.length, theirs.length);
    mine.slice(1).forEach((row, index) => row.forEach((cell, column) => {
      const expected = theirs[index + 1][column];
      const number = cell !== "" && expected !== "" && Number.isFinite(Number(expected));
      if (number) close(Number(cell), Number(expected), `${name} ${mine[0][column]}`);
      else assert.equal(cell, expected, `${name} ${mine[0][column]}`);
    }));
  }
});

test("numbers are raw and texts cannot become formulas", () => {
  const text = toCsv([{ name: "=1+1", time_s: -0.5 }, { name: 'a "b", c\nd', time_s: null }], [{ key: "name" }, { key: "time_s" }]);
  assert.equal(text, 'name,time_s\n\'=1+1,-0.5\n"a ""b"", c\nd",\n');
});

test("any choice of columns is headed by its keys", () => {
  const { report } = cases("report")[0];
  const columns = opColumns(report);
  const rows = records(toCsv(select(report), columns));
  assert.deepEqual(rows[0], columns.map((column) => column.key));
  assert.equal(rows.length, report.ops.length + 1);
});
