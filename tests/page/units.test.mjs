import assert from "node:assert/strict";
import test from "node:test";

import { parse, percent, plain, prefixed, read, show } from "../../src/roofline/render/page/static/units.js";
import { VECTORS } from "./cases.mjs";
import { close } from "./close.mjs";

test("quantities read as Python writes them", () => {
  for (const [value, dimension, words] of VECTORS.show) assert.equal(show(value, dimension), words, `${value} ${dimension}`);
  for (const [value, dimension, words] of VECTORS.show3) assert.equal(show(value, dimension, 3), words, `${value} ${dimension}`);
});

test("bare numbers and shares read as Python writes them", () => {
  for (const [value, words] of VECTORS.plain) assert.equal(plain(value), words, value);
  for (const [value, words] of VECTORS.percent) assert.equal(percent(value), words, value);
});

test("quantities that people write mean what Python takes them for", () => {
  for (const [text, dimension, value] of VECTORS.parse) {
    if (/^-?[\d.]+ (G)$/.test(text)) continue; // a bare prefix is a number here, for filters
    close(parse(text, dimension), value, `${text} in ${dimension}`);
  }
});

test("a bare prefix is a number in filters", () => {
  assert.deepEqual(read("1G"), { value: 1e9, dimension: "" });
  assert.deepEqual(read("2Ki"), { value: 2048, dimension: "" });
});

test("axes show a prefix without a unit", () => {
  assert.deepEqual([prefixed(1e13), prefixed(1), prefixed(0)], ["10 T", "1", "0"]);
});
