import assert from "node:assert/strict";
import test from "node:test";

import { chartModel } from "../../src/roofline/render/page/static/chart_model.js";
import { DEFAULTS } from "../../src/roofline/render/page/static/state.js";
import { toSvg } from "../../src/roofline/render/page/static/svg.js";
import { cases } from "./cases.mjs";

/** Whether every element is closed in order and every attribute quoted: enough of XML for what we write. */
function wellFormed(text) {
  const open = [];
  for (const [, close, name, attributes, alone] of text.matchAll(/<(\/?)([a-zA-Z]+)((?:\s+[\w-]+="[^"<]*")*)\s*(\/?)>/g)) {
    if (close) assert.equal(open.pop(), name);
    else if (!alone) open.push(name);
    assert.ok(attributes !== undefined);
  }
  assert.deepEqual(open, []);
  assert.ok(!/[<>]/.test(text.replace(/<\/?[a-zA-Z]+(?:\s+[\w-]+="[^"<]*")*\s*\/?>/g, "")), "a bare bracket");
}

test("a chart is a well-formed SVG with a circle for every dot", () => {
  for (const { report } of cases("report")) {
    for (const theme of ["light", "dark"]) {
      const model = chartModel(report, DEFAULTS);
      const text = toSvg(model, { theme, selected: [0] });
      wellFormed(text);
      assert.ok(text.startsWith('<svg xmlns="http://www.w3.org/2000/svg"'));
      const marks = model.dots.length + model.strip.length;
      assert.equal((text.match(/<circle[^>]*><title>/g) ?? []).length, marks);
      assert.ok(!/NaN|undefined|Infinity|null/.test(text.replace(/<title>.*?<\/title>/gs, "")));
      assert.ok(!/href|url\((?!#clip\d+\))|@import|<script/.test(text));
    }
  }
});

test("names that look like markup stay text", () => {
  const { report } = cases("report").find(({ name }) => name.includes("odd"));
  const ops = report.ops.map((op) => ({ ...op, name: `</title><script>alert(1)</script>&"'\u0000\ud800${op.name}` }));
  const text = toSvg(chartModel({ ...report, ops }, DEFAULTS));
  wellFormed(text);
  assert.ok(!text.includes("<script>") && text.includes("&lt;script&gt;") && !text.includes("\u0000"));
});

test("a long caption is wrapped within the drawing", () => {
  const text = toSvg({ ...chartModel(cases("report")[0].report, DEFAULTS), caption: "word ".repeat(60).trim(), edge: "" }, { width: 960 });
  const lines = [...text.matchAll(/<text[^>]*>((?:word ?)+)<\/text>/g)].map(([, words]) => words.length);
  assert.equal(lines.reduce((sum, one) => sum + one + 1, 0), 300);
  assert.ok(lines.length > 1 && lines.every((letters) => letters * 6.8 < 960));
});

test("an empty chart and a chart with arrows are drawn", () => {
  const { report } = cases("report").find(({ name }) => name.includes("odd"));
  wellFormed(toSvg(chartModel({ ...report, ops: [], points: [], by_step: [], by_device: [] }, DEFAULTS)));
  const [{ before, after, comparison }] = cases("pair");
  const model = chartModel(after, DEFAULTS, { before, comparison });
  wellFormed(toSvg(model));
});
