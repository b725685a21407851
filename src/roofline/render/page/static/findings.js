/** The findings: each with its saving and what to try; a click selects its ops. They follow the chosen step, devices and chip. */

import { causeOf } from "#page/chosen.js";
import { fill, h, named } from "#page/dom.js";
import { group } from "#page/groups.js";
import { ownMachine } from "#page/rows.js";
import { percent, show } from "#page/units.js";

const WORDY = 3; // levers shown before the rest is folded away
const LONGEST_LIST = 5; // ops by minimum time, on another chip

/** @returns {{root, update(state, derived)}} */
export function findings({ report, store, reveal }) {
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
        const some = state.step !== null || state.device !== null || state.host !== null;
        const shown = report.findings.map((finding, index) => [partOf(finding, report, all, some), index]).filter(([finding]) => finding);
        cards = elsewhere ? [] : shown.map(([finding, index]) => one(finding, index, store, reveal));
        about.hidden = !elsewhere && !some;
        about.textContent = elsewhere
          ? `Findings are about times measured on ${report.machine.title || report.machine.name}. On ${machine.title} these ops have the longest minimum times:`
          : "The part of each finding in the chosen step and on the chosen devices.";
        fill(holder, elsewhere ? longest(all, store, reveal) : cards.length ? h("ol", { class: "finding-list" }, cards.map((card) => card.root)) : h("p", { class: "empty", text: "No findings." }));
      }
      const selected = new Set(state.selected);
      for (const card of cards) card.update(selected, state.whatif);
    },
  };
}

/** A finding as far as it is about the chosen ops: its saving in proportion to their time; `null` where they have no part in it. */
function partOf(finding, report, all, some) {
  if (!some || !finding.ops?.length) return finding;
  const mine = new Set(finding.ops);
  const before = report.ops.filter((op) => mine.has(op.id)).reduce((sum, op) => sum + (op.time_s ?? 0), 0);
  const rows = all.filter((row) => mine.has(row.id));
  if (!rows.length) return null;
  const share = before ? rows.reduce((sum, row) => sum + (row.time_s ?? 0), 0) / before : 1;
  return { ...finding, saving_s: finding.saving_s && finding.saving_s * share, saving_per_device_s: null, saving_per_step_s: null, after_s: null };
}

/** The ops that would take longest on another chip, equal work as one, by their minimum times there. */
function longest(all, store, reveal) {
  const rows = group(all, "fold").filter((row) => row.floor_s).sort((one, other) => other.floor_s - one.floor_s).slice(0, LONGEST_LIST);
  const whole = all.reduce((sum, row) => sum + (row.floor_s ?? 0), 0);
  return h("ol", { class: "finding-list" }, rows.map((row) => h(
    "li",
    { class: "finding" },
    h(
      "button",
      { type: "button", class: "finding-button", onclick: () => (store.set({ selected: [...row.ops], panel: "findings" }), reveal(row.ops[0])) },
      h("span", { class: "saving", text: `minimum time ${show(row.floor_s, "s", 3)} in all (${percent(row.floor_s / whole)}), ${causeOf({ ...row, efficiency: 1 })}-bound` }),
      h("span", { class: "message" }, named(row.label)),
    ),
  )));
}

/** What a finding could save: per step where there are steps, else on the clock of each device, and summed over devices where that is more. */
function saving(finding) {
  const { saving_s, saving_per_device_s, saving_per_step_s } = finding;
  if (saving_per_step_s) return `about ${show(saving_per_step_s, "s", 3)} less per step`;
  const each = saving_per_device_s ?? saving_s;
  const summed = each === saving_s ? "" : ` per device (${show(saving_s, "s", 3)} summed over devices)`;
  return `about ${show(each, "s", 3)} less${summed}`;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** What the change that a finding asks for would bring, and a button that shows it on the chart. */
function whatIf(found, index, store) {
  if (!found) return null;
  const button = found.ops?.length ? h("button", {
    type: "button",
    class: "what-if",
    "aria-pressed": "false",
    "data-testid": `what-if-${index}`,
    title: "Where the ops would be after this change, with the measured ones",
    onclick: () => store.set(store.get().whatif === index ? { whatif: null } : { whatif: index, level: "hbm", group: "" }),
    text: "Show on the chart",
  }) : null;
  return { root: h("p", { class: "predicted", "data-testid": `predicted-${index}` }, h("span", { text: `What if: ${predicted(found)} ` }), button), button };
}

function predicted(found) {
  const [before, after, low, high] = [found.before_s, found.time_s, found.low_s, found.high_s].map((seconds) => show(seconds, "s", 3));
  return `${found.change} (roofline whatif): ${before} to ${after} predicted (${low} to ${high})`;
}

function one(finding, index, store, reveal) {
  const ops = finding.ops ?? [];
  const levers = finding.levers ?? [];
  const change = whatIf(finding.predicted, index, store);
  const select = () => {
    store.set({ selected: [...ops], panel: "findings" });
    if (ops.length) reveal(ops[0]);
  };
  const kind = capital(finding.title || finding.kind.replaceAll("-", " "));
  const button = h(
    "button",
    {
      type: "button",
      class: "finding-button",
      "aria-pressed": "false",
      "data-testid": `finding-${index}`,
      disabled: !ops.length,
      onclick: () => (button.getAttribute("aria-pressed") === "true" ? store.set({ selected: [] }) : select()),
    },
    h("span", { class: finding.saving_s ? "saving" : "saving none", text: kind }),
    finding.saving_s ? h("span", { class: "won", text: saving(finding) }) : null,
    h("span", { class: "message", dir: "auto", text: finding.message }),
    ops.length > 0 && h("span", { class: "selects", text: `Select ${ops.length === 1 ? "the op" : `${ops.length} ops`}` }),
  );
  const list = (some) => h("ul", { class: "levers" }, some.map((lever) => h("li", { text: lever })));
  const root = h(
    "li",
    { class: "finding", "data-kind": finding.kind },
    button,
    change?.root,
    levers.length > 0 && list(levers.slice(0, WORDY)),
    levers.length > WORDY && h(
      "details",
      { class: "more-levers" },
      h("summary", { text: `${levers.length - WORDY} more` }),
      list(levers.slice(WORDY)),
    ),
  );
  return {
    root,
    update: (selected, applied) => {
      change?.button?.setAttribute("aria-pressed", String(applied === index));
      const lit = ops.length > 0 && selected.size === new Set(ops).size && ops.every((id) => selected.has(id));
      button.setAttribute("aria-pressed", String(lit));
      root.classList.toggle("lit", lit);
    },
  };
}
