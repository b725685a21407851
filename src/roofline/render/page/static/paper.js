/** Printing: light, every key part one after another, the beginning of each table, no controls. */

import { elided, h } from "#page/dom.js";
import { plain } from "#page/units.js";

const ROWS = 40; // of each table on paper
const LONGEST = 70; // letters of a name in it

export const printing = {
  now: false,
  /**
   * Told once what to draw again: `update()`, tables and charts; `picture()` of a chart is its drawing as the text of an SVG, `shown()` of a
   * table its rows and columns.
   */
  on: ({ update, tables, charts }) => {
    window.addEventListener("beforeprint", () => {
      if (printing.now) return;
      printing.now = true;
      document.documentElement.classList.add("paper");
      update();
      // A grid that scrolls is as wide as the screen, and sheets cut its rows in two; a plain table fits and breaks between rows.
      for (const { root, shown } of tables) root.append(...sheet(shown()));
      // A canvas has the size of the screen and is emptied when the paper has another; a drawing made of lines has any size.
      for (const { root, picture } of charts) root.append(drawn(picture()));
    });
    window.addEventListener("afterprint", () => {
      printing.now = false;
      document.documentElement.classList.remove("paper");
      update();
      for (const { root } of [...tables, ...charts]) root.querySelectorAll(".on-paper").forEach((one) => one.remove());
    });
  },
};

/** The first rows of a table, under headings that are repeated on every sheet. */
function sheet({ rows, columns: all }) {
  if (!rows.length) return [];
  const columns = all.filter(({ screenOnly }) => !screenOnly);
  const kind = ({ numeric }) => (numeric ? "number" : "word");
  const heading = (column) => h("th", { scope: "col", class: kind(column) }, column.title, column.unit && h("span", { class: "unit", text: ` ${column.unit}` }));
  const cell = (row) => (column) => {
    const dot = column.swatch && h("span", { class: "swatch", "aria-hidden": "true" });
    if (dot) dot.style.background = column.swatch(row);
    return h("td", { class: `${kind(column)} ${column.tone?.(row) ?? ""}` }, dot, h("bdi", { dir: "auto", text: elided(column.format(row[column.key], row), LONGEST) }));
  };
  return [
    h(
      "table",
      { class: "on-paper" },
      h("thead", {}, h("tr", {}, columns.map(heading))),
      h("tbody", {}, rows.slice(0, ROWS).map((row) => h("tr", {}, columns.map(cell(row))))),
    ),
    ...(rows.length > ROWS ? [h("p", { class: "on-paper quiet", text: `The first ${ROWS} of ${plain(rows.length)} rows.` })] : []),
  ];
}

function drawn(svg) {
  const holder = h("div", { class: "on-paper" });
  holder.append(document.adoptNode(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement));
  return holder;
}
