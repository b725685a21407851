/** Two runs: what became of each op, by Python's comparison of the two reports, largest change first. */

import { DIFFERENCE_COLUMNS } from "#page/columns.js";
import { h } from "#page/dom.js";
import { per, sort } from "#page/rows.js";
import { table } from "#page/table.js";
import { plain } from "#page/units.js";

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
export function differences({ deltas, basis = "time" }) {
  const change = (row) => (basis === "time" ? row.change_s : row.floor_change_s) ?? 0;
  const worse = (row) => (change(row) > 0 ? 0 : 1);
  return paired(deltas).sort((one, other) => worse(one) - worse(other) || Math.abs(change(other)) - Math.abs(change(one)));
}

function paired(deltas) {
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
      label: delta.label || delta.name,
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

/** Whether anything of an op differs between the runs: time, minimum time, amounts or bound. */
export function changed({ before, after }) {
  const figures = ({ ops, names, ...rest }) => JSON.stringify([ops.length > 0, rest]);
  return figures(before) !== figures(after);
}

/** @returns {{root, rows, update(state)}} `figures` are what Python says of both runs: [[quantity, before, after, change], colour] */
export function comparisonView({ comparison, figures, select, reveal }) {
  const all = differences(comparison).filter(changed);
  const same = comparison.deltas.length - all.length;
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
    empty: same ? `All ${plain(same)} ops are the same.` : "No operations in either run.",
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
    figureTable(figures),
    h("div", { class: "table-head" }, h("h2", { text: "Differences" }), all.length > 0 && same > 0 && h("p", { class: "quiet", text: `${plain(same)} op${same === 1 ? "" : "s"} unchanged` })),
    list.root,
    comparison.notes.length > 0 && h("ul", { class: "notes" }, comparison.notes.map((note) => h("li", { text: note }))),
  );
  return {
    root,
    table: list,
    get rows() {
      return rows;
    },
    update: (state) => {
      selected = new Set(state.selected);
      draw();
    },
  };
}

const TONES = { green: "better", red: "worse" };

/** What both runs have: a row for each quantity. */
function figureTable(figures) {
  return figures.length > 0 && h(
    "table",
    { class: "facts changes", "data-testid": "difference-summary" },
    h("thead", {}, h("tr", {}, h("td"), ["before", "after", "change"].map((text) => h("th", { scope: "col", text })))),
    h("tbody", {}, figures.map(([[quantity, ...amounts], colour]) => h(
      "tr",
      {},
      h("th", { scope: "row", text: quantity }),
      amounts.map((text, place) => h("td", { class: `figure ${place === 2 ? TONES[colour] ?? "" : ""}`, text })),
    ))),
  );
}
