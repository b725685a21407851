/**
 * A table of any length: only the rows in sight exist, each in one line, numbers right-aligned under headings that sort.
 *
 * It is a grid for screen readers; arrows, Page Up, Page Down, Home and End move the current row, Space and Enter select it (with
 * Shift or Ctrl in addition to others), Right and Left open and close one that stands for several.
 */

import { LONGEST_TITLE, button, elided, framed, h, named } from "#page/dom.js";

const HEIGHT = 30; // of a row, in pixels; the stylesheet says the same
const SPARE = 8; // rows kept above and below what is in sight
const SAMPLE = 150; // rows whose words decide the width of a column
const WIDEST = { name: 165, scope: 260, location: 220, module: 160, category: 170 };
const SHORTEST_NAME = 300;
const OPENER = 36; // pixels of a swatch and the button that opens a row
const NARROW = 600; // pixels of a table in which names leave room for a time
const NAMES = 0.7; // of such a table
const SCROLLED_NAMES = 0.33; // of a wider table that does not fit

/**
 * `columns` are {key, title, unit, description, numeric, main, format(value, row)}, and may have `bar(row)`, a share drawn behind the figure,
 * `swatch(row)`, a colour beside the name, and `tone(row)`, a class. `onsort(key, descending)`, `onselect(ids, extend)`,
 * `onpoint(row | null)` and `onopen(id)` are called on sorting, selecting, hovering, and opening or closing a row that has `opens`.
 * @returns {{root, grid, show({rows, columns, sort, descending, selected}), scrollTo(id)}}
 */
export function table({ testid, label, onsort = null, onselect = null, onpoint = null, onopen = null, empty = "No rows." }) {
  const head = h("div", { class: "row head", role: "row", "aria-rowindex": "1" });
  const body = h("div", { class: "rows", role: "rowgroup" });
  const none = h("p", { class: "empty", text: empty, hidden: true });
  const grid = h(
    "div",
    { class: "grid", role: "grid", tabindex: "0", "aria-label": label, "aria-multiselectable": onselect ? "true" : null, "data-testid": testid },
    h("div", { role: "rowgroup", class: "heads" }, head),
    body,
  );
  const root = h("div", { class: "table" }, grid, none);
  const context = document.createElement("canvas").getContext("2d");
  const made = new Map(); // index -> element
  let scene = { rows: [], columns: [], selected: new Set() };
  let current = -1;
  let widths = [];
  let shortest = SHORTEST_NAME;
  let measured = 0; // the width of the table for which the columns were measured
  let units = []; // the widest unit of each column: units stand under each other, left-aligned, after right-aligned figures
  let prefix = "";
  let room = 240; // pixels for names

  const isSelected = (row) => row.ops?.some((id) => scene.selected.has(id)) ?? false;
  const idOf = (index) => `${testid}-row-${index}`;

  function measure() {
    const { fontFamily } = getComputedStyle(document.body);
    const sampled = scene.rows.length > SAMPLE ? Array.from(
      { length: SAMPLE },
      (_, index) => scene.rows[Math.floor((index * scene.rows.length) / SAMPLE)],
    ) : scene.rows;
    measured = grid.clientWidth;
    context.font = `13px ${fontFamily}`;
    const cells = scene.columns.map((column) => sampled.map((row) => text(row, column).slice(0, 80)));
    const widest = cells.map((texts) => longest(texts));
    units = scene.columns.map((column, index) => (column.numeric ? longest(cells[index].map((shown) => split(shown)[1])) : 0));
    widths = columnWidths(widest, fontFamily, (heading) => heading.join(" "));
    // Where the columns do not fit, headings break into lines.
    shortest = SHORTEST_NAME;
    if (grid.clientWidth && total() > grid.clientWidth) widths = columnWidths(widest, fontFamily, broken);
    // Where even then the table scrolls, names need not be so short.
    if (grid.clientWidth && total() > grid.clientWidth) shortest = Math.max(SHORTEST_NAME, SCROLLED_NAMES * grid.clientWidth);
    const template = widths.map((width, index) => (scene.columns[index].main ? `minmax(${least(width)}px, 1fr)` : `${width}px`)).join(" ");
    grid.style.setProperty("--columns", template);
    grid.style.setProperty("--least", `${total()}px`);
    // Names stay in sight only where there is something to scroll to: browsers make a layer of every sticky cell.
    grid.classList.toggle("wide", total() > grid.clientWidth);
  }

  /** A name's column takes what the others leave, but not less than this: on a phone so much that a time stands beside it. */
  const least = (width) => Math.min(width, grid.clientWidth && grid.clientWidth < NARROW ? NAMES * grid.clientWidth : shortest);

  const total = () => widths.reduce((sum, width, index) => sum + (scene.columns[index].main ? least(width) : width), 0);

  /** The width of the widest of some texts. */
  function longest(texts) {
    return Math.ceil([...new Set(texts)].reduce((most, shown) => Math.max(most, context.measureText(shown).width), 0));
  }

  function columnWidths(widest, fontFamily, line) {
    return scene.columns.map((column, index) => {
      context.font = `600 12px ${fontFamily}`;
      const heading = context.measureText(line([...column.title.split(" "), column.unit ?? ""])).width + (onsort ? 34 : 22);
      const cells = widest[index] + (column.numeric ? 27 : 22);
      return Math.ceil(Math.min((column.main ? null : WIDEST[column.key]) ?? (column.main ? 420 : 240), Math.max(heading, column.numeric ? 64 : 80, cells)));
    });
  }

  function text(row, column) {
    return column.format(row[column.key], row);
  }

  function heads() {
    head.replaceChildren(
      ...scene.columns.map((column, index) => {
        const sorted = scene.sort === column.key;
        const direction = sorted ? (scene.descending ? "descending" : "ascending") : "none";
        const words = [column.title, column.unit ? [" ", h("span", { class: "unit", text: column.unit })] : null];
        return h("div",
          {
            class: `cell ${column.numeric ? "number" : "word"} ${column.main ? "sticky" : ""} ${sorted ? "sorted" : ""}`,
            role: "columnheader", "aria-colindex": String(index + 1), "aria-sort": onsort ? direction : null,
          },
          onsort
            ? button({
              tabindex: "-1",
                title: column.description ?? null,
                "data-column": column.key,
                onclick: () => onsort(column.key, sorted ? !scene.descending : column.numeric),
              },
              words,
              h("span", { class: `arrow ${sorted ? direction : ""}`, "aria-hidden": "true" }),
            )
            : h("span", { class: "plain", title: column.description ?? null }, words),
        );
      }),
    );
  }

  function make(index) {
    const row = scene.rows[index];
    const element = h("div", { class: "row", role: "row", id: idOf(index), "aria-rowindex": String(index + 2), "data-id": String(row.id) });
    element.style.top = `${index * HEIGHT}px`;
    scene.columns.forEach((column, number) => {
      const shown = text(row, column);
      const cell = h("div", {
        class: `cell ${column.numeric ? "number" : "word"} ${column.main ? "sticky" : ""} ${column.tone?.(row) ?? ""}`,
        role: "gridcell", "aria-colindex": String(number + 1), "data-column": column.key,
      });
      if (column.numeric) cell.append(...quantity(shown, units[number]));
      else cell.append(named(shown, { shown: fitted(shown.replace(/\s+/g, " ").slice(0, LONGEST_TITLE), (column.main ? room : widths[number]) - 22) }));
      if (column.bar) cell.style.setProperty("--bar", `${Math.max(0, Math.min(1, column.bar(row) || 0)) * 100}%`);
      if (column.bar) cell.classList.add("barred");
      if (column.swatch) cell.prepend(swatch(column.swatch(row)));
      if (column.main && onopen && row.opens !== undefined) cell.prepend(opener(row));
      if (column.main && row.inside) cell.classList.add("inside");
      element.append(cell);
    });
    mark(element, index);
    return element;
  }

  /** A text in so many pixels, its middle left out where it is longer. */
  function fitted(text, pixels) {
    const { width } = context.measureText(text);
    return width <= pixels ? text : elided(text, Math.max(3, Math.floor((text.length * pixels) / width) - 1));
  }

  function quantity(shown, width) {
    const [figure, unit] = split(shown);
    if (!width) return [figure];
    const of = h("span", { class: "of", text: unit ? ` ${unit}` : "" });
    of.style.width = `${width + 5}px`;
    return [figure, of];
  }

  /** The button that opens and closes a row of several. */
  function opener(row) {
    return button({
      class: "opener",
      tabindex: "-1",
      "aria-expanded": String(row.opens),
      "aria-label": `${row.opens ? "Close" : "Open"} ${row.label}`,
      onclick: (event) => {
        event.stopPropagation();
        onopen(row.id);
      },
    });
  }

  function swatch(colour) {
    const dot = h("span", { class: "swatch", "aria-hidden": "true" });
    dot.style.background = colour;
    return dot;
  }

  function mark(element, index) {
    const chosen = isSelected(scene.rows[index]);
    element.classList.toggle("selected", chosen);
    element.classList.toggle("current", index === current);
    if (onselect) element.setAttribute("aria-selected", String(chosen));
  }

  function draw() {
    const { scrollTop, clientHeight } = grid;
    const first = Math.max(0, Math.floor(scrollTop / HEIGHT) - SPARE);
    const last = Math.min(scene.rows.length, Math.ceil((scrollTop + clientHeight) / HEIGHT) + SPARE);
    for (const [index, element] of made) {
      if (index >= first && index < last) continue;
      element.remove();
      made.delete(index);
    }
    context.font = `13px ${getComputedStyle(document.body).fontFamily}`;
    room = (head.querySelector(".sticky")?.offsetWidth || 240) - (onopen ? OPENER : 0);
    const added = document.createDocumentFragment();
    for (let index = first; index < last; index += 1) {
      if (made.has(index)) continue;
      const element = make(index);
      made.set(index, element);
      added.append(element);
    }
    body.append(added);
    if (current >= 0 && made.has(current)) grid.setAttribute("aria-activedescendant", idOf(current));
    else grid.removeAttribute("aria-activedescendant");
  }

  function layOut() {
    measure();
    heads();
    made.clear();
    body.replaceChildren();
    draw();
  }

  const redraw = framed(draw);
  grid.addEventListener("scroll", redraw, { passive: true });
  // Columns fit a width, which a table does not have while it is hidden.
  new ResizeObserver(framed(() => (grid.clientWidth && !measured ? layOut() : draw()))).observe(grid);

  const indexOf = (event) => {
    const element = event.target.closest?.(".rows > .row");
    return element ? Number(element.getAttribute("aria-rowindex")) - 2 : -1;
  };

  let range = -1;
  function select(index, { extend, stretch }) {
    if (!onselect || index < 0) return;
    current = index;
    if (stretch && range >= 0) {
      const [from, to] = [Math.min(range, index), Math.max(range, index)];
      onselect(scene.rows.slice(from, to + 1).flatMap((row) => row.ops), false);
      return;
    }
    range = index;
    onselect(scene.rows[index].ops, extend);
  }

  body.addEventListener("click", (event) => select(indexOf(event), { extend: event.ctrlKey || event.metaKey, stretch: event.shiftKey }));
  body.addEventListener("pointerover", (event) => {
    const index = indexOf(event);
    onpoint?.(index < 0 ? null : scene.rows[index]);
  });
  body.addEventListener("pointerleave", () => onpoint?.(null));
  grid.addEventListener("keydown", (event) => {
    if (event.target !== grid) return;
    const page = Math.max(1, Math.floor(grid.clientHeight / HEIGHT) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves && scene.rows.length) {
      current = Math.max(0, Math.min(scene.rows.length - 1, (current < 0 ? (moves[event.key] > 0 ? -1 : 0) : current) + moves[event.key]));
      bring(current);
      onpoint?.(scene.rows[current]);
    } else if ((event.key === " " || event.key === "Enter") && current >= 0) {
      select(current, { extend: event.ctrlKey || event.metaKey, stretch: event.shiftKey });
    } else if (event.key === "Escape" && onselect) {
      onselect([], false);
    } else if (onopen && current >= 0 && scene.rows[current].opens === (event.key === "ArrowLeft") && /Arrow(Left|Right)/.test(event.key)) {
      onopen(scene.rows[current].id);
    } else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      grid.scrollLeft += event.key === "ArrowRight" ? 80 : -80;
    } else return;
    event.preventDefault();
  });

  /** Scrolls the grid, and only the grid, until a row is in sight below the headings. */
  function bring(index) {
    const top = index * HEIGHT;
    const room = grid.clientHeight - head.offsetHeight;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top + HEIGHT > grid.scrollTop + room) grid.scrollTop = top + HEIGHT - room;
    draw();
    for (const [number, element] of made) mark(element, number);
  }

  return {
    root,
    grid,
    show: (next) => {
      const sameRows = next.rows === scene.rows && next.columns === scene.columns;
      const resorted = next.sort !== scene.sort || next.descending !== scene.descending;
      const keys = next.columns.map(({ key }) => key).join();
      const newColumns = keys !== prefix;
      scene = next;
      if (sameRows && !resorted) {
        for (const [number, element] of made) mark(element, number);
        return;
      }
      prefix = keys;
      current = Math.min(current, scene.rows.length - 1);
      grid.setAttribute("aria-rowcount", String(scene.rows.length + 1));
      grid.setAttribute("aria-colcount", String(scene.columns.length));
      none.hidden = scene.rows.length > 0;
      body.style.height = `${scene.rows.length * HEIGHT}px`;
      if (newColumns || !sameRows) measure();
      heads();
      made.clear();
      body.replaceChildren();
      draw();
    },
    /** Brings the row of an op into sight. */
    scrollTo: (id, { page = false } = {}) => {
      const index = scene.rows.findIndex((row) => row.ops?.includes(id));
      if (index < 0) return;
      current = index;
      bring(index);
      if (page) made.get(index)?.scrollIntoView({ block: "nearest", inline: "nearest" });
    },
  };
}

/** The longer of the two lines that a heading breaks into. */
function broken(words) {
  const whole = words.join(" ").trim();
  const lines = words.map((_, at) => [words.slice(0, at + 1).join(" "), words.slice(at + 1).join(" ")]);
  return lines.map(([one, other]) => (one.length > other.length ? one : other)).reduce(
    (best, line) => (line.length < best.length ? line : best),
    whole,
  );
}

/** A figure and its unit. */
function split(shown) {
  const at = shown.lastIndexOf(" ");
  return at < 0 ? [shown, ""] : [shown.slice(0, at), shown.slice(at + 1)];
}
