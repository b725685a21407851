import assert from "node:assert/strict";
import test from "node:test";

import { rowsOf } from "../../src/roofline/render/page/static/chart_model.js";
import { DEFAULTS } from "../../src/roofline/render/page/static/state.js";
import { bucketIn, lanesOf, longestOf, opsIn, partsOf, spansOf } from "../../src/roofline/render/page/static/stretch.js";
import { cases } from "./cases.mjs";

const lane = (device, step, ops) => ({ device, step, ops, at_roof_s: ops.map(() => 1), causes: { idle: ops.map((some) => (some.length ? 0 : 2)) } });
const { report: whole } = cases("report").find(({ report }) => report.ops.length > 5);
const [first, second, third] = whole.ops.map(({ id }) => id);
const report = {
  ...whole,
  input: { ...whole.input, devices: [{ id: 0, host: "north" }, { id: 1, host: "south" }] },
  timeline: [lane(0, 3, [[first], [], [second]]), lane(0, null, [[first, second]]), lane(1, 3, [[], [third], []]), lane(1, null, [[third]])],
};

test("a state shows the lanes of a step or of the run, on the chosen device or host", () => {
  const shown = (state) => lanesOf(report, { ...DEFAULTS, ...state }).map(({ device, step }) => [device, step]);
  assert.deepEqual(shown({}), [[0, 3], [1, 3]]);
  assert.deepEqual(shown({ timeline: "run" }), [[0, null], [1, null]]);
  assert.deepEqual(shown({ device: 1 }), [[1, 3]]);
  assert.deepEqual(shown({ host: "north", timeline: "run" }), [[0, null]]);
});

test("a run without steps shows the run, a report without a timeline nothing", () => {
  const run = { ...report, timeline: report.timeline.filter(({ step }) => step === null) };
  assert.deepEqual(spansOf(run), ["run"]);
  assert.deepEqual(lanesOf(run, DEFAULTS).map(({ device }) => device), [0, 1]);
  assert.deepEqual(spansOf(whole), []);
  assert.equal(opsIn(whole, { ...DEFAULTS, stretch: [0, 5] }), null);
});

test("a stretch keeps the ops that ran there, on whichever device is shown", () => {
  const ran = (state) => [...opsIn(report, { ...DEFAULTS, ...state })];
  assert.deepEqual(ran({ stretch: [0, 1] }), [first, third]);
  assert.deepEqual(ran({ stretch: [1, 99] }), [second, third]);
  assert.deepEqual(ran({ stretch: [1, 2], device: 0 }), [second]);
  assert.deepEqual(ran({ stretch: [1, 1], device: 0 }), []);
  assert.equal(opsIn(report, DEFAULTS), null);
});

test("the table and the chart show what passes the stretch and the filters", () => {
  const ids = (state) => rowsOf(report, { ...DEFAULTS, ...state }).filtered.map(({ id }) => id).sort((one, other) => one - other);
  assert.deepEqual(ids({ stretch: [0, 1] }), [first, third].sort((one, other) => one - other));
  assert.deepEqual(ids({ stretch: [0, 1], filter: `id=${third}` }), [third]);
  assert.equal(ids({}).length, whole.ops.length);
});

test("the parts of a bucket are those that are there, what is needed first and idle last", () => {
  assert.deepEqual(partsOf(report.timeline[0], 0), [{ cause: "needed", seconds: 1 }]);
  assert.deepEqual(partsOf(report.timeline[0], 1), [{ cause: "needed", seconds: 1 }, { cause: "idle", seconds: 2 }]);
});

test("lanes of hosts that ran for different times are by the clock of the longest", () => {
  const timed = (device, bucket_s, ops) => ({ ...lane(device, null, ops), bucket_s, time_s: bucket_s * ops.length });
  const [short, long] = [timed(0, 1, [[first], [second]]), timed(1, 2, [[], [third]])];
  assert.equal(longestOf([short, long]), long);
  assert.equal(longestOf([]), undefined);
  assert.deepEqual([0, 1].map((bucket) => bucketIn(short, long, bucket)), [0, 2]);
  // The second half of the long run comes after the end of the short one.
  assert.deepEqual([...opsIn({ ...report, timeline: [short, long] }, { ...DEFAULTS, stretch: [1, 1] })], [third]);
});
