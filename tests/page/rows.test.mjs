import assert from "node:assert/strict";
import test from "node:test";

import { opColumns, PROGRAM_COLUMNS, UNTIMED_COLUMNS, USUAL_COLUMNS } from "../../src/roofline/render/page/static/columns.js";
import { efficiencyText } from "../../src/roofline/render/page/static/facts.js";
import { group, stem } from "../../src/roofline/render/page/static/groups.js";
import { machine, scaled } from "../../src/roofline/render/page/static/law.js";
import { programRows } from "../../src/roofline/render/page/static/program_rows.js";
import { averagedSteps, choices, complete, levels, ownMachine, select, sort, totals } from "../../src/roofline/render/page/static/rows.js";
import { VOCABULARY } from "../../src/roofline/render/page/static/vocabulary.js";
import { cases, VECTORS } from "./cases.mjs";
import { close } from "./close.mjs";

const REPORTS = cases("report");
const odd = REPORTS.find(({ name }) => name.includes("odd")).report;

test("a row of the whole report has the report's own figures", () => {
  for (const { name, report } of REPORTS) {
    const rows = select(report);
    assert.equal(rows.length, report.ops.length);
    const keys = "id rank name category count kernels time_s self_time_s flops rate unit dtype intensity ridge attainable floor_s serial_s expected_s bound efficiency lost_s".split(" ");
    rows.forEach((row, index) => keys.forEach((key) => close(row[key], report.ops[index][key], `${name} ${row.name} ${key}`)));
  }
});

test("work held against an equal machine gives the same rows", () => {
  for (const { name, report } of REPORTS) {
    const [mine, other] = [select(report), select(report, {}, machine(report.machine))];
    mine.forEach((row, index) => {
      for (const key of ["floor_s", "bound", "efficiency", "unit", "dtype", "peak", "attainable", "roofs"]) {
        close(other[index][key], row[key], `${name} ${row.name} ${key}`, 1e-9);
      }
    });
  }
});

test("steps and devices share out every op", () => {
  for (const { name, report } of REPORTS) {
    const { steps, devices } = choices(report);
    for (const [key, all] of [["step", steps], ["device", devices.map((one) => one.id)]]) {
      if (!all.length || !report[`by_${key}`].length) continue;
      const seconds = new Map();
      for (const one of all) for (const row of select(report, { [key]: one })) seconds.set(row.id, (seconds.get(row.id) ?? 0) + row.time_s);
      const listed = new Map();
      for (const share of report[`by_${key}`]) listed.set(share.op, (listed.get(share.op) ?? 0) + share.time_s);
      for (const [id, sum] of seconds) close(sum, listed.get(id), `${name} ${key} ${id}`, 1e-9);
    }
  }
});

test("the part of an op in a step, on a device or on a host is Python's", () => {
  let compared = 0;
  const keys = [
    "count", "kernels", "time_s", "self_time_s", "flops", "rate", "floor_s", "serial_s", "expected_s", "bound", "efficiency", "work", "times",
    "hops", "utilization", "needed", "needed_s", "unneeded", "lost_s",
  ];
  for (const { name, report, parts } of REPORTS) {
    for (const [choice, expected] of parts) {
      const where = `${name} ${JSON.stringify(choice)}`;
      const rows = new Map(select(report, choice).map((row) => [row.id, row]));
      assert.equal(rows.size, expected.length, where);
      for (const op of expected) {
        const row = rows.get(op.id);
        for (const key of keys) close(row[key], op[key], `${where} ${op.name} ${key}`, 1e-9);
        close(row.moved, op.bytes, `${where} ${op.name} bytes`, 1e-9);
        compared += 1;
      }
    }
  }
  assert.ok(compared > 100);
});

test("the average step is of Python's steps", () => {
  for (const [steps, averaged] of VECTORS.averaged_steps) assert.deepEqual(averagedSteps({ steps }), averaged, JSON.stringify(steps));
});

test("a step has the share of its executions of the work, and its own time", () => {
  // Half of 4 executions: 150 of 300 FLOP, whose floor at 100 FLOP/s is 1.5 s; the step took 3 of the 8 s.
  const row = select(odd, { step: 0 }).find(({ name }) => name === "matmul.1");
  assert.deepEqual([row.count, row.flops, row.time_s, row.floor_s, row.efficiency, row.lost_s], [2, 150, 3, 1.5, 0.5, 1.5]);
});

test("a device or a host has its share", () => {
  // Half of the executions ran on each device: 3 of the 8 s on the left one, 5 on the right.
  assert.deepEqual(choices(odd).hosts, ["left", "right"]);
  const time = (choice) => select(odd, choice).find(({ name }) => name === "matmul.1")?.time_s;
  assert.deepEqual([time({ device: 0 }), time({ host: "right" }), time({ device: 1, host: "right" }), time({ device: 0, host: "right" })], [3, 5, 5, undefined]);
  // A step on one device is the product of both shares: 3/8 of 3/8 of 8 s.
  close(time({ step: 0, device: 0 }), 1.125);
});

test("steps are called what Python calls them", () => {
  assert.deepEqual(choices(odd).stepTitles, { 0: "0 (train 10)", 1: "1 (train 11)" });
  const untitled = { ...odd, steps: [{ step: 2, name: "train" }] }; // of a report from before there were titles
  assert.deepEqual(choices(untitled).stepTitles, { 2: "2" });
  assert.ok(programRows(odd).some((row) => row.name === "step 0 (train 10)" && row.id === "step 0"));
});

test("infeed and outfeed can be left out", () => {
  assert.ok(choices(odd).hasFeeds);
  assert.deepEqual(select(odd, { feeds: false }).filter((row) => row.feeds), []);
  assert.equal(select(odd, { feeds: false }).length, odd.ops.length - 1);
});

test("a level gives bytes, bandwidth, intensity and ridge", () => {
  // 100 B read and 30 B written: 130 B of VMEM in 8 s; 300 FLOP over 100 B read is 3 FLOP/B, and the ridge is 100 / 50.
  const of = (level) => select(odd, { level }).find(({ name }) => name === "matmul.1");
  assert.deepEqual([of("vmem").bytes, of("vmem").bandwidth, of("vmem").ridge], [130, 130 / 8, null]);
  assert.deepEqual([of("vmem.read").intensity, of("vmem.read").ridge], [3, 2]);
  // Bound by its matrix unit, but of its memories HBM and VMEM reads take 2 s each, and HBM comes first.
  assert.equal(of("bound").level, "hbm");
  assert.deepEqual(levels(odd).map((one) => one.key), ["hbm", "vmem.read", "vmem.write", "ici"]);
});

test("another machine changes floors, bounds and efficiency, not measurements", () => {
  const faster = select(odd, {}, scaled(ownMachine(odd), { compute: 100 })).find(({ name }) => name === "matmul.1");
  // At 10,000 FLOP/s the 20 B over 10 B/s and the 100 B over 50 B/s are what is left: 2 s.
  assert.deepEqual([faster.bound, faster.floor_s, faster.efficiency, faster.time_s, faster.lost_s], ["hbm", 2, 0.25, 8, 6]);
});

test("unknown work stays unknown and never counts as nothing", () => {
  const row = select(odd).find(({ name }) => name === "mystery");
  assert.deepEqual([row.flops, row.bytes, row.efficiency, row.lost_s, row.bound], [null, null, null, null, null]);
  assert.deepEqual(row.unknown, ["hbm", "matrix/bf16"]);
});

test("a report with no more than the fields that the contract requires is shown", () => {
  const required = "id rank name category module scope location count kernels time_s self_time_s work flops unit dtype bytes intensity floor_s serial_s bound efficiency utilization provenance counters".split(" ");
  const bare = { ...odd, ops: odd.ops.map((op) => Object.fromEntries(required.map((key) => [key, op[key]]))) };
  for (const choice of [{}, { step: 0 }, { level: "bound" }]) {
    const [all, whole] = [select(bare, choice), select(odd, choice)];
    assert.deepEqual(all.map((row) => [row.name, row.time_s, row.floor_s]), whole.map((row) => [row.name, row.time_s, row.floor_s]));
  }
});

test("groups are what Python sums up", () => {
  for (const { name, report, groups, scopes } of REPORTS) {
    const check = (found, expected, by) => {
      assert.deepEqual(found.map((one) => one.name), expected.map((one) => one.key), `${name} by ${by}`);
      found.forEach((one, index) => {
        for (const key of ["ops", "count", "time_s", "self_time_s", "priced_s", "flops", "work", "unknown", "floor_s", "serial_s", "efficiency", "bound"]) {
          close(one[key], expected[index][key], `${name} by ${by} ${one.name} ${key}`);
        }
        close(one.moved, expected[index].bytes, `${name} by ${by} bytes`);
      });
    };
    for (const [by, expected] of Object.entries(groups)) check(group(select(report), by), expected, by);
    check(group(select(report), "scope", 2), scopes, "scope of depth 2");
  }
});

test("shares of rows and of groups sum to one", () => {
  for (const { name, report } of REPORTS) {
    const rows = select(report);
    for (const all of [rows, group(rows, "category")]) close(all.reduce((sum, row) => sum + row.share, 0), 1, name, 1e-9);
  }
});

test("sorting is stable and leaves the unknown last either way", () => {
  const rows = [{ id: 0, v: 1 }, { id: 1, v: null }, { id: 2, v: 3 }, { id: 3, v: 1 }];
  assert.deepEqual(sort(rows, "v").map((row) => row.id), [2, 0, 3, 1]);
  assert.deepEqual(sort(rows, "v", false).map((row) => row.id), [0, 3, 2, 1]);
  assert.deepEqual(sort([{ v: "b" }, { v: "" }, { v: "a" }], "v", false).map((row) => row.v), ["a", "b", ""]);
});

test("the time of an op in a step is Python's, and that of no op where a part of the run is chosen", () => {
  for (const { name, report, each } of cases("report")) {
    const rows = select(report);
    const times = rows.filter((row) => row.step_s).map((row) => [row.id, row.step_s]);
    close(Object.fromEntries(times), Object.fromEntries(each.filter(([, time_s]) => time_s)), name);
    assert.ok(each.length || rows.every((row) => row.step_s === null), name);
    for (const choice of [{ step: 0 }, { device: 0 }]) assert.ok(select(report, choice).every((row) => row.step_s === null), name);
    close(totals(rows).step_s, each.length ? each.reduce((sum, [, time_s]) => sum + (time_s ?? 0), 0) : null, name);
  }
});

test("an efficiency from a cost that is an upper bound is shown as one, also of a group", () => {
  const [first, ...others] = odd.ops;
  const bounded = { ...odd, ops: [{ ...first, notes: [`${VOCABULARY.upper_bound}the grid's blocks`], efficiency: 1.3 }, ...others] };
  const rows = select(bounded);
  assert.equal(efficiencyText(rows[0]), "≤ 100%");
  assert.equal(efficiencyText({ ...rows[0], efficiency: 0.72 }), "≤ 72%");
  assert.equal(efficiencyText({ ...rows[0], efficiency: null }), "–");
  assert.deepEqual(rows.map((row) => row.upper), odd.ops.map((_, index) => index === 0));
  assert.ok(totals(rows).upper && group(rows, "category").filter((one) => one.upper).length === 1);
  assert.equal(efficiencyText({ efficiency: 1.3, upper: false }), "130%");
});

test("totals leave out rows above their roof from what is lost", () => {
  const rows = select(odd);
  const lost = rows.filter((row) => row.lost_s > 0).reduce((sum, row) => sum + row.lost_s, 0);
  assert.ok(rows.some((row) => row.efficiency > 1) && rows.every((row) => row.lost_s === null || row.lost_s >= 0));
  close(totals(rows).lost_s, lost);
});

test("stems are Python's", () => {
  for (const [name, bare] of VECTORS.stem) assert.equal(stem(name), bare);
});

test("every column has a value that it can show for every row", () => {
  for (const { name, report } of REPORTS) {
    for (const row of [...select(report), ...complete(group(select(report), "category"), 1)]) {
      for (const { key, format } of opColumns(report)) {
        // An op has no bandwidth over a level that its bytes do not cross.
        assert.ok(key in row || /^(bandwidth|intensity|counted|ratio)_/.test(key), `${name}: ${key}`);
        assert.equal(typeof format(row[key]), "string");
        assert.ok(!/NaN|undefined|null/.test(format(row[key])) || /NaN|undefined|null/.test(String(row[key])), `${key}: ${format(row[key])}`);
      }
    }
    for (const row of programRows(report)) for (const { key, format } of PROGRAM_COLUMNS) assert.ok(key in row && !/NaN|undefined/.test(format(row[key])), key);
  }
  assert.ok([...USUAL_COLUMNS, ...UNTIMED_COLUMNS].every((key) => opColumns(odd).some((column) => column.key === key)));
});

test("the program's rows are the report's points", () => {
  for (const { name, report } of REPORTS) {
    const points = report.points.filter((point) => point.infeed_outfeed);
    const rows = programRows(report);
    assert.equal(rows.length, points.length, name);
    rows.forEach((row, index) => {
      for (const key of ["scope", "step", "time_s", "busy_s", "flops", "intensity", "bound", "floor_s", "efficiency", "op_efficiency"]) {
        close(row[key], points[index][key], `${name} ${row.name} ${key}`);
      }
    });
    // The same machine, made anew, goes the long way and says the same.
    programRows(report, {}, machine(report.machine)).forEach((row, index) => {
      for (const key of ["bound", "floor_s", "efficiency", "op_efficiency", "peak_share", "memory_utilization"]) close(row[key], rows[index][key], `${name} ${row.name} ${key}`, 1e-9);
    });
  }
});

test("without infeed and outfeed the program has its own points", () => {
  const [whole, without] = [programRows(odd), programRows(odd, { feeds: false })];
  assert.deepEqual([whole[0].infeed_outfeed, without[0].infeed_outfeed], [true, false]);
  assert.ok(without[0].bytes === null && without[0].time_s < whole[0].time_s);
});

test("every column that XProf shows has its figure", () => {
  const { report } = cases("report").find(({ name }) => name.includes("jax_train"));
  const rows = select(report);
  const keys = new Set(opColumns(report).map(({ key }) => key));
  const xprof = [
    "rank", "category", "name", "count", "time_s", "average_s", "self_time_s", "average_self_s", "share", "cumulative", "rate", "needed_rate",
    "bandwidth", "bandwidth_hbm", "intensity", "intensity_hbm", "bound_intensity", "bound", "device_time_s", "time_share", "attainable",
    "efficiency", "compute_utilization", "memory_utilization", "module", "location",
  ];
  for (const key of xprof) assert.ok(keys.has(key) && rows.some((row) => row[key] !== null && row[key] !== undefined), key);
  const [longest] = rows.toSorted((one, other) => other.time_s - one.time_s);
  close([longest.average_s, longest.cumulative, rows.reduce((most, row) => Math.max(most, row.cumulative), 0)], [longest.time_s / longest.count, longest.share, 1]);
  assert.equal(longest.bandwidth_hbm, longest.moved.hbm / longest.time_s);
});

test("the time stalled by DMA is a column where a profile says it", () => {
  const has = (report) => opColumns(report).some(({ key }) => key === "dma_stall");
  assert.ok(!has(odd));
  // A third of the copy's time, in a step as in the whole run.
  const waits = { ...odd, ops: odd.ops.map((op) => (op.name === "copy" ? { ...op, dma_stall_s: op.time_s / 3 } : op)) };
  assert.ok(has(waits));
  for (const part of [{}, { step: 0 }]) close(select(waits, part).find(({ name }) => name === "copy").dma_stall, 1 / 3);
  assert.equal(select(waits).find(({ name }) => name === "matmul.1").dma_stall, null);
});

test("counted amounts and their ratio to the model are columns", () => {
  const { report } = cases("report").find(({ name }) => name.includes("ncu_jax_fusion"));
  const ratios = opColumns(report).filter(({ key }) => key.startsWith("ratio_")).map(({ key }) => key);
  const rows = select(report);
  for (const op of report.ops) for (const [name, ratio] of Object.entries(op.counters?.ratio ?? {})) assert.equal(rows.find(({ id }) => id === op.id)[`ratio_${name}`], ratio);
  assert.deepEqual(ratios, [...new Set(report.ops.flatMap((op) => Object.keys(op.counters?.ratio ?? {})))].sort().map((name) => `ratio_${name}`));
});

test("equal work is folded as the report says, and the rest stays", () => {
  let met = 0;
  for (const { name, report } of REPORTS) {
    const rows = select(report);
    const folded = group(rows, "fold");
    const several = (report.folds ?? []).filter(({ ops }) => ops.length > 1);
    assert.equal(folded.length, rows.length - several.reduce((sum, { ops }) => sum + ops.length - 1, 0), name);
    for (const { label, ops } of several) {
      const row = folded.find((one) => one.ops.includes(ops[0]));
      assert.deepEqual([row.label, [...row.ops].sort()], [label, [...ops].sort()], name);
    }
    close(folded.reduce((sum, row) => sum + row.share, 0), 1, name, 1e-9);
    met += several.length;
  }
  assert.ok(met > 10);
});

test("a part of an op that loses nothing loses nothing, whatever the rounding", () => {
  // 0.1 * (1.1 / 7 / 1.1) is more than 0.1 * (1 / 7).
  const op = { ...odd.ops[0], id: 0, count: 7, time_s: 1.1, self_time_s: 0.1, floor_s: 0.5, lost_s: 0 };
  const by_device = [0, 1].map((device) => ({ op: 0, device, count: 1, time_s: 1.1 / 7 }));
  const report = { ...odd, ops: [op], by_step: [], by_device, by_step_and_device: [], folds: [] };
  assert.deepEqual([0, 1].map((device) => select(report, { device })[0].lost_s), [0, 0]);
});
