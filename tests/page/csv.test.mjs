import assert from "node:assert/strict";
import test from "node:test";

import { opColumns } from "../../src/roofline/render/page/static/columns.js";
import { opsCsv, toCsv } from "../../src/roofline/render/page/static/csv.js";
import { select } from "../../src/roofline/render/page/static/rows.js";
import { cases } from "./cases.mjs";

test("ops have the first headings and the cells of the Python export, and a column for each resource", () => {
  const op = { main: { intensity: 5 }, name: "a", time_s: 2, work: { "matrix/bf16": 50 }, moved: { hbm: null }, hops: {} };
  const [heading, first, second] = opsCsv([op, { ...op, moved: {} }]).trim().split("\n").map((line) => line.split(","));
  assert.deepEqual(heading.slice(-2), ["hbm", "matrix/bf16"]);
  assert.deepEqual([heading.indexOf("intensity"), heading.indexOf("time_s")].map((place) => first[place]), ["5", "2"]);
  assert.deepEqual([first.slice(-2), second.slice(-2)], [["?", "50"], ["0", "50"]]);
});

test("numbers are raw and texts cannot become formulas", () => {
  const text = toCsv([{ name: "=1+1", time_s: -0.5 }, { name: 'a "b", c\nd', time_s: null }], [{ key: "name" }, { key: "time_s" }]);
  assert.equal(text, 'name,time_s\n\'=1+1,-0.5\n"a ""b"", c\nd",\n');
});

test("any choice of columns is headed by its keys", () => {
  const { report } = cases("report")[0];
  const columns = opColumns(report);
  assert.equal(toCsv(select(report), columns).split("\n")[0], columns.map(({ key }) => key).join());
});
