/** The glossary: every term of the page, in tooltips and in a dialog that is one click away. */

import { button, fill, h } from "#page/dom.js";
import { VOCABULARY } from "#page/vocabulary.js";

const MEANINGS = new Map(VOCABULARY.terms.map(([word, said]) => [word.toLowerCase(), said]));

/** What a word of the page means, for a tooltip, with or without what it is of; `null` where the glossary does not have it. */
export function meaning(word) {
  const said = word.toLowerCase();
  return MEANINGS.get(said) ?? MEANINGS.get(said.replace(/ (in run|per step)$/, "")) ?? null;
}

/** A button that opens the glossary. */
export function glossary() {
  const dialog = h("dialog", { class: "glossary", "aria-labelledby": "glossary-title", "data-testid": "glossary-panel" });
  const close = button({ text: "Close", onclick: () => dialog.close() });
  fill(dialog,
    h("div", { class: "table-head" }, h("h2", { id: "glossary-title", text: "Glossary" }), close),
    h("dl", { class: "words" }, VOCABULARY.terms.map(([word, said]) => [h("dt", { text: word }), h("dd", { text: said })])),
  );
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close()); // beside it
  return { button: button({ class: "menu-button", "data-testid": "glossary", text: "Glossary", onclick: () => dialog.showModal() }), dialog };
}
