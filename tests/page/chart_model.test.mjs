import assert from "node:assert/strict";
import test from "node:test";

import { chipsOf } from "../../src/roofline/render/page/static/catalogue.js";
import { captionIn, chartModel, machineOf, programModel, roofLines, rowsOf } from "../../src/roofline/render/page/static/chart_model.js";
import { axisTitles } from "../../src/roofline/render/page/static/paint.js";
import { DEFAULTS } from "../../src/roofline/render/page/static/state.js";
import { VOCABULARY } from "../../src/roofline/render/page/static/vocabulary.js";
import { cases } from "./cases.mjs";
import { close } from "./close.mjs";

const REPORTS = cases("report");
const odd = REPORTS.find(({ name }) => name.includes("odd")).report;
const CATALOGUE = chipsOf(cases("catalogue")[0].packed);

test("the chart of an untouched page is the figures' chart", () => {
  for (const { name, report, chart, caption } of REPORTS) {
    const model = chartModel(report, DEFAULTS);
    const dots = model.dots.map((dot) => ({ name: dot.name, intensity: dot.x, rate: dot.y, weight: dot.weight, bound: dot.bound, efficiency: dot.efficiency, upper_bound: dot.row.upper, op: dot.id }));
    close(dots, chart.dots, `${name} dots`);
    const strip = model.strip.map((dot) => ({ name: dot.name, share: dot.share, weight: dot.weight, bound: dot.bound, op: dot.id }));
    close(strip, chart.strip.map(({ unit, ...dot }) => dot), `${name} strip`);
    const shown = model.roofs.filter((roof) => roof.kind === "compute" && !roof.hidden);
    close(shown.map((roof) => [roof.id, roof.title, roof.rate]), chart.roofs.map((roof) => [roof.compute, roof.name, roof.peak]), `${name} roofs`);
    const { left, right, bottom, top } = chart.extent;
    const [x0, x1, y0, y1] = model.reach;
    assert.ok(x0 <= left * 1.001 && x1 >= right * 0.999 && y0 <= bottom * 1.001 && y1 >= top * 0.999, `${name} reach`);
    const whole = model.program.find((point) => point.scope === "total");
    close(whole ? [whole.x, whole.y] : null, chart.program ? [chart.program.intensity, chart.program.rate] : null, `${name} program`);
    close(model.leftOut, chart.left_out, `${name} left out`);
    // The page's window is a little tighter than the figure's, so that other ops may be beyond it.
    assert.equal(model.caption, caption.replace(/ ?At the edge: .* beyond the axes\.$/, ""));
    assert.equal(model.timed, chart.timed);
    assert.equal(model.machine, chart.machine);
  }
});

test("the chart of a prediction says so", () => {
  const title = (changes) => axisTitles(chartModel({ ...odd, changes }, DEFAULTS)).yTitle;
  assert.deepEqual([title([]), title(["scale", "batch=x4"])], ["Achieved FLOP/s", "Predicted FLOP/s"]);
});

test("ops beyond the first window are counted, until another one is chosen", () => {
  const far = { ...odd, coverage: {}, ops: odd.ops.flatMap((op) => (op.flops && op.bytes.hbm && op.time_s ? [op] : [])).slice(0, 1) };
  const [op] = far.ops;
  far.ops.push({ ...op, id: 99, time_s: op.time_s / 1e4, self_time_s: op.time_s / 1e4, flops: op.flops / 1e20, work: Object.fromEntries(Object.entries(op.work).map(([name, amount]) => [name, amount / 1e20])) });
  const model = chartModel(far, DEFAULTS);
  assert.equal(captionIn(model, null), "At the edge: 1 op (0.01% of time) beyond the axes.");
  assert.equal(captionIn(model, [1, 2, 3, 4]), "");
});

test("an op whose cost is an upper bound is not above its roof", () => {
  const drawn = (notes) => chartModel({
    ...odd,
    ops: odd.ops.map((op) => ({ ...op, notes, time_s: op.time_s && op.time_s / 1000, efficiency: op.efficiency && op.efficiency * 1000 })),
  }, DEFAULTS);
  const [sure, model] = [drawn([]), drawn([`${VOCABULARY.upper_bound}the grid's blocks`])];
  assert.ok(sure.dots.some((dot) => dot.efficiency > 1) && sure.strip.some((dot) => dot.share > 1));
  for (const dot of model.dots) {
    const same = sure.dots.find(({ id }) => id === dot.id);
    close([dot.x, dot.y], [same.x, same.y / Math.max(1, dot.efficiency ?? 0)]);
  }
  assert.deepEqual(model.strip.map(({ id, share }) => [id, share]), sure.strip.map(({ id, share }) => [id, Math.min(1, share)]));
});

test("roofs run from the edge to the ridge and on, whatever the window", () => {
  for (const { report } of REPORTS) {
    const model = chartModel(report, DEFAULTS);
    const lines = roofLines(model, model.home);
    const level = lines.find((line) => line.id === "hbm");
    const highest = Math.max(...model.roofs.filter((roof) => roof.kind === "compute" && !roof.hidden).map((roof) => roof.rate));
    assert.equal(level.points[1][1], highest);
    for (const { kind, points } of lines) {
      if (kind === "compute") assert.equal(points[0][1], points[1][1]);
      else close(points[1][1] / points[1][0], points[0][1] / points[0][0], "", 1e-9);
    }
    assert.deepEqual(roofLines(model, [1e30, 1e31, 1e-9, 1e-8]), []);
  }
});

test("a memory level is shown when an op is bound by it, and each roof can be switched", () => {
  // l2 binds a kernel of the counted run; nothing there is bound by pcie.
  const { report } = REPORTS.find(({ name }) => name.includes("ncu_torch_eager"));
  const shown = (state) => chartModel(report, { ...DEFAULTS, ...state }).roofs.filter((roof) => !roof.hidden).map((roof) => roof.id);
  assert.ok(shown({}).includes("l2") && shown({}).includes("hbm") && !shown({}).includes("pcie"));
  assert.ok(!shown({ hidden: ["l2"] }).includes("l2"));
  assert.ok(!shown({}).includes("matrix/fp8") && shown({ shown: ["matrix/fp8"] }).includes("matrix/fp8"));
  const roof = chartModel(report, DEFAULTS).roofs.find((one) => one.id === "l2");
  assert.ok(roof.binds > 0 && roof.used > 0 && !roof.axis && roof.provenance && roof.details.length && roof.label.startsWith("L2 "));
});

test("a level on the x axis moves dots by their bytes over it", () => {
  const model = chartModel(odd, { ...DEFAULTS, level: "vmem.read" });
  const dot = model.dots.find(({ name }) => name === "matmul.1");
  assert.deepEqual([dot.x, dot.y], [3, 37.5]); // 300 FLOP over 100 B, in 8 s
  assert.ok(model.roofs.find((roof) => roof.id === "vmem.read").axis);
  assert.ok(model.leftOut.some(([why]) => why === "without VMEM read traffic"));
});

test("on the axis of what binds, ops stand over their own levels", () => {
  const model = chartModel(odd, { ...DEFAULTS, level: "bound" });
  const dot = model.dots.find(({ name }) => name === "all-reduce.3");
  assert.equal(dot.x, 1); // 6 FLOP over the 6 B of its link
});

const inside = ([x0, x1, y0, y1], { x, y }) => x0 <= x && x <= x1 && y0 <= y && y <= y1;

test("the first window holds 99% of the time of the dots, and no more than it has to", () => {
  for (const { name, report } of REPORTS) {
    const { dots, home } = chartModel(report, DEFAULTS);
    const weight = (some) => some.reduce((sum, dot) => sum + dot.weight, 0);
    if (dots.length) assert.ok(weight(dots.filter((dot) => inside(home, dot))) >= 0.99 * weight(dots), name);
  }
  // A dot with a millionth of the time, nine decades away, is left out; one with half of it is not.
  const far = (share) => {
    const ops = [[1, 1e9, share], [1e12, 1e9, 1 - share]].map(([flops, bytes, time_s], id) => (
      { ...odd.ops[0], id, rank: id + 1, flops, work: { "matrix/bf16": flops }, bytes: { hbm: bytes }, time_s, self_time_s: time_s }
    ));
    const { dots, home } = chartModel({ ...odd, ops, points: [] }, DEFAULTS);
    return dots.filter((dot) => !inside(home, dot)).length;
  };
  assert.deepEqual([far(1e-6), far(0.5)], [1, 0]);
});

test("roofs of links are drawn only on an axis of their bytes", () => {
  const links = (level) => chartModel(odd, { ...DEFAULTS, level }).roofs.filter(({ id }) => id === "ici" || id === "pcie").map(({ id }) => id);
  assert.deepEqual([links("hbm"), links("ici"), links("bound")], [[], ["ici"], ["ici"]]);
});

test("filters choose rows and dots, leave roofs, and refit the window", () => {
  const state = { ...DEFAULTS, filter: "matmul", bounds: ["matrix"] };
  const { rows, all, shown, totals, problem } = rowsOf(odd, state);
  assert.deepEqual(rows.map((row) => row.name), ["matmul.1", "matmul.2"]);
  assert.ok(all.length === odd.ops.length && shown.time_s === 10 && totals.time_s > 10 && problem === null);
  const model = chartModel(odd, state, { rows, all });
  assert.equal(model.dots.length, 2);
  assert.deepEqual(model.roofs, chartModel(odd, DEFAULTS).roofs);
  assert.ok(model.home[0] > chartModel(odd, DEFAULTS).home[0] && model.dots.every((dot) => inside(model.home, dot)));
  assert.equal(rowsOf(odd, { ...DEFAULTS, filter: "(" }).problem.at, 0);
  assert.deepEqual(rowsOf(odd, { ...DEFAULTS, dtypes: [""] }).rows.every((row) => row.dtype === null), true);
});

test("groups are dots of their own", () => {
  const { rows } = rowsOf(odd, { ...DEFAULTS, group: "category" });
  const model = chartModel(odd, { ...DEFAULTS, group: "category" }, { rows });
  const dot = model.dots.find(({ name }) => name === "dot");
  assert.deepEqual([dot.x, dot.y, dot.ops], [15, 60, [0, 1]]); // 600 FLOP over 40 B in 10 s
});

test("areas can show what is lost, work, bytes or nothing", () => {
  for (const size of ["time", "self", "lost", "flops", "bytes", "equal"]) {
    const { dots } = chartModel(odd, { ...DEFAULTS, size });
    assert.ok(dots.every((dot) => dot.weight >= 0));
    assert.deepEqual(dots.map((dot) => dot.weight), dots.map((dot) => dot.weight).sort((one, other) => other - one));
  }
});

test("the same work stands under another chip's roof, and under scaled ceilings", () => {
  const { report } = REPORTS.find(({ name }) => name.includes("jax_train"));
  const other = machineOf(report, { ...DEFAULTS, chip: "a100-sxm4-80" }, CATALOGUE);
  const [own, moved] = [rowsOf(report, DEFAULTS), rowsOf(report, DEFAULTS, other)];
  assert.ok(moved.totals.floor_s > 1.5 * own.totals.floor_s); // an H200 has three times the peak and twice the bandwidth
  assert.equal(moved.totals.time_s, null); // nothing was measured there
  assert.ok(moved.rows.every((row) => row.efficiency === null));
  assert.equal(moved.rows[0].floor_s, Math.max(...moved.all.map((row) => row.floor_s)), "the longest minimum time first");
  assert.equal(chartModel(report, DEFAULTS, { machine: other }).machine, other.title);
  const twice = machineOf(report, { ...DEFAULTS, factors: { compute: 2, bandwidth: 2 } });
  close(rowsOf(report, DEFAULTS, twice).totals.floor_s, own.totals.floor_s / 2, "", 1e-9);
  assert.ok(chartModel(report, DEFAULTS, { machine: twice }).roofs.some((roof) => roof.details.some((line) => line.startsWith("scaled to 200% of"))));
  assert.equal(machineOf(report, { ...DEFAULTS, chip: "no such chip" }, CATALOGUE).name, report.machine.name);
});

test("every chip of the catalogue takes every report", () => {
  for (const { name: chip } of CATALOGUE) {
    for (const { report } of REPORTS.slice(0, 3)) {
      const model = chartModel(report, DEFAULTS, { machine: machineOf(report, { ...DEFAULTS, chip }, CATALOGUE) });
      assert.ok(model.home.every((value) => value > 0 && Number.isFinite(value)), chip);
    }
  }
});

test("the program's own chart shows its points closely", () => {
  const { report } = REPORTS.find(({ name }) => name.includes("jax_train"));
  const model = programModel(report, DEFAULTS);
  assert.deepEqual([model.dots.length, model.strip.length], [0, 0]);
  assert.deepEqual(new Set(model.program.map((point) => point.scope)), new Set(["total", "average", "step"]));
  assert.ok(model.home[0] > chartModel(report, DEFAULTS).home[0]);
  assert.deepEqual(programModel(report, { ...DEFAULTS, scopes: ["average"] }).program.map((point) => point.scope), ["average"]);
});

test("the change of a finding leads from where its ops stand to where they are predicted, over main memory alone", () => {
  const { report } = REPORTS.find(({ report: one }) => chartModel(one, DEFAULTS).dots.length);
  const [dot] = chartModel(report, DEFAULTS).dots;
  const ops = [{ op: dot.id, time_s: 1e-3, flops: 4e9, hbm: 1e7 }, { op: -1, time_s: 1, flops: 1, hbm: 1 }, { op: dot.id, time_s: 0, flops: 0, hbm: 0 }];
  const changed = { ...report, findings: [{ kind: "x", predicted: { change: "x", ops } }] };
  assert.deepEqual(chartModel(changed, DEFAULTS).arrows, []);
  const { arrows, reach } = chartModel(changed, { ...DEFAULTS, whatif: 0 });
  assert.equal(arrows.length, 1);
  close([arrows[0].from, arrows[0].to, arrows[0].predicted], [[dot.x, dot.y], [400, 4e12], true]);
  assert.ok(reach[0] <= 400 && reach[1] >= 400 && reach[2] <= 4e12 && reach[3] >= 4e12);
  assert.deepEqual(chartModel(changed, { ...DEFAULTS, whatif: 0, level: "l2" }).arrows, []);
  assert.deepEqual(chartModel(changed, { ...DEFAULTS, whatif: 7 }).arrows, []);
});

test("arrows lead from where an op was to where it is, for changes of more than 1% of the time", () => {
  for (const { before, after, comparison } of cases("pair")) {
    const model = chartModel(after, DEFAULTS, { before, comparison });
    const partners = new Map(comparison.deltas.filter((delta) => delta.before.ops.length === 1 && delta.after.ops.length === 1).map((delta) => [delta.after.ops[0], delta.before.ops[0]]));
    const then = new Map(chartModel(before, DEFAULTS).dots.map((dot) => [dot.id, dot]));
    const time = [...model.dots, ...model.strip].reduce((sum, dot) => sum + dot.weight, 0);
    const wanted = model.dots.filter((dot) => then.has(partners.get(dot.id)) && Math.abs(dot.weight - then.get(partners.get(dot.id)).weight) >= 0.01 * time);
    assert.equal(model.arrows.length, wanted.length);
    for (const { from, to, after: row } of model.arrows) {
      const was = then.get(partners.get(row.id));
      close([from, to], [[was.x, was.y], [row.intensity, row.rate]]);
    }
    assert.deepEqual(chartModel(after, { ...DEFAULTS, compare: false }, { before, comparison }).arrows, []);
  }
});

test("a report without ops or points is an empty chart", () => {
  const empty = { ...odd, ops: [], points: [], by_step: [], by_device: [], findings: [], coverage: {} };
  const model = chartModel(empty, DEFAULTS);
  assert.deepEqual([model.dots, model.strip, model.program, model.leftOut, model.timed], [[], [], [], [], false]);
  assert.ok(model.roofs.some((roof) => !roof.hidden) && model.home[0] < model.home[1]);
});

test("the star is the program, or the chosen step and devices, or what the program takes at least on another chip", () => {
  const { report } = REPORTS.find(({ name }) => name.includes("jax_train"));
  const star = (patch, machine = undefined) => chartModel(report, { ...DEFAULTS, ...patch }, { machine }).program[0];
  const point = (scope, step = null) => report.points.find((one) => one.scope === scope && one.infeed_outfeed && (step === null || one.step === step));
  const [total, second] = [point("total"), point("step", 2)];
  close(star({}).y, total.flops / total.time_s, "", 1e-9);
  close([star({ step: 2 }).y, star({ step: 2 }).x], [second.flops / second.time_s, second.flops / second.bytes.hbm], "", 1e-9);
  assert.equal(star({ step: 2 }).name, "step 2 train");
  // One device that is all of them has the program's own star.
  const device = report.input.devices[0].id;
  close(star({ device }).y, total.flops / total.time_s, "", 1e-6);
  const other = machineOf(report, { ...DEFAULTS, chip: "a100-sxm4-80" }, CATALOGUE);
  const least = rowsOf(report, DEFAULTS, other).totals.floor_s;
  close(star({}, other).y, total.flops / least, "", 1e-6);
});
