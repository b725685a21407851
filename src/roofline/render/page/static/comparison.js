/** Two runs: what became of each op, by Python's comparison of the two reports, largest change first. */

import { DIFFERENCE_COLUMNS } from "#page/columns.js";
import { h } from "#page/dom.js";
import { per, sort } from "#page/rows.js";
import { table } from "#page/table.js";
import { percent, show } from "#page/units.js";

/** A row for each delta of a comparison; a side without ops has no figures. */
export function differences({ deltas }) {
  return deltas.map((delta, id) => {
    const { before, after } = delta;
    const [before_s, after_s] = [before, after].map((side) => (side.ops.length ? side.time_s : null));
    return {
      ...delta,
      matched: delta.matched.replace("module", "program"),
      kind: "pair",
      id,
      ops: after.ops,
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

/** @returns {{root, rows, update(state)}} */
export function comparisonView({ comparison, select, reveal }) {
  const all = differences(comparison);
  let order = { sort: null, descending: true };
  let rows = all;
  let selected = new Set();
  const draw = () => list.show({ rows, columns, ...order, selected });
  const columns = DIFFERENCE_COLUMNS.map((column) => (
    column.key === "change_s" ? { ...column, tone: ({ change_s }) => (change_s > 0 ? "worse" : change_s < 0 ? "better" : "") } : column
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

function summary({ before, after, change_s }) {
  const speedup = per(before.time_s, after.time_s);
  return [
    `${show(before.time_s, "s")} before, ${show(after.time_s, "s")} after`,
    change_s === null ? "" : `${change_s > 0 ? "slower" : "faster"} by ${show(Math.abs(change_s), "s")}`,
    speedup ? `${show(speedup, "1", 3)}x speedup` : "",
    before.efficiency && after.efficiency ? `roofline efficiency ${percent(before.efficiency)} before, ${percent(after.efficiency)} after` : "",
  ].filter(Boolean).join(" · ");
}
