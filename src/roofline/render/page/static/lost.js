/** Time lost: measured time above the minimum, of the program by cause and of each op, as bars. */

import { button, fill, h, named, shortName } from "#page/dom.js";
import { boundWords, efficiencyText } from "#page/facts.js";
import { partTitle } from "#page/stack.js";
import { percent, plain, show } from "#page/units.js";

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
      fill(root,
        causes(program, state.step),
        h("h3", { text: "Time lost by operation" }),
        worst.length
          ? h("p", {
            class: "quiet",
            text: `${show(shown.lost_s, "s")} above the minimum time, ${percent(shown.lost_s / shown.weight)} of the measured time${store.get().step === null && program.some(({ scope }) => scope === "average") ? ", over the whole run" : ""}.`,
          })
          : h("p", {
            class: "empty",
            text: rows.some((row) => row.time_s) ? "All operations run at their roofline." : "No measured times in this report.",
          }),
        h("ol", { class: "bars" }, worst.slice(0, MOST).map((row) => bar(row, most, store, reveal, colourOf(row)))),
        rest > 0 && h("p", { class: "quiet", text: `${plain(worst.length - MOST)} more: ${show(rest, "s")}` }),
      );
      for (const one of root.querySelectorAll("button.bar-row")) mark(one, selected);
    },
  };
}

function bar(row, most, store, reveal, colour) {
  const [, unit] = boundWords(row.bound);
  const choose = ({ ctrlKey, metaKey, shiftKey }) => {
    store.set({ selected: ctrlKey || metaKey || shiftKey ? [...new Set([...store.get().selected, ...row.ops])] : [...row.ops] });
    reveal(row.ops[0]);
  };
  const name = h("span", { class: "bar-name" }, named(row.label ?? row.name, { shown: shortName(row.label ?? row.name, 40) }));
  return h("li", {}, button({ class: "bar-row", "data-ops": row.ops.join(), "aria-pressed": "false", onclick: choose },
    barParts(name, row.lost_s, most, `${efficiencyText(row)}, ${unit}-bound`, colour),
  ));
}

function mark(bar, selected) {
  const ops = bar.dataset.ops.split(",").map(Number);
  bar.setAttribute("aria-pressed", String(ops.length > 0 && ops.every((id) => selected.has(id))));
}

/** The time above the minimum by cause: of the chosen step, else of the average one, as the headline has it, else of the run. */
export function causes(program, step = null) {
  const find = (scope) => program.find((row) => row.scope === scope && (step === null || row.step === step));
  const total = step === null ? find("average") ?? find("total") : find("step");
  const known = Object.entries(total?.lost ?? {}).filter(([, seconds]) => seconds > LEAST * (total.time_s ?? 0));
  if (!known.length || !total.time_s) return null;
  known.sort(([, one], [, other]) => other - one);
  return h("div", { class: "causes", "data-testid": "causes" },
    h("h3", { text: `Time lost by cause${total.scope === "average" ? ", per step" : ""}` }),
    h("ul", { class: "bars" },
      known.map(([cause, seconds]) => h("li", { class: "bar-row still" },
        barParts(
          h("span", { class: "bar-name", text: partTitle(cause) }),
          seconds,
          known[0][1],
          `${percent(seconds / total.time_s)} of wall time`,
        ),
      )),
    ),
  );
}

function barParts(name, seconds, most, remark, colour = "") {
  const length = h("span", { class: "bar-fill" });
  length.style.width = `${(100 * seconds) / most}%`;
  length.style.background = colour;
  return [
    name,
    h("span", { class: "bar-figure", text: show(seconds, "s") }),
    h("span", { class: "bar-track" }, length),
    h("span", { class: "bar-remark quiet", text: remark }),
  ];
}
