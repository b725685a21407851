/** Two runs: what became of each op, by Python's comparison of the two reports, largest change first. */

import { DIFFERENCE_COLUMNS } from "#page/columns.js";
import { h } from "#page/dom.js";
import { sort } from "#page/rows.js";
import { table } from "#page/table.js";
import { plain } from "#page/units.js";

/** The columns of a comparison: of measured times, or of minimum times and costs where nothing was measured on both sides. */
export const differenceColumns = ({ columns }) => DIFFERENCE_COLUMNS.filter(({ key }) => columns.includes(key));

/** @returns {{root, rows, update(state)}} `words` are what Python says of both runs: `rows` of ops, `columns`, and `figures` [[quantity, before, after, change], colour] */
export function comparisonView({ comparison, words, select, reveal }) {
  const { rows: all, figures } = words;
  const same = comparison.deltas.length - all.length;
  let order = { sort: null, descending: true };
  let rows = all;
  let selected = new Set();
  const draw = () => list.show({ rows, columns, ...order, selected });
  const columns = differenceColumns(words).map((column) => (
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
  const root = h("section", { class: "below", "aria-label": "Differences", "data-testid": "differences" },
    figureTable(figures),
    h("div", { class: "table-head" }, h("h2", { text: "Differences" }), all.length > 0 && same > 0 && h("p", { class: "quiet", text: `${plain(same)} op${same === 1 ? "" : "s"} unchanged` })),
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

const TONES = { green: "better", red: "worse" };

/** What both runs have: a row for each quantity. */
function figureTable(figures) {
  return figures.length > 0 && h("table", { class: "facts changes", "data-testid": "difference-summary" },
    h("thead", {}, h("tr", {}, h("td"), ["before", "after", "change"].map((text) => h("th", { scope: "col", text })))),
    h("tbody", {}, figures.map(([[quantity, ...amounts], colour]) => h("tr", {},
      h("th", { scope: "row", text: quantity }),
      amounts.map((text, place) => h("td", { class: `figure ${place === 2 ? TONES[colour] ?? "" : ""}`, text })),
    ))),
  );
}
