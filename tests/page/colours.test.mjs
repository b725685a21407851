import assert from "node:assert/strict";
import test from "node:test";

import { assign, COLOURINGS, ofUnit, THEMES } from "../../src/roofline/render/page/static/colours.js";
import { select } from "../../src/roofline/render/page/static/rows.js";
import { cases } from "./cases.mjs";

/** The WCAG contrast of two colours. */
function contrast(one, other) {
  const luminance = (hex) => {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

test("text can be read and lines can be seen in both themes", () => {
  for (const theme of Object.values(THEMES)) {
    for (const colour of [theme.ink, theme.muted]) assert.ok(contrast(colour, theme.background) >= 4.5, colour);
    for (const colour of theme.series) assert.ok(contrast(colour, theme.background) >= 3, colour);
  }
});

test("colours are those of the figures, and a unit has the same one in both", () => {
  const [{ themes }] = cases("themes");
  for (const { name, units, ...colours } of themes) {
    for (const [key, colour] of Object.entries(colours)) assert.deepEqual(THEMES[name][key], colour, `${name} ${key}`);
    for (const [unit, colour] of units) assert.equal(ofUnit(THEMES[name], unit), colour, `${name} ${unit}`);
  }
});

test("groups have colours of their own while there are any, then share one grey", () => {
  const marks = Array.from({ length: 9 }, (_, index) => ({ category: `kind ${index}`, weight: 10 - index }));
  const { colours, legend, colourOf } = assign([...marks, { category: "", weight: 99 }], "category", THEMES.light);
  assert.equal(new Set([...colours.values()]).size, THEMES.light.series.length + 1);
  assert.deepEqual(legend.slice(0, 3).map((entry) => entry.title), ["no category", "kind 0", "kind 1"]);
  assert.equal(colourOf({ category: "kind 8" }), THEMES.light.muted);
  assert.equal(colourOf({ category: "never seen" }), THEMES.light.muted);
});

test("every colouring has a legend for real reports, and the order of rows does not change it", () => {
  for (const { report } of cases("report")) {
    const rows = select(report);
    for (const { key } of COLOURINGS) {
      const { colours, legend } = assign(rows, key, THEMES.dark);
      assert.equal(legend.reduce((sum, entry) => sum + entry.count, 0), rows.length);
      assert.deepEqual([...assign([...rows].reverse(), key, THEMES.dark).colours].sort(), [...colours].sort());
    }
  }
});

test("a roof has the colour of the dots that it bounds", () => {
  const marks = [{ bound: "matrix", dtype: "bf16", weight: 2 }, { bound: "hbm", dtype: "fp32", weight: 1 }, { bound: "vector", dtype: "fp32", weight: 1 }];
  for (const theme of Object.values(THEMES)) {
    const byBound = assign(marks, "bound", theme);
    const roofs = { matrix: "matrix/bf16", hbm: "hbm", vector: "vector/fp32" };
    for (const mark of marks) assert.equal(byBound.roofColour(roofs[mark.bound]), byBound.colourOf(mark));
    const byFormat = assign(marks, "dtype", theme);
    assert.equal(byFormat.roofColour("matrix/bf16"), byFormat.colourOf(marks[0]));
    assert.equal(assign(marks, "category", theme).roofColour("hbm"), theme.muted);
  }
});
