import assert from "node:assert/strict";
import test from "node:test";

import { DIFFERENCE_COLUMNS } from "../../src/roofline/render/page/static/columns.js";
import { differences } from "../../src/roofline/render/page/static/comparison.js";
import { cases } from "./cases.mjs";

test("differences are Python's deltas, in their order, with a value for every column", () => {
  for (const { name, comparison } of cases("pair")) {
    const rows = differences(comparison);
    assert.deepEqual(rows.map((row) => [row.name, row.change_s, row.ops]), comparison.deltas.map((delta) => [delta.name, delta.change_s, delta.after.ops]), name);
    for (const row of rows) for (const { key, format } of DIFFERENCE_COLUMNS) assert.ok(key in row && !/NaN|undefined/.test(format(row[key])), key);
  }
});

test("a side without ops has no time, and no speedup", () => {
  const side = (ops, time_s) => ({ ops, time_s, efficiency: 0.5, bound: "hbm" });
  const deltas = [{ matched: "module and name", before: side([1], 3), after: side([2], 2) }, { matched: "new", before: side([], 0), after: side([3], 4) }];
  const [both, added] = differences({ deltas });
  assert.deepEqual([both.before_s, both.after_s, both.speedup, both.matched], [3, 2, 1.5, "program and name"]);
  assert.deepEqual([added.before_s, added.after_s, added.speedup], [null, 4, null]);
});
