/** The controls of the chart: axes, colours, sizes, roofs, machine, zoom. */

import { COLOURINGS } from "#page/colours.js";
import { button, check, chooser, fill, h, menu } from "#page/dom.js";
import { icon } from "#page/icons.js";
import { rateTitle } from "#page/law.js";
import { levels } from "#page/rows.js";
import { meaning } from "#page/terms.js";
import { percent, show } from "#page/units.js";

const SIZES = [
  { key: "time", title: "time" },
  { key: "self", title: "self time" },
  { key: "lost", title: "time lost" },
  { key: "flops", title: "work" },
  { key: "bytes", title: "bytes" },
  { key: "equal", title: "equal" },
];

export function chartControls({ report, store, catalogue, comparing, chart }) {
  const axis = chooser({
    label: "Memory level", testid: "level", options: [], value: "hbm", title: meaning("Memory level"),
    choose: (level) => store.set({ level, window: null }),
  });
  const colour = chooser({ label: "Colour", testid: "colour", options: COLOURINGS, value: "bound", choose: (key) => store.set({ colour: key }) });
  const size = chooser({ label: "Area", testid: "size", options: SIZES, value: "time", choose: (key) => store.set({ size: key }) });
  const names = check({ label: "Labels", "data-testid": "names", onchange: ({ target }) => store.set({ labels: target.checked }) });
  const arrows = check({ label: "Arrows", "data-testid": "arrows", onchange: ({ target }) => store.set({ compare: target.checked }) });
  let model = null;
  const roofs = menu({
    label: "Roofs",
    testid: "roofs",
    build: (panel) =>
      fill(panel,
        h("p", { class: "quiet hint", text: "By default, roofs that bound at least one op." }),
        model.roofs.map((roof) => check({
          kind: `option ${roof.kind}`, label: roof.title, count: show(roof.rate, roof.per), checked: !roof.hidden, value: roof.id,
          onchange: ({ target }) => store.set(toggled(store.get(), roof, target.checked)),
        }).root),
        button({ text: "Default", "data-testid": "roofs-usual", onclick: () => (store.set({ hidden: [], shown: [] }), roofs.refresh()) }),
      ),
  });
  const held = machineMenu({ report, store, catalogue });
  const setBox = (on) => {
    box.setAttribute("aria-pressed", String(on));
    chart.boxes(on);
  };
  const zoom = (name, key, testid, onclick, more = {}) => button({ class: "icon", "aria-label": name, title: `${name} (${key})`, "data-testid": testid, onclick, ...more });
  const box = zoom("Zoom to box", "or Shift and drag", "zoom-box", () => setBox(box.getAttribute("aria-pressed") !== "true"), { "aria-pressed": "false" });
  box.append(icon("box"));
  const closer = zoom("Zoom in", "+", "zoom-in", () => chart.zoomBy(0.6));
  closer.append(icon("plus"));
  const farther = zoom("Zoom out", "-", "zoom-out", () => chart.zoomBy(1 / 0.6));
  farther.append(icon("minus"));
  const fit = button(
    { class: "icon fit", title: "Fit to the ops shown (0 or double click)", "data-testid": "zoom-reset", onclick: () => chart.reset() },
    icon("fit"), h("span", { text: "Fit" }),
  );
  const buttons = h("div", { class: "zoom", role: "group", "aria-label": "Zoom" }, closer, farther, box, fit);
  const root = h("div", { class: "chart-bar", role: "group", "aria-label": "Chart", "data-testid": "chart-controls" },
    axis.root,
    colour.root,
    size.root,
    roofs.root,
    held.root,
    names.root,
    comparing && arrows.root,
    buttons,
  );
  return {
    root,
    update: (state, derived) => {
      model = derived.model;
      const rated = levels(report, derived.machine);
      axis.root.hidden = !rated.length;
      axis.set(state.level, [...rated, { key: "bound", title: "per-op bottleneck" }]);
      colour.set(state.colour);
      size.set(state.size);
      names.input.checked = state.labels;
      arrows.input.checked = state.compare;
      roofs.root.hidden = !model.roofs.length;
      roofs.mark(state.hidden.length + state.shown.length ? String(model.roofs.filter((roof) => !roof.hidden).length) : "");
      held.update(state, derived);
    },
  };
}

/** The state after a roof was switched on or off; the default needs no word in the address. */
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
    options: [
      { key: "", title: `${report.machine.title || report.machine.name} (of this report)` },
      ...catalogue.map(({ name, title }) => ({ key: name, title: title || name }))
    ],
    value: "",
    choose: (name) => store.set({ chip: name || null, window: null, hidden: [], shown: [] }),
  });
  const factor = (key, label) => {
    const input = h("input", {
      type: "range", min: "-1", max: "1", step: "0.01", "aria-label": label, "data-testid": `factor-${key}`,
      oninput: () => set(Number(input.value)),
    });
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
  const compute = factor("compute", "Peak FLOP/s");
  const bandwidth = factor("bandwidth", "Bandwidth");
  const back = button({ text: "Reset", "data-testid": "machine-reset", onclick: () => store.set({ chip: null, factors: {}, window: null }) });
  const list = menu({
    label: "Machine",
    testid: "machine",
    align: "right",
    build: (panel) => {
      if (panel.childElementCount) return;
      fill(panel,
        h("p", { class: "quiet hint", text: "Recompute every figure for another chip or for scaled ceilings. Measured times are unchanged." }),
        chip.root,
        compute.root,
        bandwidth.root,
        back,
      );
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
