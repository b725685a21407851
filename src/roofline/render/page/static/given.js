/** Data that Python embedded in the page. */

import { VOCABULARY } from "#page/vocabulary.js";

const UNSAFE = new RegExp(VOCABULARY.unsafe, "gu");
const SPELLED = /\\[ubfrt]/; // every unsafe character in the data is spelled so

const cleaned = (value) => typeof value === "string" ? value.replace(UNSAFE, "·") : value;

/** The value of a JSON text, with a dot for each character that would reorder or hide what is shown, as in a terminal. */
export function parsed(text) {
  return SPELLED.test(text) ? JSON.parse(text, (_, value) => cleaned(value)) : JSON.parse(text);
}

/** The data in the element with this id; `null` where there is none. */
export const given = (id) => parsed(document.getElementById(id)?.textContent ?? "null");

const LAST_CONTROL = 0x1f; // JSON itself spells these

/** The JSON that Python wrote, before it was made safe for a page (`escaped` of `html.py`). */
export function unescaped(text) {
  const plain = text.replace(/\\(?:u([0-9a-f]{4})|.)/g, (spelled, digits) => {
    const code = digits ? Number.parseInt(digits, 16) : 0;
    const character = String.fromCharCode(code);
    return code > LAST_CONTROL && cleaned(character) !== character ? character : spelled;
  });
  return plain.replaceAll("<\\/", "</").replaceAll("\\u003c!--", "<!--");
}
