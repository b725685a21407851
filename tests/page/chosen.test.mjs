import assert from "node:assert/strict";
import test from "node:test";

import { chipsOf } from "../../src/roofline/render/page/static/catalogue.js";
import { machineOf, rowsOf } from "../../src/roofline/render/page/static/chart_model.js";
import { causeOf, chosen, NEEDED } from "../../src/roofline/render/page/static/chosen.js";
import { boundTitle } from "../../src/roofline/render/page/static/facts.js";
import { pair } from "../../src/roofline/render/page/static/headline.js";
import { programRows } from "../../src/roofline/render/page/static/program_rows.js";
import { DEFAULTS } from "../../src/roofline/render/page/static/state.js";
import { title } from "../../src/roofline/render/page/static/law.js";
import { cases, VECTORS } from "./cases.mjs";
import { close } from "./close.mjs";

const REPORTS = cases("report");
const CATALOGUE = chipsOf(cases("catalogue")[0].packed);

function choose(report, patch = {}) {
  const state = { ...DEFAULTS, ...patch };
  const machine = machineOf(report, state, CATALOGUE);
  const { all } = rowsOf(report, state, machine);
  return { machine, all, ...chosen(report, state, { all, program: programRows(report, state, machine), machine }) };
}

const sum = (parts) => parts.reduce((all, { seconds }) => all + seconds, 0);

test("the parts of a measured time add up to it", () => {
  for (const { name, report } of REPORTS) {
    const { time_s, parts, minimum } = choose(report);
    if (!minimum && parts.length > 1) assert.ok(Math.abs(sum(parts) / time_s - 1) < 1e-3, name);
  }
});

test("the ops of every device give the losses that Python found", () => {
  const met = [];
  for (const { name, report } of REPORTS) {
    const devices = report.input.devices ?? [];
    const total = report.points.find((point) => point.scope === "total" && point.infeed_outfeed);
    if (!devices.length || !report.by_device.length || !total?.time_s || report.coverage.wall_s === null) continue; // a table has no clock
    const each = devices.map(({ id }) => choose(report, { device: id }));
    const mean = (value) => each.reduce((all, one) => all + value(one), 0) / devices.length;
    for (const [cause, seconds] of Object.entries({ ...total.lost, [NEEDED]: total.at_roof_s })) {
      const found = mean(({ parts }) => parts.find((part) => part.cause === cause)?.seconds ?? 0);
      assert.ok(Math.abs(found - seconds) < 2e-3 * total.time_s, `${name} ${cause} ${found} ${seconds}`);
    }
    if (total.mfu) close([mean(({ mfu }) => mfu), mean(({ hfu }) => hfu)], [total.mfu, total.hfu], name, 1e-2);
    met.push(devices.length);
  }
  assert.ok(met.length >= 4 && met.some((devices) => devices > 1));
});

test("a step has its own time, and a chip its own minimum", () => {
  const { report } = REPORTS.find(({ name }) => name.includes("jax_train"));
  const step = report.points.find((point) => point.scope === "step" && point.step === 2);
  const choice = choose(report, { step: 2 });
  assert.equal(choice.time_s, step.time_s);
  assert.equal(choice.title, "step 2 train");
  const other = choose(report, { chip: "a100-sxm4-80" });
  assert.ok(other.minimum && other.time_s === null && other.floor_s > choice.floor_s);
  close(sum(other.parts), other.floor_s, "", 1e-6);
});

test("what runs beside other ops is in the minimum of a program as far as these wait for it, on its chip and on another", () => {
  for (const { name, report, minimum } of cases("program")) {
    for (const [chip, least_s] of Object.entries(minimum)) {
      const { floor_s, time_s, parts, all } = choose(report, { chip: chip === "v5e" ? null : `tpu-${chip}` });
      assert.equal(time_s !== null, chip === "v5e", "predicted where the schedule was played");
      close(floor_s, least_s, `${name} ${chip}`, 1e-9);
      close(sum(parts), time_s ?? least_s, `${name} ${chip}`, 1e-5);
      if (time_s === null) assert.ok(all.reduce((added, row) => added + row.floor_s, 0) > 1.01 * least_s, "ops overlap");
    }
  }
});

test("a unit that stays is written once", () => {
  assert.equal(pair("691.5 GFLOP", "414.5 GFLOP"), "691.5 → 414.5 GFLOP");
  assert.equal(pair("6.07 ms", "681 µs"), "6.07 ms → 681 µs");
  assert.equal(pair("48%", "61%"), "48% → 61%");
  assert.equal(pair("5 ms", "5 ms"), "5 ms");
  assert.equal(pair(undefined, "5 ms"), "5 ms");
});

test("what bounds an op has Python's words and Python's cause", () => {
  for (const [bound, words, cause] of VECTORS.bounds) {
    assert.equal(boundTitle(bound), bound && bound !== "latency" ? words.replace(bound, title(bound)) : words);
    assert.equal(causeOf({ bound, efficiency: 0.5, time_s: 1 }), cause, bound);
  }
  assert.equal(causeOf({ bound: null, efficiency: null, time_s: 1, unknown: [], unrated: [] }), "latency"); // no work at all
  assert.equal(causeOf({ bound: "hbm", efficiency: 0.5, time_s: 1, unknown: ["compute"], unrated: [] }), "unpriced");
  assert.equal(causeOf({ bound: null, efficiency: null, time_s: 1, unknown: [], unrated: ["matrix/int4"] }), "unpriced");
  assert.equal(causeOf({ bound: "hbm", efficiency: 0.5, time_s: 1, unknown: [], unrated: ["l1"] }), "memory");
  assert.equal(causeOf({ category: "autotuning", bound: null, efficiency: null, time_s: 1 }), "autotuning");
});
