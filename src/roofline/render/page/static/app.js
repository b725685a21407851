/** The page: reads the embedded data, keeps one state, and redraws every view when the state changes. */

import { card } from "#page/card.js";
import { chipsOf } from "#page/catalogue.js";
import { chart } from "#page/chart.js";
import { chartControls } from "#page/chart_controls.js";
import { chartModel, machineOf, programModel, rowsOf, sortKey } from "#page/chart_model.js";
import { THEMES, assign } from "#page/colours.js";
import { opColumns, ROOMY_COLUMNS, RUN_COLUMNS, UNTIMED_COLUMNS, USUAL_COLUMNS } from "#page/columns.js";
import { comparisonView, differenceColumns } from "#page/comparison.js";
import { columnMenu, filterBar } from "#page/controls.js";
import { details } from "#page/details.js";
import { device } from "#page/device.js";
import { check, fill, h, tabList } from "#page/dom.js";
import { exporter } from "#page/export.js";
import { efficiencyText } from "#page/facts.js";
import { findings } from "#page/findings.js";
import { foldedRows } from "#page/folded.js";
import { given } from "#page/given.js";
import { topBar } from "#page/header.js";
import { headline } from "#page/headline.js";
import { legend } from "#page/legend.js";
import { listen } from "#page/live.js";
import { lost } from "#page/lost.js";
import { program } from "#page/program.js";
import { programRows } from "#page/program_rows.js";
import { decode, encode, store as storeOf } from "#page/state.js";
import { table } from "#page/table.js";
import { timeline } from "#page/timeline.js";
import { plain, show } from "#page/units.js";

const report = given("report");
const before = given("before");
const comparison = given("comparison");
const words = given("words");
const catalogue = chipsOf(given("catalogue"));
const liveTag = document.querySelector("meta[name=roofline-live]");
const live = liveTag ? { ...liveTag.dataset } : null;

const store = storeOf(decode(location.hash));
const darkly = window.matchMedia("(prefers-color-scheme: dark)");
let printing = false; // paper is light
const themeName = () => (printing ? "light" : store.get().theme === "auto" ? (darkly.matches ? "dark" : "light") : store.get().theme);

/** A function that works its answer out again only when what it is given has changed. */
function remembered(work) {
  let last = null;
  let answer;
  return (...inputs) => {
    if (!last || inputs.some((one, index) => one !== last[index])) answer = work(...(last = inputs));
    return answer;
  };
}

const ROWS = [
  "level",
  "filter",
  "categories",
  "bounds",
  "dtypes",
  "feeds",
  "step",
  "device",
  "host",
  "timeline",
  "stretch",
  "group",
  "depth",
  "sort",
  "descending",
];
const DRAWN = ["size", "hidden", "shown", "compare", "whatif", "scopes", "feeds"];
const keyOf = (state, names) => JSON.stringify(names.map((name) => state[name]));

const machineFor = remembered(() => machineOf(report, store.get(), catalogue));
const rowsFor = remembered((key, machine) => rowsOf(report, store.get(), machine));
const opened = new Set(); // folds of the table that are open
let openings = 0;
const foldedFor = remembered((rows, whole_s, count) => foldedRows(rows, {
  key: sortKey(store.get(), report, whole_s), descending: store.get().descending,
  whole_s, opened,
}));
const tableRows = (state, { rows, totals }) => (state.group || !state.folded ? rows : foldedFor(rows, totals.time_s, openings));
const modelFor = remembered((key, { rows, all }, machine) => chartModel(report, store.get(), { rows, all, machine, before, comparison }));
const programFor = remembered((feeds, level, machine) => programRows(report, { feeds, level }, machine));
const programModelFor = remembered((key, { all }, machine) => programModel(report, store.get(), { all, machine }));
const colouring = remembered((all, colour, theme) => assign(all, colour, theme));
const narrow = window.matchMedia("(max-width: 600px)");
const usualOf = remembered((rows, isNarrow) => {
  const timed = USUAL_COLUMNS.filter((key) => key !== (rows.some((row) => row.step_s !== null) ? "count" : "step_s"));
  const usual = rows.some((row) => row.time_s !== null) || !rows.length ? timed : UNTIMED_COLUMNS;
  return isNarrow ? usual.filter((key) => !ROOMY_COLUMNS.includes(key)) : usual;
});
const COLUMNS = opColumns(report);
const columnsFor = remembered((chosen, usual, colourOf, ofRun) => {
  const keys = chosen ? JSON.parse(chosen) : usual;
  const wanted = COLUMNS.filter(({ key }) => keys.includes(key) || key === "label");
  return wanted.map((column) => dressed(ofRun && RUN_COLUMNS.has(column.key) ? { ...column, title: `${column.title} in run` } : column, colourOf));
});
/** Whether amounts are sums over all steps of a run. */
const isOfRun = ({ step }) => step === null && report.steps?.length > 0;

const LEAST_SHARE = 1e-4; // below this a share is nothing, and its digits are noise

/** A column with what only a screen shows: a swatch beside the name, a bar behind the share. */
function dressed(column, colourOf) {
  if (column.main) return { ...column, swatch: colourOf };
  if (column.key === "share") return {
    ...column,
    bar: (row) => row.share,
    format: (share) => (share > 0 && share < LEAST_SHARE ? "<0.01%" : column.format(share)),
  };
  if (column.key === "efficiency") return {
    ...column,
    bar: (row) => row.efficiency,
    tone: (row) => (row.efficiency > 1 && !row.upper ? "doubt" : ""),
    format: (_, row) => efficiencyText(row),
  };
  return column;
}

function derive(state) {
  const machine = machineFor(keyOf(state, ["chip", "factors"]));
  const rows = rowsFor(keyOf(state, ROWS), machine);
  const model = modelFor(keyOf(state, [...DRAWN, "level"]), rows, machine);
  const theme = THEMES[themeName()];
  const { colourOf, roofColour, legend: groups } = colouring(rows.all, state.colour, theme);
  return {
    ...rows,
    machine,
    model,
    theme,
    colourOf,
    roofColour,
    legend: groups,
    program: programFor(state.feeds, state.level, machine),
    programModel: programModelFor(keyOf(state, ["level", "feeds", "hidden", "shown", "scopes", "step"]), rows, machine),
    columns: columnsFor(state.columns && JSON.stringify(state.columns), usualOf(rows.all, narrow.matches), colourOf, isOfRun(state)),
  };
}

const select = (ids, extend) => {
  const old = store.get().selected;
  const every = ids.length > 0 && ids.every((id) => old.includes(id));
  const next = !extend ? (
    every && old.length === ids.length ? [] : ids
  ) : every ? old.filter((id) => !ids.includes(id)) : [...new Set([...old, ...ids])];
  store.set({ selected: [...next], ...(next.length && store.get().panel !== "lost" && store.get().panel !== "device" ? { panel: "details" } : {}) });
};

const hovering = card();
const drawing = chart({
  testid: "chart",
  label: "Roofline chart of the operations",
  card: hovering,
  onwindow: (window) => store.set({ window }),
  onselect: (ids, extend) => {
    select(ids, extend);
    if (ids.length) list.scrollTo(ids[0], { page: true });
  },
});
const list = table({
  testid: "table",
  label: "Operations",
  empty: report.ops.length ? "No operations match the filters." : "No operations in this report.",
  onsort: (sort, descending) => store.set({ sort, descending }),
  onselect: (ids, extend) => {
    select(ids, extend);
    if (ids.length && !extend) drawing.reveal(ids[0]);
  },
  onpoint: (row) => drawing.point(row ? (row.ops[0] ?? null) : null),
  onopen: (id) => {
    if (!opened.delete(id)) opened.add(id);
    openings += 1;
    update();
  },
});
const reveal = (id) => {
  list.scrollTo(id);
  drawing.reveal(id);
};

const panels = {
  findings: { title: "Findings", view: findings({ report, words: words.findings, store, reveal }) },
  lost: { title: "Time lost", view: lost({ store, reveal }) }, details: { title: "Selection", view: details({ report, store }) },
  device: { title: "Device", view: device({ report }) },
};
const panelBar = tabList({
  label: "Panels", kind: "tabs small", tabs: Object.entries(panels).map(([key, { title }]) => ({ key, title })),
  attributes: (key) => ({ id: `panel-tab-${key}`, "aria-controls": `panel-${key}`, "data-testid": `panel-${key}` }),
  choose: (panel) => store.set({ panel }),
});
const panelBodies = new Map(
  Object.entries(panels).map(([key, { title, view }]) => [
    key,
    h("div", { class: "panel", role: "tabpanel", id: `panel-${key}`, "aria-labelledby": `panel-tab-${key}`, tabindex: "0" },
      h("h2", { class: "panel-title", text: title }),
      view.root,
    ),
  ]),
);
const side = h("aside", { class: "side", "aria-label": "Panels" }, panelBar.root, [...panelBodies.values()]);

const filters = filterBar({ report, store });
const bar = chartControls({ report, store, catalogue, comparing: Boolean(before), chart: drawing });
const colours = legend({ store });
const columnChooser = columnMenu({ store, columns: COLUMNS, usual: () => usualOf(derive(store.get()).all, narrow.matches) });
const count = h("p", { class: "quiet", "data-testid": "count", role: "status" });
const compared = before ? comparisonView({ comparison, words: words.comparison, select, reveal: (id) => drawing.reveal(id) }) : null;
const folding = check({
  label: "Equal work as one row", title: "Show layers that do the same work as one row; open it to see each", "data-testid": "folded",
  onchange: ({ target }) => store.set({ folded: target.checked }),
});
const opsBelow = h("section", { class: "below", "aria-label": "Table of operations" },
  h("div", { class: "table-head" }, h("h2", { text: "Operations" }), count, report.folds?.length ? folding.root : null, columnChooser.root),
  list.root,
);
const opsView = h("div", { class: "ops" },
  filters.root,
  h("div", { class: "split" }, h("section", { class: "stage", "aria-label": "Chart of operations" }, bar.root, drawing.root, colours.root), side),
  opsBelow,
  compared?.root,
);
const whole = program({ report, stragglers: words.stragglers, store, card: hovering });
const summary = headline({ report, words, store, before });
const when = timeline({ report, idle: words.idle, store });

const files = report.input.files ?? [];
const fileName = (path) => path.split(/[\\/]/).pop() || path;
const heading = document.title;
const subtitle = [
  report.changes?.length ? `predicted after ${report.changes.join(" ")}` : null,
  report.machine.title || report.machine.name,
  report.input.devices?.length > 1 ? `${report.input.devices.length} devices` : null,
  report.input.hosts?.length > 1 ? `${report.input.hosts.length} hosts` : null,
  files.length === 1 && fileName(files[0]) !== heading ? fileName(files[0]) : null,
  files.length > 1 ? `${files.length} files` : null,
].filter(Boolean);
const scene = () => {
  const state = store.get();
  const { model, rows, columns, all } = derive(state);
  const drawn = { model, window: state.window, theme: themeName(), colour: state.colour, selected: state.selected, marks: all, title: heading };
  return state.tab === "compare" && compared ? { ...drawn, rows: compared.rows, columns: differenceColumns(words.comparison) } : { ...drawn, rows, columns };
};
const tabs = [{ key: "ops", title: "Operations" }, { key: "program", title: "Program" }, ...(before ? [{ key: "compare", title: "Compare" }] : [])];
const top = topBar({
  title: heading, subtitle, store, tabs, live,
  exporting: exporter({ scene, name: fileName(files[0] ?? heading).replace(/\.(xplane\.pb|json|csv|html|txt)(\.gz)?$/, "") || "roofline" }),
});

const view = h("div", { id: "view", class: "view", role: "tabpanel", tabindex: "-1" }, opsView, whole.root);
fill(document.getElementById("top"), top.root);
fill(document.getElementById("main"), summary.root, when.root, view);
fill(
  document.getElementById("foot"),
  h("p", {
    class: "quiet",
    text: `roofline · ${report.schema} · ${report.input.format} · amounts are totals over all executions; G = 10⁹, Gi = 2³⁰`,
  }),
);
document.body.append(hovering.root);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment belongs to the state
  drawing.surface.focus();
});

function chartLabel({ dots, strip }) {
  const without = strip.length ? `, and ${plain(strip.length)} without FLOP` : "";
  const keys = "Arrow keys move between operations, Enter selects, plus and minus zoom, 0 resets the zoom.";
  return `Roofline of ${plain(dots.length)} operations${without}. ${keys}`;
}

function update() {
  const state = store.get();
  const derived = derive(state);
  document.documentElement.dataset.theme = themeName();
  const tab = tabs.some(({ key }) => key === state.tab) ? state.tab : "ops";
  view.setAttribute("aria-labelledby", `tab-${tab}`);
  top.update({ ...state, tab });
  summary.update(state, derived);
  when.update(state, derived);
  opsView.hidden = tab === "program";
  whole.root.hidden = tab !== "program";
  opsBelow.hidden = tab === "compare";
  if (compared) compared.root.hidden = tab !== "compare";
  filters.update(state, derived);
  bar.update(state, derived);
  if (tab !== "program") {
    drawing.show({
      model: derived.model, colourOf: derived.colourOf, roofColour: derived.roofColour, theme: derived.theme,
      window: state.window, selected: new Set(state.selected), names: state.labels, ariaLabel: chartLabel(derived.model),
    });
    list.show({
      rows: tableRows(state, derived), columns: derived.columns, sort: sortKey(state, report, derived.totals.time_s), descending: state.descending,
      selected: new Set(state.selected),
    });
    compared?.update(state, derived);
    colours.update(state, derived);
  }
  if (tab === "program") whole.update(state, derived);
  columnChooser.mark(state.columns ? String(derived.columns.length) : "");
  const shownRows = tableRows(state, derived).length;
  folding.input.checked = state.folded;
  folding.input.disabled = Boolean(state.group);
  const counted = (number, word) => `${plain(number)} ${word}${number === 1 ? "" : "s"}`;
  count.textContent = [
    shownRows < derived.rows.length ? `${counted(derived.rows.length, "op")} in ${counted(shownRows, "row")}` : counted(derived.rows.length, state.group ? "group" : "row"),
    derived.shown.time_s ? `${show(derived.shown.weight, "s")}${isOfRun(state) ? " over the whole run" : ""}${report.input.devices?.length > 1 && state.device === null && state.host === null ? ", all devices" : ""}` : "",
    state.selected.length ? `${plain(state.selected.length)} selected` : "",
  ].filter(Boolean).join(" · ");
  panelBar.show(state.panel);
  for (const key of Object.keys(panels)) {
    const on = key === state.panel;
    panelBodies.get(key).hidden = !on;
    if (on) panels[key].view.update(state, derived);
  }
}

const CONTINUOUS = new Set(["window", "factors", "filter", "step"]); // what a hand drags or types: a run of changes is one choice
const RUN_MS = 1000; // between changes of one run
let waiting = null; // {changed, timer}
let last = { kind: "", at: -Infinity };

/** Writes the state into the address, one entry of the history for each choice: what one click changes, or one run of dragging or typing. */
function note(changed) {
  if (location.protocol === "about:") return; // a frame in a notebook has no address of its own
  if (waiting) clearTimeout(waiting.timer);
  const all = new Set([...(waiting?.changed ?? []), ...changed]);
  const kind = [...all].join();
  waiting = { changed: all, timer: setTimeout(write, CONTINUOUS.has(kind) ? 120 : 0, kind) };
}

function write(kind) {
  waiting = null;
  const fragment = `#${encode(store.get())}`;
  if (fragment === (location.hash || "#")) return;
  const going = CONTINUOUS.has(kind) && kind === last.kind && performance.now() - last.at < RUN_MS;
  last = { kind, at: performance.now() };
  history[going ? "replaceState" : "pushState"](null, "", `${location.pathname}${location.search}${fragment}`);
}

let remembering = true;
store.on((state, changed) => {
  update();
  if (remembering) note(changed);
});
const back = () => {
  last = { kind: "", at: -Infinity };
  remembering = false;
  store.set(decode(location.hash));
  remembering = true;
};
window.addEventListener("popstate", back);
window.addEventListener("hashchange", back);
darkly.addEventListener("change", update);
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches?.("input, select, textarea") ?? false;
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    filters.box.focus();
  }
});
for (const [event, begins] of [["beforeprint", true], ["afterprint", false]]) {
  window.addEventListener(event, () => {
    printing = begins;
    update();
  });
}
listen(live);
update();
document.documentElement.dataset.ready = "true";

// For tests: where a dot is on screen, and the state.
window.roofline = Object.freeze({ spot: drawing.spot, state: store.get });
