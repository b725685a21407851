/** What is selected: one op in full, or several in sum. */

import { button, fill, h, named } from "#page/dom.js";
import { amounts, counted, efficiencyText, factList, facts, origin, wordList } from "#page/facts.js";
import { totals } from "#page/rows.js";
import { plain, show } from "#page/units.js";

const LISTED = 50; // names of a selection; the table has them all

/** @returns {{root, update(state, derived)}} */
export function details({ report, store }) {
  const root = h("div", { class: "details", "data-testid": "details" });
  const ledgers = new Map(report.ops.filter((op) => op.ledger?.length).map((op) => [op.id, op.ledger]));
  return {
    root,
    update: (state, { all, rows }) => {
      const wanted = new Set(state.selected);
      // A selected group is itself; a selected op is found even where a filter hides it.
      const chosen = state.group ? rows.filter((row) => row.ops.some((id) => wanted.has(id))) : all.filter((row) => wanted.has(row.id));
      if (!chosen.length) {
        fill(root, h("p", { class: "empty", text: "Nothing selected. Click a dot, a row or a finding; hold Ctrl or Shift to add to the selection." }));
        return;
      }
      const clear = button({ text: "Clear selection", "data-testid": "clear-selection", onclick: () => store.set({ selected: [] }) });
      fill(root, chosen.length === 1 ? single(chosen[0], ledgers.get(chosen[0].id)) : several(chosen), clear);
    },
  };
}

function single(row, ledger) {
  const counters = counted(row);
  return [
    h("h3", { class: "whole-name", "data-testid": "selected-name" }, named(row.label ?? row.name, { most: 4000, title: null })),
    row.label && row.label !== row.name && h("p", { class: "quiet whole-name", "data-testid": "compiler-name" }, named(row.name, { most: 4000, title: null })),
    factList(facts(row), "figures"),
    h("h4", { text: "Work and bytes" }),
    factList(amounts(row), "work and bytes"),
    counters.length > 0 && [h("h4", { text: "Hardware counters" }), factList(counters, "hardware counters")],
    h("h4", { text: "Origin" }),
    wordList(origin(row)),
    ledger && [h("h4", { text: "Bytes by tensor" }), factList(ledger.map(ledgerRow), "bytes by tensor")],
    row.notes?.length > 0 && h("ul", { class: "notes" }, row.notes.map((note) => h("li", { text: note }))),
  ];
}

function ledgerRow({ tensor, bytes, access, dtype, shape, note }) {
  return [tensor, show(bytes, "B"), [access, `${dtype}[${shape.map((one) => plain(one)).join(", ")}]`, note].filter(Boolean).join(" · ")];
}

function several(rows) {
  const sum = totals(rows);
  const run = sum.step_s === null ? "" : " in run";
  const figures = [
    ...(sum.step_s === null ? [] : [["Time per step", show(sum.step_s, "s"), ""]]),
    [`Time${run}`, show(sum.time_s, "s"), ""],
    [`Minimum time${run}`, show(sum.floor_s, "s"), sum.lost_s === null ? "" : `${show(sum.lost_s, "s")} lost`],
    ["Roofline efficiency", efficiencyText(sum), ""],
    ["Work", show(sum.flops, "FLOP"), ""],
    ["Executions", plain(sum.count), ""],
  ];
  return [
    h("h3", { text: `${plain(sum.ops)} ops selected`, "data-testid": "selected-name" }),
    factList(figures, "figures"),
    h("ul", { class: "chosen" },
      rows.slice(0, LISTED).map((row) => h("li", {},
        named(row.label ?? row.name, { most: 60 }),
        h("span", { class: "count", text: show(row.time_s, "s") }),
      )),
    ),
    rows.length > LISTED && h("p", { class: "quiet", text: `and ${plain(rows.length - LISTED)} more` }),
  ];
}
