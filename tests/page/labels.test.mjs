import assert from "node:assert/strict";
import test from "node:test";

import { chartNames, placeNames } from "../../src/roofline/render/page/static/labels.js";

test("an op is called by its place and what it does, by its shapes where others are called the same", () => {
  const ops = ["t.py:2  dot 64×32×16 fp32", "t.py:2  dot 8×32×16 fp32", "t.py:2  dot 8×32×16 fp32", "t.py:4  tanh fp32[8,16]"].map((label) => ({ label, name: "" }));
  assert.deepEqual(chartNames(ops), ["dot 64×32×16 fp32", "dot 8×32×16 fp32", "dot 8×32×16 fp32", "t.py:4 tanh"]);
  assert.deepEqual(chartNames([{ label: "", name: "fusion.1" }, { label: "", name: "fusion.2" }]), ["fusion.1", "fusion.2"]);
});

test("dots that are called the same are named once, at the first that has room", () => {
  const names = ["add", "add", "add", "mul"].map((name) => ({ label: "", name, weight: 1 }));
  const dots = { all: names, onPlot: 4, size: [5, 5, 5, 5], x: [300, 100, 100, 100], y: [100, 50, 150, 250] };
  const found = placeNames({ measureText: () => ({ width: 80 }) }, { dots, place: { plot: { x: 0, y: 0, w: 600, h: 300 } }, lines: [], program: [], at: null }, [{ x: 301, y: 100, r: 90 }], "serif");
  assert.deepEqual(found.map(({ text, index }) => [text, index]), [["add", 1], ["mul", 3]]);
});

test("a dot with room beside it is named though a crowd of heavier ones has none", () => {
  const crowd = 40; // more dots than may carry a name, one beside the other at the right end
  const names = Array.from({ length: crowd + 1 }, (_, index) => ({ label: "", name: `kernel number ${index}`, weight: crowd + 1 - index }));
  const dots = {
    all: names, onPlot: names.length, size: names.map(() => 10),
    x: names.map((_, index) => (index < crowd ? 590 - 2 * (index % 8) : 200)), y: names.map((_, index) => (index < crowd ? 10 + 7 * index : 200)),
  };
  const place = { plot: { x: 0, y: 0, w: 600, h: 300 } };
  const wide = { measureText: (text) => ({ width: 14 * text.length }) };
  const found = placeNames(wide, { dots, place, lines: [], program: [], at: null }, [{ x: 520, y: 150, r: 60 }], "sans-serif");
  assert.ok(found.some(({ text }) => text === `kernel number ${crowd}`), found.map(({ text }) => text).join());
});
