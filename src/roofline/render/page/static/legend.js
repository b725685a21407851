/** The legend below the chart: which colour is what; a click shows or hides that group where there is a filter for it. */

import { captionIn } from "#page/chart_model.js";
import { button, fill, h, named } from "#page/dom.js";
import { percent } from "#page/units.js";
import { VOCABULARY } from "#page/vocabulary.js";

const FILTER = { category: "categories", bound: "bounds", dtype: "dtypes" };

/** @returns {{root, update(state, derived)}} */
export function legend({ store }) {
  const list = h("ul", { class: "legend", "aria-label": "Legend", "data-testid": "legend" });
  const caption = h("p", { class: "quiet caption", "data-testid": "caption" });
  let drawn = null;
  return {
    root: h("div", { class: "under" }, list, caption),
    update: (state, { legend: groups, model }) => {
      caption.textContent = captionIn(model, state.window);
      const key = FILTER[state.colour];
      const chosen = key ? state[key] : [];
      const signs = signsOf(model);
      const mark = JSON.stringify([groups, chosen, signs]);
      if (drawn === mark) return;
      drawn = mark;
      const focused = list.contains(document.activeElement) ? document.activeElement.dataset.group : null;
      const all = groups.reduce((sum, { weight }) => sum + weight, 0);
      fill(list,
        groups.map((one) => entry(one, all, key, chosen, groups, store)),
        signs.map(([sign, meaning]) => h("li", {}, h("span", { class: "entry still" }, h("span", { class: "sign", "aria-hidden": "true", text: sign }), h("span", { text: meaning })))),
      );
      if (focused !== null) [...list.querySelectorAll("button")].find(({ dataset }) => dataset.group === focused)?.focus();
    },
  };
}

/** What the other signs on the chart are, where they are there. */
function signsOf({ program, twins, arrows, threshold }) {
  const scopes = new Set(program.map(({ scope }) => scope));
  return [
    scopes.has("total") && ["★", VOCABULARY.points.total],
    scopes.has("hardware") && ["☆", `${VOCABULARY.points.total}, by hardware counters`],
    twins.length && ["●─○", "modelled and counted"],
    arrows.some(({ predicted }) => predicted) && ["●→○", "predicted after the change of a finding"],
    arrows.some(({ predicted }) => !predicted) && ["○→", `before and after, changes above ${percent(threshold)} of the time: slower in orange, faster in green`],
  ].filter(Boolean);
}

function entry({ group, title, colour, weight, count }, all, key, chosen, groups, store) {
  const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
  swatch.style.background = colour;
  const words = [swatch, named(title, { most: 32 }), h("span", { class: "quiet", text: all ? percent(weight / all) : String(count) })];
  // Groups without a name cannot be named in a filter.
  if (!key || !group) return h("li", {}, h("span", { class: "entry still" }, words));
  const on = !chosen.length || chosen.includes(group);
  const names = groups.map((one) => one.group).filter(Boolean);
  const toggle = (event) => {
    const shown = chosen.length ? chosen : names;
    const next = event.altKey || event.detail === 2 ? [group] : on ? shown.filter((one) => one !== group) : [...shown, group];
    store.set({ [key]: next.length === names.length ? [] : next });
  };
  return h("li", {},
    button({
      class: "entry",
        "aria-pressed": String(on),
        "data-group": group,
        title: on ? "Hide (Alt and click: show only this)" : "Show",
        onclick: toggle,
      },
      words,
    ),
  );
}
