/** Printing: light, every key part one after another, the beginning of each table, no controls. */

const ROWS = 40; // of each table on paper

export const printing = {
  now: false,
  /** Told once what to draw again: `update()`, tables and charts; `picture()` of a chart is its drawing as the text of an SVG. */
  on: ({ update, tables, charts }) => {
    window.addEventListener("beforeprint", () => {
      if (printing.now) return;
      printing.now = true;
      document.documentElement.classList.add("paper");
      update();
      for (const table of tables) table.unroll(ROWS);
      // A canvas has the size of the screen and is emptied when the paper has another; a drawing made of lines has any size.
      for (const { root, picture } of charts) root.append(drawn(picture()));
    });
    window.addEventListener("afterprint", () => {
      printing.now = false;
      document.documentElement.classList.remove("paper");
      update();
      for (const table of tables) table.roll();
      for (const { root } of charts) root.querySelector(".paper-chart")?.remove();
    });
  },
};

function drawn(svg) {
  const holder = document.createElement("div");
  holder.className = "paper-chart";
  holder.append(document.adoptNode(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement));
  return holder;
}
