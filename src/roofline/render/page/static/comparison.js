/** Two runs: what became of each op, by Python's comparison of the two reports, largest change first. */

import { DIFFERENCE_COLUMNS } from "#page/columns.js";
import { elided, h } from "#page/dom.js";
import { per, sort } from "#page/rows.js";
import { table } from "#page/table.js";
import { percent, plain, show } from "#page/units.js";
import { VOCABULARY } from "#page/vocabulary.js";

const MEASURED = new Set(["before_s", "after_s", "change_s", "speedup", "before_efficiency", "after_efficiency"]);
const COUNTED = new Set([
  "before_floor_s", "after_floor_s", "floor_change_s",
  "before_flops", "after_flops", "before_hbm", "after_hbm", "before_launches", "after_launches",
]);

/** The columns of a comparison: of measured times, or of minimum times and costs where nothing was measured on both sides. */
export function differenceColumns({ basis = "time" }) {
  const other = basis === "time" ? COUNTED : MEASURED;
  return DIFFERENCE_COLUMNS.filter(({ key }) => !other.has(key));
}

/** A row for each delta of a comparison, what became slower first, then what became faster; a side without ops has no figures. */
export function differences({ deltas, basis = "time" }, labels = null) {
  const change = (row) => (basis === "time" ? row.change_s : row.floor_change_s) ?? 0;
  const worse = (row) => (change(row) > 0 ? 0 : 1);
  return paired(deltas, labels).sort((one, other) => worse(one) - worse(other) || Math.abs(change(other)) - Math.abs(change(one)));
}

/** The labels of the ops of two reports: those of a side with one op. */
export function labelsOf(before, after) {
  const of = (report) => new Map(report.ops.map((op) => [op.id, op.label || op.name]));
  return { before: of(before), after: of(after) };
}

function paired(deltas, labels) {
  const label = (delta) => ["after", "before"].map((side) => (delta[side].ops.length === 1 ? labels?.[side].get(delta[side].ops[0]) : null)).find(Boolean);
  return deltas.map((delta, id) => {
    const { before, after } = delta;
    const [before_s, after_s] = [before, after].map((side) => (side.ops.length ? side.time_s : null));
    const counted = Object.entries({ before, after }).flatMap(([when, side]) => (side.ops.length ? [
      [`${when}_floor_s`, side.floor_s],
      [`${when}_flops`, side.flops ?? null],
      [`${when}_hbm`, side.bytes?.hbm ?? 0],
      [`${when}_launches`, side.launches ?? null],
    ] : ["floor_s", "flops", "hbm", "launches"].map((key) => [`${when}_${key}`, null])));
    return {
      ...delta,
      label: label(delta) ?? delta.name,
      matched: delta.matched.replace("module", "program"),
      kind: "pair",
      id,
      ops: after.ops,
      floor_change_s: delta.floor_change_s ?? null,
      ...Object.fromEntries(counted),
      before_s,
      after_s,
      speedup: per(before_s, after_s),
      before_efficiency: before.efficiency,
      after_efficiency: after.efficiency,
      before_bound: before.bound,
      after_bound: after.bound,
    };
  });
}

/** Two runs in one sentence: how much faster or slower, per step where both have steps, and the ops that changed most either way. */
export function verdict(comparison, labels) {
  const { before, after, speedup, speedup_of, basis = "time" } = comparison;
  if (basis !== "time" || !speedup) return summary(comparison);
  const of = speedup_of === "step" ? " per step" : "";
  const figure = { step: "step_s", run: "wall_s" }[speedup_of] ?? "time_s";
  const how = Math.abs(speedup - 1) < SAME ? "As fast as before" : speedup > 1 ? `${show(speedup, "1", 3)} times as fast` : `Takes ${show(1 / speedup, "1", 3)} times as long`;
  const alike = changesByLabel(differences(comparison, labels)).filter(([, seconds]) => Math.abs(seconds) > NOTABLE * after.time_s);
  const [worst, best] = [alike[0], alike[alike.length - 1]];
  const all = of ? " over the whole run" : ""; // changes of ops are those of whole runs
  return [
    `${how}${of}: ${show(before[figure], "s", 3)} → ${show(after[figure], "s", 3)}.`,
    worst?.[1] > 0 ? `Largest increase: ${elided(worst[0], 60)}, ${show(worst[1], "s", 2)}${all}.` : "",
    best?.[1] < 0 ? `Largest decrease: ${elided(best[0], 60)}, ${show(-best[1], "s", 2)}${all}.` : "",
  ].filter(Boolean).join(" ");
}

/** The seconds by which the ops of each label changed, the largest increase first. */
function changesByLabel(rows) {
  const sums = new Map();
  for (const { label, change_s } of rows) sums.set(label, (sums.get(label) ?? 0) + (change_s ?? 0));
  return [...sums].sort(([, one], [, other]) => other - one);
}

const SAME = 0.005; // of the time: runs that differ by less are as fast as each other
const NOTABLE = VOCABULARY.notable_change;

/** @returns {{root, rows, update(state)}} */
export function comparisonView({ comparison, labels, select, reveal }) {
  const all = differences(comparison, labels);
  let order = { sort: null, descending: true };
  let rows = all;
  let selected = new Set();
  const draw = () => list.show({ rows, columns, ...order, selected });
  const columns = differenceColumns(comparison).map((column) => (
    ["change_s", "floor_change_s"].includes(column.key)
      ? { ...column, tone: (row) => (row[column.key] > 0 ? "worse" : row[column.key] < 0 ? "better" : "") }
      : column
  ));
  const list = table({
    testid: "difference-table",
    label: "Differences",
    empty: "No operations in either run.",
    onsort: (key, descending) => {
      order = { sort: key, descending };
      rows = sort(all, key, descending);
      draw();
    },
    onselect: (ids, extend) => {
      select(ids, extend);
      if (ids.length) reveal(ids[0]);
    },
  });
  const root = h(
    "section",
    { class: "below", "aria-label": "Differences", "data-testid": "differences" },
    h(
      "div",
      { class: "table-head" },
      h("h2", { text: "Differences" }),
      h("p", { class: "quiet", "data-testid": "difference-summary", text: summary(comparison) }),
    ),
    list.root,
    comparison.notes.length > 0 && h("ul", { class: "notes" }, comparison.notes.map((note) => h("li", { text: note }))),
  );
  return {
    root,
    get rows() {
      return rows;
    },
    update: (state) => {
      selected = new Set(state.selected);
      draw();
    },
  };
}

function summary({ before, after, change_s, basis = "time", floor_change_s = null, figures = [] }) {
  if (basis !== "time") {
    const others = figures.filter(({ quantity }) => quantity !== "minimum time" && quantity !== "ops");
    return [
      `minimum time ${show(before.floor_s, "s")} before, ${show(after.floor_s, "s")} after`,
      floor_change_s ? `${floor_change_s > 0 ? "more" : "less"} by ${show(Math.abs(floor_change_s), "s")}` : "",
      ...others.map(({ quantity, unit, before: old, after: now }) => (
        `${quantity} ${unit ? show(old, unit) : plain(old)} before, ${unit ? show(now, unit) : plain(now)} after`
      )),
    ].filter(Boolean).join(" · ");
  }
  return [
    `op time ${show(before.time_s, "s")} before, ${show(after.time_s, "s")} after`,
    change_s ? `${change_s > 0 ? "more" : "less"} by ${show(Math.abs(change_s), "s")}` : "",
    before.efficiency && after.efficiency ? `roofline efficiency ${percent(before.efficiency)} before, ${percent(after.efficiency)} after` : "",
  ].filter(Boolean).join(" · ");
}
