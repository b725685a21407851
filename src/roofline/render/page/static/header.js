/** The top of the page: what it is about, the figures that matter most, the tabs, and what leaves the page. */

import { fill, h, menu, named, tabList } from "#page/dom.js";
import { copyLink } from "#page/export.js";
import { boundTitle } from "#page/facts.js";
import { icon } from "#page/icons.js";
import { percent, plain, show } from "#page/units.js";

const THEMES = [
  { key: "auto", title: "As the system" },
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
          text: "Back to its own",
          "data-testid": "notice-reset",
          onclick: () => store.set({ chip: null, factors: {}, window: null }),
        }),
      );
    },
  };
}

function changes(report, state, machine) {
  const own = report.machine.title || report.machine.name;
  const factors = Object.entries(state.factors).map(([key, factor]) => `${key} at ${percent(factor)}`);
  if (state.chip === null && !factors.length) return "";
  const which = state.chip === null ? own : `${machine.title || machine.name} instead of ${own}`;
  return `Held against ${which}${factors.length ? `, ${factors.join(", ")}` : ""}; the times are those measured.`;
}

function summary(report, program, shown, totals, machine) {
  const total = program.find((row) => row.scope === "total");
  const { coverage } = report;
  const timed = Boolean(total?.time_s ?? totals.time_s);
  const part = shown.ops === totals.ops ? `of ${plain(totals.ops)}` : `of ${plain(totals.ops)} shown`;
  const found = [];
  if (timed) {
    const busy = total?.busy_s ?? null;
    found.push([
      "Time",
      show(total?.time_s ?? totals.time_s, "s"),
      busy !== null && total.time_s ? `${percent(busy / total.time_s)} busy` : "",
      "time",
    ]);
    found.push(["Ops need", percent(total?.op_efficiency ?? totals.efficiency), "of it at their own roofs", "ops-efficiency"]);
    if (total) found.push(["Program needs", percent(total.efficiency), `if all overlapped, ${show(total.floor_s, "s")}`, "efficiency"]);
  } else found.push(["At least", show(total?.floor_s ?? totals.floor_s, "s"), "no time was measured", "floor"]);
  if (total) {
    found.push([
      "Bound by",
      boundTitle(total.bound),
      total.bound && total.utilization?.[total.bound] ? `${percent(total.utilization[total.bound])} used` : "",
      "bound",
    ]);
    found.push([
      "Intensity",
      show(total.intensity, "FLOP/B"),
      `ridge ${show(machine.bestMatrix ? machine.ridge(machine.bestMatrix.resource) : null, "FLOP/B")}`,
      "intensity",
    ]);
  }
  found.push(["Work", show(total?.flops ?? totals.flops, "FLOP"), total?.rate ? show(total.rate, "FLOP/s") : "", "work"]);
  if (coverage.busy_s && coverage.priced_s !== null) found.push([
    "Priced",
    percent(coverage.priced_s / coverage.busy_s),
    "of the busy time",
    "priced",
  ]);
  found.push(["Ops", plain(shown.ops), part, "ops"]);
  return found;
}
