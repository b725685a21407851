import assert from "node:assert/strict";
import test from "node:test";

import { percent, plain, prefixed, show, unbroken } from "../../src/roofline/render/page/static/units.js";
import { VECTORS } from "./cases.mjs";

test("quantities read as Python writes them", () => {
  for (const [value, dimension, words] of VECTORS.show) assert.equal(show(value, dimension), words, `${value} ${dimension}`);
  for (const [value, dimension, words] of VECTORS.show3) assert.equal(show(value, dimension, 3), words, `${value} ${dimension}`);
  for (const [value, dimension, words] of VECTORS.show2) assert.equal(show(value, dimension, 2), words, `${value} ${dimension}`);
});

test("bare numbers and shares read as Python writes them", () => {
  for (const [value, words] of VECTORS.plain) assert.equal(plain(value), words, value);
  for (const [value, words] of VECTORS.percent) assert.equal(percent(value), words, value);
});

test("axes show a prefix without a unit", () => {
  assert.deepEqual([prefixed(1e13), prefixed(1), prefixed(0)], ["10 T", "1", "0"]);
});

test("no line ends between a number and its unit", () => {
  assert.equal(unbroken("About 4.2 ms per step on 4 H200"), "About 4.2\u00a0ms\u00a0per\u00a0step on 4\u00a0H200");
});
