/** The program level: all of it, by counters, its average step and every step, on a chart and in a table. */

import { chart } from "#page/chart.js";
import { PROGRAM_COLUMNS } from "#page/columns.js";
import { modelAgainstCounters } from "#page/counters.js";
import { button, check, fill, h } from "#page/dom.js";
import { causes } from "#page/lost.js";
import { spread } from "#page/spread.js";
import { table } from "#page/table.js";
import { VOCABULARY } from "#page/vocabulary.js";

const SIGNS = { total: "★", hardware: "☆", average: "□", step: "•" };
const SCOPES = Object.entries(SIGNS).map(([key, sign]) => ({ key, sign, title: key === "step" ? "steps" : VOCABULARY.points[key] }));

/** The columns in which anything is known. */
function columnsOf(rows) {
  return PROGRAM_COLUMNS.filter(({ key }) => {
    const known = rows.filter((row) => row[key] !== null && row[key] !== undefined);
    return SEVERAL.includes(key) ? known.some((row) => row[key] !== row.time_s) : key === "name" || !OPTIONAL.includes(key) || known.length;
  });
}

/** The rows with the time before the first step as one of their own, in which no work is counted. */
function withBefore(rows, time_s) {
  const first = rows.findIndex(({ scope }) => scope === "step");
  if (!time_s || first < 0) return rows;
  const unknown = Object.fromEntries(PROGRAM_COLUMNS.map(({ key }) => [key, null]));
  const before = { ...unknown, kind: "point", id: "before", scope: "before", name: VOCABULARY.points.before, time_s };
  return [...rows.slice(0, first), before, ...rows.slice(first)];
}

const OPTIONAL = ["busy_s", "span_s", "link_utilization", "memory_utilization", "op_efficiency"];
const SEVERAL = ["slowest_s", "device_seconds"]; // the time again where there is one device

/** @returns {{root, update(state, derived)}} */
export function program({ report, stragglers, store, card }) {
  let view = null; // the program's own window; the address holds that of the ops
  const drawing = chart({
    testid: "program-chart", label: "Program-level roofline", card, onwindow: (window) => (view = window), onselect: () => {},
  });
  const list = table({ testid: "program-table", label: "Program-level figures", empty: "No program-level figures in this report." });
  const present = new Set(report.points.map((point) => point.scope));
  const choose = (key, on) => store.set({ scopes: SCOPES.map((one) => one.key).filter((one) => (one === key ? on : store.get().scopes.includes(one))) });
  const ticks = new Map(SCOPES.filter(({ key }) => present.has(key)).map(({ key, sign, title }) => [
    key, check({ label: `${sign} ${title}`, "data-testid": `scope-${key}`, onchange: ({ target }) => choose(key, target.checked) }),
  ]));
  const legend = h("div", { class: "legend", role: "group", "aria-label": "Points shown" }, [...ticks.values()].map(({ root }) => root));
  const zoom = button({ text: "Reset zoom", "data-testid": "program-zoom-reset", onclick: () => drawing.reset() });
  const bars = spread({ report, stragglers, store });
  const counted = modelAgainstCounters({ report, select: (ids) => store.set({ selected: [...ids] }) });
  const aside = h("aside", { class: "side", "aria-label": "Time lost by cause" });
  const root = h("div", { class: "program", "data-testid": "program" },
    h("h2", { class: "panel-title", text: "Program" }),
    bars.root,
    h("div", { class: "split" },
      h("section", { class: "stage", "aria-label": "Program-level roofline" }, h("div", { class: "chart-bar" }, legend, zoom), drawing.root),
      aside,
    ),
    h("section", { class: "below", "aria-label": "Program-level figures" }, h("h2", { text: "Program-level figures" }), list.root),
    counted?.root,
  );
  let shown = null;
  return {
    root,
    update: (state, derived) => {
      for (const [key, { input }] of ticks) input.checked = state.scopes.includes(key);
      const rows = derived.program.filter((row) => state.scopes.includes(row.scope));
      list.show({ rows: withBefore(rows, report.coverage.before_steps_s), columns: columnsOf(rows), selected: new Set() });
      drawing.show({
        model: derived.programModel, colourOf: derived.colourOf, roofColour: derived.roofColour, theme: derived.theme,
        window: view, selected: new Set(), names: false, ariaLabel: `Program-level roofline: ${rows.length} points`,
      });
      bars.update(state, derived);
      counted?.update(state);
      if (shown?.program === derived.program && shown.step === state.step) return;
      shown = { program: derived.program, step: state.step };
      const lost = causes(derived.program, state.step);
      fill(aside, lost ?? h("p", { class: "empty", text: "Star: the whole program, including idle time. Square: average of its complete steps.", }));
    },
  };
}
