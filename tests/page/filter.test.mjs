import assert from "node:assert/strict";
import test from "node:test";

import { HELP, parse, read } from "../../src/roofline/render/page/static/filter.js";
import { select, totals } from "../../src/roofline/render/page/static/rows.js";
import { cases, VECTORS } from "./cases.mjs";
import { close } from "./close.mjs";

const ROWS = [
  { name: "fusion.1", category: "loop fusion", bound: "hbm", dtype: "fp32", module: "jit_step", time_s: 8, self_time_s: 8, efficiency: 0.4, intensity: 0.5, flops: 5e8, bytes: 1e9, count: 4, rank: 1, steps: [0, 1], notes: [] },
  { name: "dot-general.2", category: "matmul", bound: "matrix", dtype: "bf16", module: "jit_step", time_s: 1, self_time_s: 1, efficiency: 0.9, intensity: 200, flops: 2e12, bytes: 1e6, count: 12, rank: 2, steps: [1], notes: [] },
  { name: "Layer Norm", category: "", bound: "latency", dtype: null, module: "jit_init", time_s: 1, self_time_s: 1, efficiency: null, intensity: null, flops: 0, bytes: null, count: 1, rank: 3, steps: [], notes: ["a note"] },
];
const TOTALS = { weight: 10, flops: 2.0005e12, count: 17 };

function ranks(text) {
  const { test: passes, problem } = parse(text);
  assert.equal(problem, null, `${text}: ${problem?.message}`);
  return ROWS.filter((row) => passes(row, TOTALS)).map((row) => row.rank);
}

test("every form of the language chooses the rows it says", () => {
  const expected = {
    "": [1, 2, 3],
    "  ": [1, 2, 3],
    FUSION: [1],
    "dot-general": [2],
    '"layer norm"': [3],
    "layer norm": [3], // both words, anywhere
    "/^(fusion|dot)/": [1, 2],
    "/layer/": [],
    "/layer/i": [3],
    "-fusion": [2, 3],
    "not fusion": [2, 3],
    "-/o/": [3].filter(() => false), // every name has an o
    "efficiency<0.5": [1],
    "efficiency<50%": [1],
    "efficiency>=90%": [2],
    "efficiency!=0.9": [1, 3], // what is unknown differs from any value
    "efficiency=none": [3],
    "time>50%": [1], // 8 of 10 s
    "time>=10%": [1, 2, 3],
    "time>500ms": [1, 2, 3],
    "time>1": [1],
    "flops>1G": [2],
    "flops>=1 efficiency<0.5": [1],
    "bytes<2MB": [2],
    "bytes<=1MiB": [2],
    "intensity>=100": [2],
    "count>10": [2],
    "count=4": [1],
    "rank<=2 bound=hbm": [1],
    "category:fusion": [1],
    "category=fusion": [],
    'category="loop fusion"': [1],
    "category=none": [3],
    "bound=HBM,latency": [1, 3],
    "bound!=hbm": [2, 3],
    "dtype=bf16": [2],
    "dtype=none": [3],
    "program:step": [1, 2],
    "name:/\\.\\d$/": [1, 2],
    "note:note": [3],
    "step:0": [1],
    "step=0,1": [1, 2],
    "step>0": [1, 2],
    "fusion or matrix": [1],
    "fusion or bound=matrix": [1, 2],
    "fusion and bound=matrix": [],
    "fusion OR bound=matrix AND count<5": [1], // and binds closer than or
    "(fusion or bound=matrix) count<5": [1],
    "not (fusion or dot)": [3],
    "-(fusion or dot)": [3],
    "not not fusion": [1],
  };
  for (const [text, wanted] of Object.entries(expected)) assert.deepEqual(ranks(text), wanted, text);
});

test("what is wrong is said, with its place, and everything passes", () => {
  const expected = {
    "(fusion": ["parenthesis", 0], "fusion)": ["parenthesis", 6], "()": ["parenthesis", 1], "/[/": ["regular expression", 0], "/open": ["closing", 0], '"open': ["closing quote", 0],
    "/a/g": ["flags", 0], "colour=red": ["unknown field", 0], "time>": ["value", 5], "time>fast": ["not a quantity in s", 5], "time>3MB": ["not a quantity in s", 5], "achieved>5%": ["total", 9],
    "bound<3": ["text", 5], "step:x": ["whole number", 5], or: ["before", 0], "fusion or": ["after", 7], "fusion and": ["after", 7], not: ["after", 0], "bound=,": ["missing", 6],
  };
  for (const [text, [words, at]] of Object.entries(expected)) {
    const { test: passes, problem } = parse(text);
    assert.ok(problem, text);
    assert.ok(problem.message.includes(words), `${text}: ${problem.message}`);
    assert.equal(problem.at, at, text);
    assert.ok(ROWS.every((row) => passes(row, TOTALS)));
  }
});

test("quantities that people write mean what Python takes them for", () => {
  for (const [text, dimension, value] of VECTORS.parse) {
    if (/^-?[\d.]+ (G)$/.test(text)) continue; // a bare prefix is a number here
    const found = read(text);
    const fits = found && found.value >= 0 && (found.dimension === "" || found.dimension === dimension);
    close(fits ? found.value : null, value, `${text} in ${dimension}`);
  }
  assert.deepEqual([read("1G"), read("2Ki")], [{ value: 1e9, dimension: "" }, { value: 2048, dimension: "" }]);
});

test("earlier names of fields still work", () => {
  assert.deepEqual(ranks("module:step format=bf16 source=none"), ranks("program:step dtype=bf16 location=none"));
});

test("no text makes it throw", () => {
  const letters = ["(", ")", "-", "/", '"', "\\", "time", "bound", "name", "<", ">=", "=", ":", "or", "and", "not", " ", "1%", "e9", "[", "]", "*", "z-a", "ü", "\ud800", "\n", ",", "none", "0"];
  let seed = 7;
  const random = (most) => (seed = (seed * 48271) % 2147483647) % most;
  for (let round = 0; round < 20000; round += 1) {
    const text = Array.from({ length: random(9) }, () => letters[random(letters.length)]).join("");
    const { test: passes } = parse(text);
    for (const row of ROWS) assert.equal(typeof passes(row, TOTALS), "boolean", text);
  }
  for (const text of [null, undefined, 3, "(".repeat(100000), "-".repeat(100000), "a or ".repeat(10000)]) assert.ok(parse(text).test);
});

test("the examples of the help are filters", () => {
  for (const [example] of HELP) assert.equal(parse(example).problem, null, example);
});

test("a filter keeps the ops that it keeps in Python", () => {
  for (const { name, report, filters } of cases("report")) {
    const rows = select(report);
    const sum = totals(rows);
    for (const [text, ids] of Object.entries(filters)) {
      const { test: passes, problem } = parse(text);
      assert.equal(problem, null, text);
      const found = rows.filter((row) => passes(row, sum)).map((row) => row.id);
      assert.deepEqual(found.sort((one, other) => one - other), ids.sort((one, other) => one - other), `${name}: ${text}`);
    }
  }
});

test("what Python cannot read is wrong here too, at the same place and in the same words", () => {
  for (const [text, at, reason] of VECTORS.broken_filters) {
    const { problem } = parse(text);
    // The page lists the fields where Python finds a like one.
    const words = (message) => message?.replace(/; (did you mean|fields: ).*/, "") ?? null;
    assert.deepEqual([problem?.at ?? null, words(problem?.message)], [at, words(reason)], text);
  }
});
