/** The top of the page: what it is about, the figures that matter most, the tabs, and what leaves the page. */

import { fill, h, menu, named, tabList } from "#page/dom.js";
import { copyLink } from "#page/export.js";
import { boundWords } from "#page/facts.js";
import { icon } from "#page/icons.js";
import { percent, plain, show } from "#page/units.js";

const THEMES = [
  { key: "auto", title: "System" },
  { key: "light", title: "Light" },
  { key: "dark", title: "Dark" },
];

/** The bar with the title, tabs and buttons. `tabs` are [{key, title}]. */
export function topBar({ title, subtitle, store, tabs, exporting, live }) {
  const bar = tabList({
    label: "Views",
    kind: "tabs",
    tabs,
    attributes: (key) => ({ id: `tab-${key}`, "aria-controls": "view", "data-testid": `tab-${key}` }),
    choose: (tab) => store.set({ tab }),
  });
  const theme = menu({
    label: "Theme",
    testid: "theme",
    align: "right",
    build: (panel) =>
      fill(
        panel,
        THEMES.map(({ key, title: name }) => {
          const tick = h("input", {
            type: "radio",
            name: "theme",
            value: key,
            checked: store.get().theme === key,
            onchange: () => store.set({ theme: key }),
          });
          return h("label", { class: "option" }, tick, h("span", { text: name }));
        }),
      ),
  });
  const said = h("span", { class: "said", role: "status" });
  const link = h(
    "button",
    { type: "button", class: "menu-button", "data-testid": "copy-link", onclick: () => copyLink((text) => tell(text)) },
    icon("link"),
    h("span", { text: "Copy link" }),
  );
  const tell = (text) => {
    said.textContent = text;
    setTimeout(() => (said.textContent = ""), 2500);
  };
  const root = h(
    "div",
    { class: "top-inner" },
    h(
      "div",
      { class: "titles" },
      live?.home && h("a", { class: "home", href: live.home, text: "All runs" }),
      h("h1", { "data-testid": "title" }, named(title, { most: 80 })),
      h("p", { class: "quiet", "data-testid": "subtitle" }, subtitle.map((word, index) => [index ? " · " : "", named(word, { most: 60 })])),
    ),
    tabs.length > 1 && bar.root,
    h(
      "div",
      { class: "actions" },
      said,
      link,
      exporting.root,
      theme.root,
      live?.twin && h("a", { class: "menu-button", href: live.twin, text: "JSON", "data-testid": "twin" }),
    ),
  );
  return {
    root,
    update: ({ tab }) => bar.show(tab),
  };
}

/** The figures that matter most, in a row. */
export function figures({ report, store }) {
  const list = h("dl", { class: "figures", "data-testid": "figures" });
  const notice = h("p", { class: "notice", role: "status", "data-testid": "notice", hidden: true });
  return {
    root: h("section", { class: "summary", "aria-label": "Summary" }, list, notice),
    update: (state, { program, shown, totals, machine }) => {
      fill(
        list,
        summary(report, program, shown, totals, machine).map(([word, figure, remark, key]) => h(
          "div",
          { class: "one", "data-testid": `figure-${key}` },
          h("dt", { text: word }),
          h("dd", {}, h("span", { class: "large", text: figure }), h("span", { class: "quiet", text: remark ?? "" })),
        )),
      );
      const changed = changes(report, state, machine);
      notice.hidden = !changed;
      if (changed) fill(
        notice,
        changed,
        " ",
        h("button", {
          type: "button",
          class: "plain-button",
          text: "Reset",
          "data-testid": "notice-reset",
          onclick: () => store.set({ chip: null, factors: {}, window: null }),
        }),
      );
    },
  };
}

function changes(report, state, machine) {
  const own = report.machine.title || report.machine.name;
  const factors = Object.entries(state.factors).map(([key, factor]) => `, ${key === "compute" ? "peak compute" : key} at ${percent(factor)}`);
  if (state.chip === null && !factors.length) return "";
  const which = state.chip === null ? own : `${machine.title} instead of ${own}`;
  return `Ceilings of ${which}${factors.join("")}. Measured times are unchanged.`;
}

function summary(report, program, shown, totals, machine) {
  const total = program.find((row) => row.scope === "total");
  const { coverage } = report;
  const { time_s } = total ?? totals;
  const found = [];
  if (time_s) {
    found.push(["Time", show(time_s, "s"), total && total.busy_s !== null ? `${percent(total.busy_s / time_s)} busy` : "", "time"]);
    if (total) found.push(["Roofline efficiency", percent(total.efficiency), `minimum time ${show(total.floor_s, "s")}`, "efficiency"]);
    found.push(["Per-op roofline", percent(total?.op_efficiency ?? totals.efficiency), "of the measured time", "ops-efficiency"]);
  } else found.push(["Minimum time", show(total?.floor_s ?? totals.floor_s, "s"), "no measured times", "floor"]);
  if (total) {
    const [kind, unit] = boundWords(total.bound);
    const used = total.utilization?.[total.bound];
    found.push(["Bound by", unit, [kind, used ? `${percent(used)} utilized` : ""].filter(Boolean).join(", "), "bound"]);
    const ridge = machine.bestMatrix ? machine.ridge(machine.bestMatrix.resource) : null;
    found.push(["Arithmetic intensity", show(total.intensity, "FLOP/B"), `ridge point ${show(ridge, "FLOP/B")}`, "intensity"]);
  }
  if (report.memory) {
    const { peak_bytes, capacity_bytes } = report.memory;
    const room = capacity_bytes ? `${percent(peak_bytes / capacity_bytes)} of ${show(capacity_bytes, "B")}` : report.memory.method;
    found.push(["Peak memory", show(peak_bytes, "B"), peak_bytes > (capacity_bytes ?? Infinity) ? `does not fit: ${room}` : room, "memory"]);
  }
  found.push(["Work", show(total?.flops ?? totals.flops, "FLOP"), total?.rate ? `${show(total.rate, "FLOP/s")} achieved` : "", "work"]);
  if (coverage.busy_s && coverage.priced_s !== null) {
    found.push(["Known cost", percent(coverage.priced_s / coverage.busy_s), "of busy time", "priced"]);
  }
  found.push(["Operations", plain(shown.ops), shown.ops === totals.ops ? "" : `of ${plain(totals.ops)} shown`, "ops"]);
  return found;
}
