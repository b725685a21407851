/** Time lost: where a perfect kernel would save most, as bars, and what the program's time went to, where the report says. */

import { fill, h, named, shortName } from "#page/dom.js";
import { boundTitle } from "#page/facts.js";
import { percent, show } from "#page/units.js";

const MOST = 15; // bars; the rest is one line
const LEAST = 1e-6; // of the time: less than this is rounding

/** @returns {{root, update(state, derived)}} */
export function lost({ store, reveal }) {
  const root = h("div", { class: "lost", "data-testid": "lost" });
  let drawn = null;
  return {
    root,
    update: (state, { rows, shown, program, theme, colourOf }) => {
      const selected = new Set(state.selected);
      if (drawn === rows && root.dataset.theme === theme.name && root.dataset.colour === state.colour) {
        for (const bar of root.querySelectorAll("button.bar-row")) mark(bar, selected);
        return;
      }
      drawn = rows;
      root.dataset.theme = theme.name;
      root.dataset.colour = state.colour;
      const worst = rows.filter((row) => row.lost_s > 0).sort((one, other) => other.lost_s - one.lost_s);
      const most = worst[0]?.lost_s ?? 0;
      const rest = worst.slice(MOST).reduce((sum, row) => sum + row.lost_s, 0);
      fill(
        root,
        causes(program),
        h("h3", { text: "Where a perfect kernel would save most" }),
        worst.length
          ? h("p", {
            class: "quiet",
            text: `${show(shown.lost_s, "s")} between the measured time and the roofs, ${percent(shown.lost_s / shown.time_s)} of it.`,
          })
          : h("p", {
            class: "empty",
            text: rows.some((row) => row.time_s) ? "Everything shown is on its roof." : "Nobody measured a time, so none can be lost.",
          }),
        h("ol", { class: "bars" }, worst.slice(0, MOST).map((row) => bar(row, most, store, reveal, colourOf(row)))),
        rest > 0 && h("p", { class: "quiet", text: `and ${show(rest, "s")} in ${worst.length - MOST} more` }),
      );
      for (const one of root.querySelectorAll("button.bar-row")) mark(one, selected);
    },
  };
}

function bar(row, most, store, reveal, colour) {
  const fillBar = h("span", { class: "bar-fill" });
  fillBar.style.width = `${(100 * row.lost_s) / most}%`;
  fillBar.style.background = colour;
  const button = h(
    "button",
    {
      type: "button",
      class: "bar-row",
      "data-ops": row.ops.join(),
      "aria-pressed": "false",
      onclick: (event) => {
        const extend = event.ctrlKey || event.metaKey || event.shiftKey;
        store.set({ selected: extend ? [...new Set([...store.get().selected, ...row.ops])] : [...row.ops] });
        reveal(row.ops[0]);
      },
    },
    h("span", { class: "bar-name" }, named(row.name, { shown: shortName(row.name, 34) })),
    h("span", { class: "bar-figure", text: show(row.lost_s, "s") }),
    h("span", { class: "bar-track" }, fillBar),
    h("span", { class: "bar-remark quiet", text: `${percent(row.efficiency)} of ${boundTitle(row.bound)}` }),
  );
  return h("li", {}, button);
}

function mark(button, selected) {
  const ops = button.dataset.ops.split(",").map(Number);
  const lit = ops.length > 0 && ops.every((id) => selected.has(id));
  button.setAttribute("aria-pressed", String(lit));
}

/** The program's time by cause: what it had to take, and what it lost to what. */
export function causes(program) {
  const total = program.find((row) => row.scope === "total");
  const known = Object.entries(total?.lost ?? {}).filter(([, seconds]) => seconds > LEAST * (total.time_s ?? 0));
  if (!known.length || !total.time_s) return null;
  known.sort(([, one], [, other]) => other - one);
  return h(
    "div",
    { class: "causes", "data-testid": "causes" },
    h("h3", { text: "What the time was lost to" }),
    h(
      "ul",
      { class: "bars" },
      known.map(([cause, seconds]) => {
        const fillBar = h("span", { class: "bar-fill" });
        fillBar.style.width = `${(100 * seconds) / known[0][1]}%`;
        return h(
          "li",
          { class: "bar-row still" },
          h("span", { class: "bar-name", text: CAUSES[cause] ?? cause }),
          h("span", { class: "bar-figure", text: show(seconds, "s") }),
          h("span", { class: "bar-track" }, fillBar),
          h("span", { class: "bar-remark quiet", text: `${percent(seconds / total.time_s)} of the wall time` }),
        );
      }),
    ),
  );
}

const CAUSES = {
  memory: "memory below its roof",
  compute: "arithmetic below its roof",
  communication: "links below their roof",
  latency: "launches and waiting",
  unpriced: "work nobody could price",
  idle: "nothing ran",
};
