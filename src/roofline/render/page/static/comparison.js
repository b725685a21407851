/** Two runs: what became of each op, largest change first. */

import { DIFFERENCE_COLUMNS } from "#page/columns.js";
import { differences, summary } from "#page/compare.js";
import { fill, h } from "#page/dom.js";
import { sort } from "#page/rows.js";
import { table } from "#page/table.js";
import { percent, show } from "#page/units.js";

/** @returns {{root, rows, update(state)}} */
export function comparison({ report, before, pairs, select, reveal }) {
  const all = differences(before, report, pairs);
  const sum = summary(before, report, pairs);
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
    empty: "Neither run has operations.",
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
      h("p", { class: "quiet", "data-testid": "difference-summary", text: words(sum) }),
    ),
    list.root,
  );
  if (sum.notes?.length) root.append(fill(h("ul", { class: "notes" }), sum.notes.map((note) => h("li", { text: note }))));
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

function words({ before, after, change_s, speedup }) {
  const parts = [`${show(before.time_s, "s")} before, ${show(after.time_s, "s")} after`];
  if (change_s !== null && change_s !== undefined) parts.push(`${change_s > 0 ? "slower" : "faster"} by ${show(Math.abs(change_s), "s")}`);
  if (speedup) parts.push(`${show(speedup, "1", 3)} times the speed`);
  if (before.efficiency && after.efficiency) parts.push(
    `${percent(before.efficiency)} of the roofs before, ${percent(after.efficiency)} after`,
  );
  return parts.join(" · ");
}
