import assert from "node:assert/strict";
import test from "node:test";

import { DIFFERENCE_COLUMNS } from "../../src/roofline/render/page/static/columns.js";
import { changed, differenceColumns, differences } from "../../src/roofline/render/page/static/comparison.js";
import { cases } from "./cases.mjs";

test("differences are Python's deltas, what became slower first, with a value for every column", () => {
  for (const { name, comparison } of cases("pair")) {
    const rows = differences(comparison);
    const seen = rows.toSorted((one, other) => one.id - other.id);
    assert.deepEqual(seen.map((row) => [row.name, row.change_s, row.ops]), comparison.deltas.map((delta) => [delta.name, delta.change_s, delta.after.ops]), name);
    const changes = rows.map((row) => row.change_s ?? 0);
    const slower = changes.filter((change) => change > 0).length;
    assert.ok(changes.slice(0, slower).every((change, index, all) => change > 0 && (!index || all[index - 1] >= change)), name);
    assert.ok(changes.slice(slower).every((change, index, all) => change <= 0 && (!index || all[index - 1] <= change)), name);
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

test("without measured times the columns are those of minimum times and costs", () => {
  const [{ comparison }] = cases("pair");
  const keys = (found) => differenceColumns(found).map(({ key }) => key);
  assert.ok(keys(comparison).includes("change_s") && !keys(comparison).includes("floor_change_s"));
  const untimed = { ...comparison, basis: "minimum time" };
  assert.deepEqual(keys(untimed).filter((key) => ["before_s", "after_s", "change_s", "speedup", "before_efficiency"].includes(key)), []);
  for (const key of ["before_floor_s", "after_floor_s", "floor_change_s", "before_flops", "after_hbm", "after_launches"]) assert.ok(keys(untimed).includes(key));
  for (const row of differences(untimed)) {
    const { before, after } = comparison.deltas[row.id];
    assert.deepEqual([row.before_floor_s, row.after_flops], [before.ops.length ? before.floor_s : null, after.ops.length ? after.flops : null]);
    assert.equal(row.floor_change_s, comparison.deltas[row.id].floor_change_s);
  }
});

test("an op of which nothing differs has not changed", () => {
  const side = (ops, more = {}) => ({ ops, names: ops.map(String), time_s: 3, floor_s: 1, bytes: { hbm: 2 }, bound: "hbm", ...more });
  assert.ok(!changed({ before: side([1]), after: side([2]) }));
  for (const other of [side([2], { time_s: 4 }), side([2], { bytes: { hbm: 3 } }), side([2], { bound: "l2" }), side([])]) assert.ok(changed({ before: side([1]), after: other }));
});
