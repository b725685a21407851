/** The findings: each with its saving and what to try; a click selects its ops. */

import { fill, h } from "#page/dom.js";
import { show } from "#page/units.js";

const WORDY = 3; // levers shown before the rest is folded away

/** @returns {{root, update(state)}} */
export function findings({ report, store, reveal }) {
  const root = h("div", { class: "findings", "data-testid": "findings" });
  const cards = report.findings.map((finding, index) => one(finding, index, store, reveal));
  if (!cards.length) fill(root, h("p", { class: "empty", text: "No findings." }));
  else fill(root, h("ol", { class: "finding-list" }, cards.map((card) => card.root)));
  const notes = [...(report.input.notes ?? []), ...(report.machine.notes ?? [])];
  if (notes.length) root.append(
    h("h3", { text: "Notes" }),
    h("ul", { class: "notes", "data-testid": "notes" }, notes.map((note) => h("li", { text: note }))),
  );
  return {
    root,
    update: (state) => {
      const selected = new Set(state.selected);
      for (const card of cards) card.update(selected);
    },
  };
}

/** What a finding could save: on the clock of each device, and summed over devices where that is more. */
function saving(finding) {
  const each = finding.saving_per_device_s ?? finding.saving_s;
  const summed = each === finding.saving_s ? "" : ` per device (${show(finding.saving_s, "s")} summed over devices)`;
  return `saves up to ${show(each, "s")}${summed}`;
}

function one(finding, index, store, reveal) {
  const ops = finding.ops ?? [];
  const levers = finding.levers ?? [];
  const select = () => {
    store.set({ selected: [...ops], panel: "findings" });
    if (ops.length) reveal(ops[0]);
  };
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
    finding.saving_s ? h("span", {
      class: "saving",
      text: saving(finding),
    }) : h("span", { class: "saving none", text: finding.kind.replaceAll("-", " ") }),
    h("span", { class: "message", dir: "auto", text: finding.message }),
    ops.length > 0 && h("span", { class: "selects", text: `Select ${ops.length === 1 ? "the op" : `${ops.length} ops`}` }),
  );
  const list = (some) => h("ul", { class: "levers" }, some.map((lever) => h("li", { text: lever })));
  const root = h(
    "li",
    { class: "finding", "data-kind": finding.kind },
    button,
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
    update: (selected) => {
      const lit = ops.length > 0 && selected.size === new Set(ops).size && ops.every((id) => selected.has(id));
      button.setAttribute("aria-pressed", String(lit));
      root.classList.toggle("lit", lit);
    },
  };
}
