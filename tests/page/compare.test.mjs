import assert from "node:assert/strict";
import test from "node:test";

import { DIFFERENCE_COLUMNS } from "../../src/roofline/render/page/static/columns.js";
import { differences, pair, pairsOf, summary } from "../../src/roofline/render/page/static/compare.js";
import { cases } from "./cases.mjs";
import { close } from "./close.mjs";

test("ops are paired as Python pairs them", () => {
  for (const { name, before, after, comparison } of cases("pair")) {
    const ordered = (pairs) => pairs.map((one) => JSON.stringify(one)).sort();
    assert.deepEqual(ordered(pair(before, after)), ordered(pairsOf(before, after, comparison)), name);
  }
});

test("differences are Python's deltas, largest first", () => {
  for (const { name, before, after, comparison } of cases("pair")) {
    for (const given of [null, comparison]) {
      const rows = differences(before, after, given);
      close(rows.map((row) => Math.abs(row.change_s ?? 0)), comparison.deltas.map((delta) => Math.abs(delta.change_s ?? 0)), name, 1e-9);
      const known = new Map(comparison.deltas.map((delta) => [JSON.stringify([delta.before.ops, delta.after.ops]), delta]));
      for (const row of rows) {
        const delta = known.get(JSON.stringify([row.before.ops, row.after.ops]));
        const where = `${name} ${row.name}`;
        for (const key of ["name", "module", "category", "matched", "before", "after", "change_s", "share"]) close(row[key], delta[key], `${where} ${key}`, 1e-9);
        for (const { key, format } of DIFFERENCE_COLUMNS) assert.ok(key in row && !/NaN|undefined/.test(format(row[key])), key);
      }
    }
  }
});

test("the summary is Python's", () => {
  for (const { name, before, after, comparison } of cases("pair")) {
    const found = summary(before, after, comparison);
    close(found.before, comparison.before, name, 1e-9);
    close(found.after, comparison.after, name, 1e-9);
    close(found.change_s, comparison.change_s, name, 1e-9);
    assert.ok(comparison.notes.join("\n").startsWith(found.notes.join("\n")));
  }
});
