import assert from "node:assert/strict";
import test from "node:test";

import { costOf, machine, place, rateTitle, scaled, title } from "../../src/roofline/render/page/static/law.js";
import { cases, VECTORS } from "./cases.mjs";
import { close } from "./close.mjs";

const ceilings = (rates) => Object.entries(rates).map(([resource, rate]) => ({ resource, rate }));
const machineOf = (rates, kind = "", matrix_unit = null) => machine({ name: "case", kind, matrix_unit, ceilings: ceilings(rates) });
const MACHINES = Object.fromEntries(VECTORS.machines.map(([name, rates, matrixUnit]) => [name, machineOf(rates, name, matrixUnit)]));

function held(one) {
  return place(one.cost, MACHINES[one.machine], { time_s: one.time_s, launches: one.launches, level: one.level });
}

function answers(one, where) {
  const found = held(one);
  const { peak, ...rest } = found;
  close(rest, one.expected, where);
  assert.deepEqual(Object.keys(found.times), Object.keys(one.expected.times), `${where}: longest first`);
}

test("the law gives what Python gives", () => {
  assert.ok(VECTORS.law.length > 300);
  VECTORS.law.forEach((one, index) => answers(one, `law ${index}`));
});

test("the law gives what Python gives on cases found by hypothesis", () => {
  for (const { name, found } of cases("law")) {
    assert.ok(found.length > 100);
    found.forEach((one, index) => answers(one, `${name} ${index}`));
  }
});

test("ceilings scale by resource, else by unit, else by kind", () => {
  for (const { machine: name, factors, expected } of VECTORS.scaled) {
    const changed = scaled(MACHINES[name], factors);
    close(Object.fromEntries(changed.ceilings.map((one) => [one.resource, one.rate])), expected);
  }
});

test("a faster machine never raises the floor, and a doubled cost doubles it", () => {
  for (const one of VECTORS.law) {
    const faster = place(one.cost, scaled(MACHINES[one.machine], { compute: 2, bandwidth: 2 }));
    const whole = place(one.cost, MACHINES[one.machine]);
    if (whole.floor_s === null) continue; // nothing known gives a time
    assert.ok(faster.floor_s <= whole.floor_s);
    const twice = Object.fromEntries(Object.entries(one.cost).map(([name, amount]) => [name, amount === null ? null : 2 * amount]));
    if (whole.floor_s < 1e300) close(place(twice, MACHINES[one.machine]).floor_s, 2 * whole.floor_s, JSON.stringify(one.cost));
  }
});

test("resources are titled as in the figures", () => {
  for (const [name, words, rated] of VECTORS.title) assert.deepEqual([title(name), rateTitle(name, 3.2e12)], [words, rated]);
});

test("the law recomputes every op and point of every real report", () => {
  const all = [...cases("report"), ...cases("capture")];
  assert.ok(all.length > 20);
  for (const { name, report } of all) {
    const own = machine(report.machine);
    for (const op of report.ops) {
      const found = place(costOf(op), own, { time_s: op.time_s, launches: op.kernels || op.count, known: op.known });
      for (const key of ["bound", "floor_s", "serial_s", "efficiency", "attainable", "intensity", "ridge", "times", "utilization", "roofs", "unrated"]) {
        close(found[key], op[key], `${name} ${op.name} ${key}`);
      }
    }
    for (const point of report.points) {
      const found = place(costOf(point), own, { time_s: point.device_seconds, known: point.known });
      const devices = point.time_s ? point.device_seconds / point.time_s : 1;
      close(found.floor_s === null ? null : found.floor_s / devices, point.floor_s, `${name} ${point.scope} floor_s`);
      for (const key of ["bound", "efficiency", "intensity"]) close(found[key], point[key], `${name} ${point.scope} ${key}`);
    }
  }
});

test("the known part of an unknown amount counts", () => {
  // 30 FLOP of vector work are known and take 1.5 s at 20 FLOP/s, beside 1 s at 40 FLOP/s.
  const toy = machineOf({ "vector/fp32": 20, "vector/fp16": 40, hbm: 10 });
  const found = place({ "vector/fp32": null, "vector/fp16": 40, hbm: 5 }, toy, { known: { "vector/fp32": 30 } });
  assert.deepEqual([found.floor_s, found.attainable, found.unknown], [2.5, null, ["vector/fp32"]]);
});
