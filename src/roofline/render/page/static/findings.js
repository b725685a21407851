/** The findings: each with its saving and what to try; a click selects its ops. They are those of the chosen ops; on another chip there are none. */

import { boundCause } from "#page/chosen.js";
import { button, fill, h, named } from "#page/dom.js";
import { group } from "#page/groups.js";
import { ownMachine } from "#page/rows.js";
import { percent, plain, show } from "#page/units.js";

const LONGEST_LIST = 5; // ops by minimum time, on another chip

/** @returns {{root, update(state, derived)}} `words` are what Python says that each finding saves and that its change would bring */
export function findings({ report, words, store, reveal }) {
  const root = h("div", { class: "findings", "data-testid": "findings" });
  const about = h("p", { class: "quiet", "data-testid": "findings-about", hidden: true });
  const holder = h("div", {});
  const notes = [...(report.input.notes ?? []), ...(report.machine.notes ?? [])];
  fill(root, about, holder, notes.length > 0 && [
    h("h3", { text: "Notes" }),
    h("ul", { class: "notes", "data-testid": "notes" }, notes.map((note) => h("li", { text: note }))),
  ]);
  let cards = [];
  let drawn = null;
  return {
    root,
    update: (state, { all, machine }) => {
      const key = JSON.stringify([state.step, state.device, state.host, state.feeds]);
      if (drawn?.key !== key || drawn.machine !== machine) {
        drawn = { key, machine };
        const elsewhere = machine !== ownMachine(report);
        const some = state.step !== null || state.device !== null || state.host !== null || !state.feeds;
        const ids = new Set(all.map((row) => row.id));
        const concerns = ({ ops = [] }) => !some || !ops.length || ops.some((id) => ids.has(id));
        const shown = elsewhere ? [] : [...report.findings.entries()].filter(([, finding]) => concerns(finding));
        cards = shown.map(([index, finding]) => one(finding, words[index], index, store, reveal));
        about.hidden = !elsewhere && !some;
        about.textContent = elsewhere
          ? `Findings are about times measured on ${report.machine.title || report.machine.name}. On ${machine.title} these ops have the longest minimum times:`
          : state.feeds ? "Findings of the whole run about ops in the chosen step and on the chosen devices." : "Findings of the whole run, its infeed and outfeed included, about the ops that are shown.";
        fill(holder, elsewhere ? longest(all, store, reveal) : cards.length ? h("ol", { class: "finding-list" }, cards.map((card) => card.root)) : h("p", { class: "empty", text: "No findings." }));
      }
      const selected = new Set(state.selected);
      for (const card of cards) card.update(selected, state.whatif);
    },
  };
}

/** The ops that would take longest on another chip, equal work as one, by their minimum times there. */
function longest(all, store, reveal) {
  const rows = group(all, "fold").filter((row) => row.floor_s).sort((one, other) => other.floor_s - one.floor_s).slice(0, LONGEST_LIST);
  const whole = all.reduce((sum, row) => sum + (row.floor_s ?? 0), 0);
  return h("ol", { class: "finding-list" }, rows.map((row) => h("li", { class: "finding" },
    button({ class: "finding-button", onclick: () => (store.set({ selected: [...row.ops], panel: "findings" }), reveal(row.ops[0])) },
      h("span", { class: "saving", text: `minimum time ${show(row.floor_s, "s", 3)} in all (${percent(row.floor_s / whole)}), ${boundCause(row)}-bound` }),
      h("span", { class: "message" }, named(row.label)),
    ),
  )));
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** A finding in two lines: what it saves, what it is and how many ops; opened, the sentence, what to try, and its ops selected. */
function one(finding, [saving, predicted], index, store, reveal) {
  const { ops = [], levers = [] } = finding;
  const title = capital(finding.title || finding.kind.replaceAll("-", " "));
  const whatIf = finding.predicted?.ops?.length ? button({
    class: "what-if", text: "Show on the chart", "data-testid": `what-if-${index}`, title: "Where the ops would be after this change, with the measured ones",
    onclick: () => store.set(store.get().whatif === index ? { whatif: null } : { whatif: index, level: "hbm", group: "" }),
  }) : null;
  const summary = h("summary", { "data-testid": `finding-${index}` },
    h("span", { class: saving ? "saving" : "saving none", text: title }),
    ops.length > 0 && h("span", { class: "count", text: `${plain(ops.length)} op${ops.length === 1 ? "" : "s"}` }),
    saving && h("span", { class: "won", text: saving }),
  );
  const body = h("details",
    {
      ontoggle: () => {
        if (!ops.length || body.open === root.classList.contains("lit")) return;
        store.set({ selected: body.open ? [...ops] : [], panel: "findings" });
        if (body.open) reveal(ops[0]);
      },
    },
    summary,
    h("p", { class: "message", dir: "auto", text: finding.message }),
    finding.predicted && h("p", { class: "predicted", "data-testid": `predicted-${index}` }, `What if: ${predicted} `, whatIf),
    levers.length > 0 && h("ul", { class: "levers" }, levers.map((lever) => h("li", { text: lever }))),
  );
  const root = h("li", { class: "finding", "data-kind": finding.kind }, body);
  return {
    root,
    update: (selected, applied) => {
      whatIf?.setAttribute("aria-pressed", String(applied === index));
      const lit = ops.length > 0 && selected.size === new Set(ops).size && ops.every((id) => selected.has(id));
      root.classList.toggle("lit", lit);
    },
  };
}
