/** The tooltip: everything about a dot, a point of the program or a roof. */

import { fill, h, named } from "#page/dom.js";
import { amounts, counted, factList, facts, spoken } from "#page/facts.js";
import { plain, show } from "#page/units.js";

const GAP = 16; // pixels between the mouse and the card

/** @returns {{root, show(found, surface, x, y), hide(), say(mark)}} found {mark} | {program} | {roof} */
export function card() {
  const root = h("div", { class: "card", role: "tooltip", hidden: true, "data-testid": "card" });
  let shown = null;
  const content = ({ mark, program, roof }) => (roof ? ofRoof(roof) : ofRow(mark ? (mark.row ?? mark) : (program.row ?? program)));
  return {
    root,
    say: (mark) => spoken(mark.row ?? mark),
    hide: () => {
      root.hidden = true;
      shown = null;
    },
    show: (found, surface, x, y) => {
      const what = found.mark ?? found.program ?? found.roof;
      if (shown !== what) fill(root, content(found));
      shown = what;
      root.hidden = false;
      const { left, top } = surface.getBoundingClientRect();
      const { offsetWidth: wide, offsetHeight: high } = root;
      const { clientWidth, clientHeight } = document.documentElement;
      const right = left + x + GAP;
      const across = right + wide > clientWidth - 8 ? left + x - GAP - wide : right;
      const along = Math.min(top + y + GAP, clientHeight - high - 8);
      root.style.left = `${Math.max(8, Math.round(across))}px`;
      root.style.top = `${Math.max(8, Math.round(along))}px`;
    },
  };
}

function ofRow(row) {
  const where = [row.category, row.module, [row.unit, row.dtype].filter(Boolean).join(" ")].filter(Boolean);
  return [
    h("p", { class: "card-name" }, named(row.label ?? row.name, { most: 160, title: null })),
    row.label && row.label !== row.name && h("p", { class: "quiet" }, named(row.name, { most: 90, title: null })),
    where.length > 0 && h("p", { class: "quiet" }, where.map((word, index) => [index ? " · " : "", named(word, { most: 40 })])),
    factList([...facts(row), ...amounts(row), ...counted(row)], "figures"),
    row.location && h("p", { class: "quiet" }, named(row.location, { most: 70 })),
  ];
}

/** A roof and where its height comes from. */
function ofRoof(roof) {
  const counts = [`bounds ${plain(roof.binds)} ops`, roof.used ? `used by ${plain(roof.used)}` : ""].filter(Boolean);
  return [
    h("p", { class: "card-name", text: roof.title }),
    factList([[roof.kind === "memory" ? "Bandwidth" : "Peak", show(roof.rate, roof.per), counts.join(", ")]], "figures"),
    roof.details.map((line) => h("p", { class: "quiet citation", text: line })),
  ];
}
