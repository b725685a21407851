import assert from "node:assert/strict";
import test from "node:test";

import { foldedRows } from "../../src/roofline/render/page/static/folded.js";
import { select, totals } from "../../src/roofline/render/page/static/rows.js";
import { cases } from "./cases.mjs";

const LAYER = { label: "layer*/mlp dot ×2 layers", ops: [] };
const { report } = cases("report").find((one) => one.report.ops.length > 2);
const rows = select(report).map((row, index) => (index < 2 ? { ...row, fold: LAYER } : { ...row, fold: null }));
const whole_s = totals(rows).time_s;
const shown = (opened) => foldedRows(rows, { key: "time_s", descending: true, whole_s, opened });

test("equal work is one row with the sum of its times", () => {
  const fold = shown(new Set()).find((row) => row.kind === "group");
  assert.equal(shown(new Set()).length, rows.length - 1);
  assert.deepEqual(fold.ops, [rows[0].id, rows[1].id]);
  assert.equal(fold.time_s, rows[0].time_s + rows[1].time_s);
  assert.deepEqual([fold.opens, fold.name, fold.label], [false, "2 ops", LAYER.label]);
});

test("an open fold is followed by its ops", () => {
  const found = shown(new Set([`fold:${rows[0].id}`]));
  const place = found.findIndex((row) => row.kind === "group");
  assert.equal(found.length, rows.length + 1);
  assert.deepEqual(found.slice(place + 1, place + 3).map((row) => [row.id, row.inside]), [[rows[0].id, true], [rows[1].id, true]]);
});

test("ops of unknown work have no rate as one row either", () => {
  const unknown = rows.map((row) => (row.fold ? { ...row, flops: null, rate: null } : row));
  const fold = foldedRows(unknown, { key: "time_s", descending: true, whole_s, opened: new Set() }).find((row) => row.kind === "group");
  assert.deepEqual([fold.rate, fold.intensity], [null, null]);
});
