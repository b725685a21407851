/** The controls of what is shown: filters, steps, devices, grouping, columns. */

import { button, check, chooser, fill, h, menu, named } from "#page/dom.js";
import { HELP } from "#page/filter.js";
import { GROUPINGS } from "#page/groups.js";
import { title as resourceTitle } from "#page/law.js";
import { choices } from "#page/rows.js";
import { DEFAULTS } from "#page/state.js";

const FILTERS = ["filter", "categories", "bounds", "dtypes", "feeds", "step", "device", "host", "group", "depth"];

/** The bar above everything: which ops to show. */
export function filterBar({ report, store }) {
  const offered = choices(report);
  const box = h("input", {
    type: "search", class: "filter", id: "filter", "data-testid": "filter", "aria-label": "Filter operations",
    "aria-describedby": "filter-problem", placeholder: "Filter: gemm, /^fus/, time>1%", autocomplete: "off", spellcheck: "false",
    autocapitalize: "none", oninput: () => store.set({ filter: box.value }),
  });
  const problem = h("p", { class: "problem", id: "filter-problem", role: "alert", "data-testid": "filter-problem" });
  const help = menu({
    label: "?", testid: "filter-help", kind: "help", align: "right",
    build: (panel) => fillHelp(panel, (example) => store.set({ filter: example }), () => help.close(true)),
  });
  help.button.setAttribute("aria-label", "Filter help");
  // A list without values, such as bounds on an unknown chip, has nothing to choose.
  const lists = [
    many({ label: "Category", testid: "category", key: "categories", field: "category", values: offered.categories, report, store }),
    many({ label: "Bound", testid: "bound", key: "bounds", field: "bound", values: offered.bounds, report, store, word: resourceTitle }),
    many({ label: "Number format", testid: "dtype", key: "dtypes", field: "dtype", values: offered.dtypes, report, store }),
  ].filter(Boolean);
  const every = (what) => ({ key: "", title: `all ${what}` });
  const device = chooser({
    label: "Device", testid: "device",
    options: [every("devices"), ...offered.devices.map(({ id, name }) => ({ key: String(id), title: `${id}: ${name}` }))],
    value: "", choose: (key) => store.set({ device: key === "" ? null : Number(key) }),
  });
  const host = chooser({
    label: "Host", testid: "host", options: [every("hosts"), ...offered.hosts.map((name) => ({ key: name, title: name }))],
    value: "", choose: (key) => store.set({ host: key === "" ? null : key }),
  });
  const grouping = chooser({
    label: "Group by", testid: "group", options: GROUPINGS.map(({ key, title }) => ({ key, title })), value: "",
    choose: (group) => store.set({ group }),
  });
  const depth = h("input", {
    type: "number", class: "depth", min: "1", max: String(Math.max(1, offered.scopeDepth)), step: "1",
    "aria-label": "Scope depth", "data-testid": "depth",
    oninput: () => Number(depth.value) >= 1 && store.set({ depth: Number(depth.value) }),
  });
  const steps = slider(offered.steps, offered.stepTitles, store);
  const feeds = check({
    label: "Infeed and outfeed", title: offered.hasFeeds ? null : "No infeed or outfeed in this program.", id: "feeds", "data-testid": "feeds",
    disabled: !offered.hasFeeds, onchange: ({ target }) => store.set({ feeds: target.checked }),
  });
  const reset = button({
    "data-testid": "reset", text: "Reset all",
    onclick: () => store.set({ ...DEFAULTS, tab: store.get().tab, theme: store.get().theme }),
  });
  const inner = h("div", { class: "filters" },
    lists.map((list) => list.root),
    offered.devices.length > 1 && device.root,
    offered.hosts.length > 1 && host.root,
    offered.steps.length > 1 && steps.root,
    h("span", { class: "pair" }, grouping.root, depth),
    feeds.root,
    reset,
  );
  const more = h("details", { class: "more", open: true }, h("summary", { text: "Filters and grouping" }), inner);
  // On a phone the filters start folded; there the chart comes first.
  if (window.matchMedia("(max-width: 640px)").matches) more.removeAttribute("open");
  const root = h("section", { class: "bar", "aria-label": "Filters", "data-testid": "filters" },
    h("div", { class: "search" }, box, help.root, problem),
    more,
  );
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
      feeds.input.checked = state.feeds;
      reset.disabled = Object.keys(DEFAULTS).every(
        (key) => key === "tab" || key === "theme" || JSON.stringify(state[key]) === JSON.stringify(DEFAULTS[key]),
      );
      const active = FILTERS.filter((key) => JSON.stringify(state[key]) !== JSON.stringify(DEFAULTS[key])).length;
      more.querySelector("summary").textContent = active ? `Filters and grouping (${active} set)` : "Filters and grouping";
    },
  };
}

/** A choice of several values; none chosen is all of them. `null` when there are no values. */
function many({ label, testid, key, field, values, report, store, word = (value) => value }) {
  if (!values.length) return null;
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
      fill(panel,
        h("p", { class: "quiet hint", text: "With nothing ticked, all are shown." }),
        values.map((value) => check({
          kind: "option", label: word(value), count: String(counts.get(value) ?? 0), checked: chosen().includes(value), value,
          onchange: ({ target }) => toggle(value, target.checked),
        }).root),
        button({ "data-testid": `${testid}-all`, text: "Show all", onclick: () => (store.set({ [key]: [] }), list.refresh()) }),
      ),
  });
  return { root: list.root, update: (state) => list.mark(state[key].length ? String(state[key].length) : "") };
}

function fillHelp(panel, use, close) {
  const example = ([text, meaning]) => h("li", {},
    button({ class: "example", text, onclick: () => (use(text), close()) }), h("span", { class: "quiet", text: meaning }),
  );
  fill(panel, h("p", { class: "quiet hint", text: "Click an example to try it." }), h("ul", { class: "examples" }, HELP.map(example)));
}

/** One step, or all of them at the left end. */
function slider(steps, titles, store) {
  const input = h("input", {
    type: "range", min: "0", max: String(steps.length), step: "1", "aria-label": "Step", "data-testid": "step",
    oninput: () => store.set({ step: Number(input.value) ? steps[Number(input.value) - 1] : null }),
  });
  const shown = h("output", { class: "figure", "data-testid": "step-shown" });
  return {
    root: h("label", { class: "slider" }, h("span", { class: "quiet", text: "Step" }), input, shown),
    update: ({ step }) => {
      input.value = String(step === null ? 0 : steps.indexOf(step) + 1);
      shown.textContent = step === null ? "all" : (titles[step] ?? String(step));
      input.setAttribute("aria-valuetext", step === null ? "all steps" : `step ${step}`);
    },
  };
}

/** Which columns the table has. */
export function columnMenu({ store, columns, usual }) {
  const chosen = () => store.get().columns ?? usual();
  const list = menu({
    label: "Columns",
    testid: "columns",
    align: "right",
    build: (panel) =>
      fill(panel,
        columns.map(({ key, title, description }) => check({
          kind: "option", label: title, title: description, checked: chosen().includes(key), disabled: key === "label", value: key,
          onchange: ({ target }) => toggle(key, target.checked),
        }).root),
        button({ "data-testid": "columns-usual", text: "Default columns", onclick: () => (store.set({ columns: null }), list.refresh()) }),
      ),
  });
  const toggle = (key, on) => {
    const wanted = columns.map((column) => column.key).filter((one) => (one === key ? on : chosen().includes(one)));
    store.set({ columns: wanted.join() === usual().join() ? null : wanted });
  };
  return list;
}
