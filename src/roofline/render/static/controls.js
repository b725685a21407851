/** The controls: what is shown (filters), how it is drawn (chart), and what it is held against (machine). */

import { COLOURINGS } from "#page/colours.js";
import { chooser, fill, h, menu, named } from "#page/dom.js";
import { HELP } from "#page/filter.js";
import { rateTitle, title as resourceTitle } from "#page/law.js";
import { GROUPINGS, choices, levels } from "#page/rows.js";
import { DEFAULTS } from "#page/state.js";
import { percent, show } from "#page/units.js";

const FILTERS = ["filter", "categories", "bounds", "dtypes", "feeds", "step", "device", "host", "group", "depth"];

/** The bar above everything: which ops. */
export function filterBar({ report, store }) {
  const offered = choices(report);
  const box = h("input", {
    type: "search",
    class: "filter",
    id: "filter",
    "data-testid": "filter",
    "aria-label": "Filter operations",
    "aria-describedby": "filter-problem",
    placeholder: "Filter: gemm, /^fus/, time>1%",
    autocomplete: "off",
    spellcheck: "false",
    autocapitalize: "none",
    oninput: () => store.set({ filter: box.value }),
  });
  const problem = h("p", { class: "problem", id: "filter-problem", role: "alert", "data-testid": "filter-problem" });
  const help = menu({ label: "?", testid: "filter-help", kind: "help", align: "right", build: (panel) => fillHelp(panel, (example) => store.set({ filter: example }), () => help.close(true)) });
  help.button.setAttribute("aria-label", "Help on filters");
  const lists = [
    many({ label: "Category", testid: "category", key: "categories", field: "category", values: offered.categories, report, store }),
    many({ label: "Bound", testid: "bound", key: "bounds", field: "bound", values: offered.bounds, report, store, word: resourceTitle }),
    many({ label: "Format", testid: "dtype", key: "dtypes", field: "dtype", values: offered.dtypes, report, store }),
  ];
  const every = (what) => ({ key: "", title: `all ${what}` });
  const device = chooser({
    label: "Device",
    testid: "device",
    options: [every("devices"), ...offered.devices.map(({ id, name }) => ({ key: String(id), title: `${id}: ${name}` }))],
    value: "",
    choose: (key) => store.set({ device: key === "" ? null : Number(key) }),
  });
  const host = chooser({
    label: "Host",
    testid: "host",
    options: [every("hosts"), ...offered.hosts.map((name) => ({ key: name, title: name }))],
    value: "",
    choose: (key) => store.set({ host: key === "" ? null : key }),
  });
  const grouping = chooser({ label: "Group by", testid: "group", options: GROUPINGS.map(({ key, title }) => ({ key, title })), value: "", choose: (group) => store.set({ group }) });
  const depth = h("input", { type: "number", class: "depth", min: "1", max: String(Math.max(1, offered.scopeDepth)), step: "1", "aria-label": "Levels of the scope", "data-testid": "depth", oninput: () => Number(depth.value) >= 1 && store.set({ depth: Number(depth.value) }) });
  const steps = slider(offered.steps, stepNames(report), store);
  const feeds = h("input", { type: "checkbox", id: "feeds", "data-testid": "feeds", disabled: !offered.hasFeeds, onchange: () => store.set({ feeds: feeds.checked }) });
  const feedsLabel = h("label", { class: "check", title: offered.hasFeeds ? null : "This program has no infeed or outfeed." }, feeds, h("span", { text: "Infeed and outfeed" }));
  const reset = h("button", { type: "button", class: "plain-button", "data-testid": "reset", text: "Reset all", onclick: () => store.set({ ...DEFAULTS, tab: store.get().tab, theme: store.get().theme }) });
  const inner = h(
    "div",
    { class: "filters" },
    lists.map((list) => list.root),
    offered.devices.length > 1 && device.root,
    offered.hosts.length > 1 && host.root,
    offered.steps.length > 1 && steps.root,
    h("span", { class: "pair" }, grouping.root, depth),
    feedsLabel,
    reset,
  );
  const more = h("details", { class: "more", open: true }, h("summary", { text: "Filters and grouping" }), inner);
  // On a phone the filters start folded; there the chart comes first.
  if (window.matchMedia("(max-width: 640px)").matches) more.removeAttribute("open");
  const root = h("section", { class: "bar", "aria-label": "Filters", "data-testid": "filters" }, h("div", { class: "search" }, box, help.root, problem), more);
  return {
    root,
    box,
    update: (state, { problem: wrong }) => {
      if (box.value !== state.filter) box.value = state.filter;
      problem.textContent = wrong ? wrong.message : "";
      box.setAttribute("aria-invalid", String(Boolean(wrong)));
      for (const list of lists) list.update(state);
      device.set(state.device === null ? "" : String(state.device));
      host.set(state.host ?? "");
      grouping.set(state.group);
      depth.hidden = state.group !== "scope";
      depth.value = String(state.depth);
      steps.update(state);
      feeds.checked = state.feeds;
      reset.disabled = Object.keys(DEFAULTS).every((key) => key === "tab" || key === "theme" || JSON.stringify(state[key]) === JSON.stringify(DEFAULTS[key]));
      const active = FILTERS.filter((key) => JSON.stringify(state[key]) !== JSON.stringify(DEFAULTS[key])).length;
      more.querySelector("summary").textContent = active ? `Filters and grouping (${active} set)` : "Filters and grouping";
    },
  };
}

/** A choice of several values; none chosen is all of them. */
function many({ label, testid, key, field, values, report, store, word = (value) => value }) {
  const counts = new Map();
  for (const op of report.ops) counts.set(op[field], (counts.get(op[field]) ?? 0) + 1);
  const chosen = () => store.get()[key];
  const toggle = (value, on) => {
    const all = chosen().length ? chosen() : [];
    const next = on ? [...all, value] : all.filter((one) => one !== value);
    store.set({ [key]: next.length === values.length ? [] : next });
  };
  const list = menu({
    label,
    testid,
    build: (panel) =>
      fill(
        panel,
        h("p", { class: "quiet hint", text: values.length ? "None ticked shows all." : "There is nothing to choose from." }),
        values.map((value) => {
          const tick = h("input", { type: "checkbox", checked: chosen().includes(value), value, onchange: () => toggle(value, tick.checked) });
          return h("label", { class: "option" }, tick, named(word(value), { most: 48 }), h("span", { class: "count", text: String(counts.get(value) ?? 0) }));
        }),
        h("button", { type: "button", class: "plain-button", "data-testid": `${testid}-all`, text: "Show all", onclick: () => (store.set({ [key]: [] }), list.refresh()) }),
      ),
  });
  return {
    root: list.root,
    update: (state) => list.mark(state[key].length ? String(state[key].length) : ""),
  };
}

function fillHelp(panel, use, close) {
  fill(
    panel,
    h("p", { class: "quiet hint", text: "Click an example to try it." }),
    h(
      "ul",
      { class: "examples" },
      HELP.map(({ example, meaning }) =>
        h("li", {}, h("button", { type: "button", class: "example", text: example, onclick: () => (use(example), close()) }), h("span", { class: "quiet", text: meaning })),
      ),
    ),
  );
}

/** What steps are called: a step's name and number where the report has them. */
function stepNames(report) {
  return new Map((report.steps ?? []).map(({ step, name, number }) => [step, [name, number ?? step].filter((word) => word !== null && word !== "").join(" ")]));
}

/** One step, or all of them at the left end. */
function slider(steps, names, store) {
  const input = h("input", { type: "range", min: "0", max: String(steps.length), step: "1", "aria-label": "Step", "data-testid": "step", oninput: () => store.set({ step: Number(input.value) ? steps[Number(input.value) - 1] : null }) });
  const shown = h("output", { class: "figure", "data-testid": "step-shown" });
  return {
    root: h("label", { class: "slider" }, h("span", { class: "quiet", text: "Step" }), input, shown),
    update: ({ step }) => {
      input.value = String(step === null ? 0 : steps.indexOf(step) + 1);
      shown.textContent = step === null ? "all" : (names.get(step) ?? String(step));
      input.setAttribute("aria-valuetext", step === null ? "all steps" : `step ${step}`);
    },
  };
}

const SIZES = [
  { key: "time", title: "time" },
  { key: "self", title: "self time" },
  { key: "lost", title: "time lost" },
  { key: "flops", title: "work" },
  { key: "bytes", title: "bytes" },
  { key: "equal", title: "equal" },
];

/** The bar above the chart: axes, colours, sizes, roofs, machine, zoom. */
export function chartBar({ report, store, catalogue, comparing, chart }) {
  const axis = chooser({ label: "Bytes of", testid: "level", options: [], value: "hbm", choose: (level) => store.set({ level, window: null }) });
  const colour = chooser({ label: "Colour", testid: "colour", options: COLOURINGS, value: "bound", choose: (key) => store.set({ colour: key }) });
  const size = chooser({ label: "Area", testid: "size", options: SIZES, value: "time", choose: (key) => store.set({ size: key }) });
  const names = h("input", { type: "checkbox", "data-testid": "names", onchange: () => store.set({ labels: names.checked }) });
  const arrows = h("input", { type: "checkbox", "data-testid": "arrows", onchange: () => store.set({ compare: arrows.checked }) });
  let model = null;
  const roofs = menu({
    label: "Roofs",
    testid: "roofs",
    build: (panel) =>
      fill(
        panel,
        h("p", { class: "quiet hint", text: "A roof is shown when an op is bound by it." }),
        model.roofs.map((roof) => {
          const tick = h("input", { type: "checkbox", checked: !roof.hidden, value: roof.id, onchange: () => store.set(toggled(store.get(), roof, tick.checked)) });
          return h("label", { class: `option ${roof.kind}` }, tick, h("span", { class: "name", text: roof.title }), h("span", { class: "count", text: show(roof.rate, roof.per) }));
        }),
        h("button", { type: "button", class: "plain-button", text: "As usual", "data-testid": "roofs-usual", onclick: () => (store.set({ hidden: [], shown: [] }), roofs.refresh()) }),
      ),
  });
  const held = machineMenu({ report, store, catalogue });
  const box = h("button", { type: "button", class: "icon", "aria-pressed": "false", "aria-label": "Zoom into a box", title: "Zoom into a box (or Shift and drag)", "data-testid": "zoom-box", onclick: () => setBox(box.getAttribute("aria-pressed") !== "true") }, icon("box"));
  const setBox = (on) => {
    box.setAttribute("aria-pressed", String(on));
    chart.boxes(on);
  };
  const buttons = h(
    "div",
    { class: "zoom", role: "group", "aria-label": "Zoom" },
    h("button", { type: "button", class: "icon", "aria-label": "Zoom in", title: "Zoom in (+)", "data-testid": "zoom-in", onclick: () => chart.zoomBy(0.6) }, icon("plus")),
    h("button", { type: "button", class: "icon", "aria-label": "Zoom out", title: "Zoom out (-)", "data-testid": "zoom-out", onclick: () => chart.zoomBy(1 / 0.6) }, icon("minus")),
    box,
    h("button", { type: "button", class: "icon", "aria-label": "Reset zoom", title: "Reset zoom (0 or double click)", "data-testid": "zoom-reset", onclick: () => chart.reset() }, icon("fit")),
  );
  const root = h(
    "div",
    { class: "chart-bar", role: "group", "aria-label": "Chart", "data-testid": "chart-controls" },
    axis.root,
    colour.root,
    size.root,
    roofs.root,
    held.root,
    h("label", { class: "check" }, names, h("span", { text: "Names" })),
    comparing && h("label", { class: "check" }, arrows, h("span", { text: "Arrows" })),
    buttons,
  );
  return {
    root,
    update: (state, derived) => {
      model = derived.model;
      axis.set(state.level, [...levels(report, derived.machine), { key: "bound", title: "what binds each op" }]);
      colour.set(state.colour);
      size.set(state.size);
      names.checked = state.labels;
      arrows.checked = state.compare;
      roofs.mark(state.hidden.length + state.shown.length ? String(model.roofs.filter((roof) => !roof.hidden).length) : "");
      held.update(state, derived);
    },
  };
}

/** The state after a roof was switched on or off; what it does by itself needs no word in the address. */
function toggled(state, roof, on) {
  const hidden = state.hidden.filter((id) => id !== roof.id);
  const shown = state.shown.filter((id) => id !== roof.id);
  if (on === roof.usual) return { hidden, shown };
  return on ? { hidden, shown: [...shown, roof.id] } : { hidden: [...hidden, roof.id], shown };
}

const REACH = 10; // the sliders go from a tenth to ten times

/** Another chip, and ceilings higher or lower than they are. */
function machineMenu({ report, store, catalogue }) {
  const chip = chooser({
    label: "Chip",
    testid: "chip",
    options: [{ key: "", title: `${report.machine.title || report.machine.name} (its own)` }, ...catalogue.map(({ name, title }) => ({ key: name, title: title || name }))],
    value: "",
    choose: (name) => store.set({ chip: name || null, window: null, hidden: [], shown: [] }),
  });
  const factor = (key, label) => {
    const input = h("input", { type: "range", min: "-1", max: "1", step: "0.01", "aria-label": label, "data-testid": `factor-${key}`, oninput: () => set(Number(input.value)) });
    const shown = h("output", { class: "figure", "data-testid": `factor-${key}-shown` });
    const set = (power) => {
      const factors = { ...store.get().factors, [key]: Number((REACH ** power).toPrecision(3)) };
      if (factors[key] === 1) delete factors[key];
      store.set({ factors });
    };
    return {
      root: h("label", { class: "slider wide" }, h("span", { text: label }), input, shown),
      update: (state, machine) => {
        const value = state.factors[key] ?? 1;
        input.value = String(Math.log10(value));
        const best = key === "compute" ? machine.bestMatrix : machine.ceilings.find((one) => one.resource === "hbm");
        const effect = best ? rateTitle(best.resource, best.rate) : "";
        shown.textContent = `${percent(value)}${effect ? ` · ${effect}` : ""}`;
        input.setAttribute("aria-valuetext", shown.textContent);
      },
    };
  };
  const compute = factor("compute", "Peak");
  const bandwidth = factor("bandwidth", "Bandwidth");
  const back = h("button", { type: "button", class: "plain-button", text: "Back to its own", "data-testid": "machine-reset", onclick: () => store.set({ chip: null, factors: {}, window: null }) });
  const list = menu({
    label: "Machine",
    testid: "machine",
    align: "right",
    build: (panel) => {
      if (panel.childElementCount) return;
      fill(panel, h("p", { class: "quiet hint", text: "Put the same work under another roof: every figure is worked out again, the measured times stay." }), chip.root, compute.root, bandwidth.root, back);
    },
  });
  return {
    root: list.root,
    update: (state, { machine }) => {
      chip.set(state.chip ?? "");
      compute.update(state, machine);
      bandwidth.update(state, machine);
      const changed = state.chip !== null || Object.keys(state.factors).length > 0;
      back.disabled = !changed;
      list.mark(changed ? "•" : "");
    },
  };
}

/** Which columns the table has. */
export function columnMenu({ store, columns, usual }) {
  const chosen = () => store.get().columns ?? usual;
  const list = menu({
    label: "Columns",
    testid: "columns",
    align: "right",
    build: (panel) =>
      fill(
        panel,
        columns.map(({ key, title, description }) => {
          const tick = h("input", { type: "checkbox", checked: chosen().includes(key), disabled: key === "name", value: key, onchange: () => toggle(key, tick.checked) });
          return h("label", { class: "option", title: description }, tick, h("span", { text: title }));
        }),
        h("button", { type: "button", class: "plain-button", "data-testid": "columns-usual", text: "The usual ones", onclick: () => (store.set({ columns: null }), list.refresh()) }),
      ),
  });
  const toggle = (key, on) => {
    const wanted = columns.map((column) => column.key).filter((one) => (one === key ? on : chosen().includes(one)));
    store.set({ columns: wanted.join() === usual.join() ? null : wanted });
  };
  return list;
}

const ICONS = {
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  box: "M3 5.5V3h2.5M10.5 3H13v2.5M13 10.5V13h-2.5M5.5 13H3v-2.5M6 6h4v4H6z",
  fit: "M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3",
  link: "M6.5 9.5l3-3M7 5l1.6-1.6a2.3 2.3 0 0 1 3.2 3.2L10.2 8.2M9 11l-1.6 1.6a2.3 2.3 0 0 1-3.2-3.2L5.8 7.8",
};

/** A small drawing for a button whose name is in its label. */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const drawing = document.createElementNS(space, "svg");
  drawing.setAttribute("viewBox", "0 0 16 16");
  drawing.setAttribute("class", "drawing");
  drawing.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", ICONS[name]);
  drawing.append(path);
  return drawing;
}
