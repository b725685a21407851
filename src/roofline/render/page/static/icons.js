/** Small drawings for buttons. */

import { drawn } from "#page/dom.js";

const ICONS = {
  plus: "M8 3v10M3 8h10", minus: "M3 8h10", box: "M3 5.5V3h2.5M10.5 3H13v2.5M13 10.5V13h-2.5M5.5 13H3v-2.5M6 6h4v4H6z",
  fit: "M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3",
  link: "M6.5 9.5l3-3M7 5l1.6-1.6a2.3 2.3 0 0 1 3.2 3.2L10.2 8.2M9 11l-1.6 1.6a2.3 2.3 0 0 1-3.2-3.2L5.8 7.8",
};

/** A small drawing for a button whose name is in its label. */
export function icon(name) {
  return drawn("svg", { viewBox: "0 0 16 16", class: "drawing", "aria-hidden": "true" }, drawn("path", { d: ICONS[name] }));
}
