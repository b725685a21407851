/** Printing: light, every key part one after another, the beginning of each table, no controls. */

const ROWS = 40; // of each table on paper

export const printing = {
  now: false,
  /** Told once what to draw again: `update()`, tables and charts. */
  on: ({ update, tables, charts }) => {
    window.addEventListener("beforeprint", () => {
      printing.now = true;
      document.documentElement.classList.add("paper");
      update();
      for (const table of tables) table.unroll(ROWS);
      for (const chart of charts) chart.redraw();
    });
    window.addEventListener("afterprint", () => {
      printing.now = false;
      document.documentElement.classList.remove("paper");
      update();
      for (const table of tables) table.roll();
      for (const chart of charts) chart.redraw();
    });
  },
};
