/** Elements are made from values, never from markup, so that names from programs stay text. */

/**
 * An element with attributes, listeners and children. In `attributes`, `on…` are listeners, `text` is the text, `class` and `data-…` are
 * what they say, `true` is an attribute without a value, and `null` or `false` leave it out. Strings among the children are text.
 */
export function h(tag, attributes = {}, ...children) {
  return made(document.createElement(tag), attributes, children);
}

/** An element of a drawing, likewise. */
export function drawn(tag, attributes = {}, ...children) {
  return made(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/** A drawing whose paths fill its box, so many units wide and high. */
export function stretched(width, height, attributes, paths) {
  return drawn("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true", ...attributes }, paths);
}

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = value;
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A plain button; `class` for one that looks otherwise. */
export function button({ class: kind = "plain-button", ...attributes }, ...children) {
  return h("button", { type: "button", class: kind, ...attributes }, ...children);
}

/** A box to tick with its words: {root, input}. */
export function check({ label, kind = "check", title = null, count = null, ...attributes }) {
  const input = h("input", { type: "checkbox", ...attributes });
  const words = [named(label, { most: 48 }), count === null ? null : h("span", { class: "count", text: count })];
  return { root: h("label", { class: kind, title }, input, words), input };
}

/** Replaces what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A name from a program: isolated, so that marks for the direction of text cannot reach what stands beside it. */
export function named(name, { most = 80, shown = elided(name, most), tag = "bdi", ...attributes } = {}) {
  return h(tag, { dir: "auto", class: "name", title: shown === name ? null : name.slice(0, LONGEST_TITLE), text: shown, ...attributes });
}

export const LONGEST_TITLE = 2000; // letters of a tooltip; browsers lay out every one of them

/** A text in at most so many letters, its middle left out: C++ names differ at both ends. */
export function elided(text, most) {
  const name = text.length > 4 * most ? text.slice(0, 2 * most) + text.slice(-2 * most) : text;
  const letters = Array.from(name.replace(/\s+/g, " "));
  if (letters.length <= most) return letters.join("");
  const tail = Math.floor((most - 1) / 2);
  return `${letters.slice(0, most - 1 - tail).join("")}…${letters.slice(-tail).join("")}`;
}

/** An operation's name in few letters: C++ kernels without types, arguments and namespaces; the middle left out if it is still long. */
export function shortName(name, most) {
  const whole = name.slice(0, LONGEST_TITLE).replace(/\s+/g, " ").trim();
  if (whole.length <= most || !/[<:]/.test(whole)) return elided(name, most);
  let depth = 0;
  let bare = "";
  for (const letter of whole) {
    if (letter === "<" || letter === "(") depth += 1;
    else if (letter === ">" || letter === ")") depth = Math.max(0, depth - 1);
    else if (!depth) bare += letter;
  }
  return elided(bare.replace(/^void /, "").split("::").pop().trim() || name, most);
}

/** Tells a screen reader. */
export function announce(text) {
  const region = document.getElementById("announce");
  if (region.textContent !== text) region.textContent = text;
}

let menus = 0;

/**
 * A button with a panel that opens below it, closed by Escape, by a click elsewhere, or by leaving it with Tab.
 * `label` is the name of the button; `build(panel)` fills the panel each time it opens.
 */
export function menu({ label, testid, build, align = "left", kind = "menu" }) {
  const id = `menu-${(menus += 1)}`;
  const badge = h("span", { class: "badge" });
  const button = h("button", { type: "button", class: `${kind}-button`, "aria-expanded": "false", "aria-controls": id, "data-testid": testid });
  const panel = h("div", {
    id,
    class: `panel-menu ${align}`,
    role: "group",
    "aria-label": label,
    // A click on a label moves the focus to what holds it: to the panel, not to something outside, which would close it.
    tabindex: "-1",
    hidden: true,
    "data-testid": `${testid}-panel`,
  });
  const root = h("div", { class: "menu" }, button, panel);
  button.append(h("span", { text: label }), badge, h("span", { class: "caret", "aria-hidden": "true" }));
  const close = (refocus) => {
    if (panel.hidden) return;
    panel.hidden = true;
    button.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", outside, true);
    if (refocus) button.focus();
  };
  const outside = (event) => root.contains(event.target) || close(false);
  const open = () => {
    build(panel);
    panel.hidden = false;
    button.setAttribute("aria-expanded", "true");
    fit(panel, button);
    document.addEventListener("pointerdown", outside, true);
  };
  button.addEventListener("click", () => (panel.hidden ? open() : close(true)));
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !panel.hidden) {
      event.stopPropagation();
      close(true);
    } else if (event.key === "ArrowDown" && event.target === button) {
      event.preventDefault();
      if (panel.hidden) open();
      panel.querySelector("input, button, select")?.focus();
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.target.type === "checkbox") {
      event.preventDefault();
      const boxes = [...panel.querySelectorAll("input[type=checkbox]")];
      boxes[(boxes.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : boxes.length - 1)) % boxes.length].focus();
    }
  });
  root.addEventListener("focusout", (event) => event.relatedTarget && !root.contains(event.relatedTarget) && close(false));
  return {
    root,
    button,
    close,
    refresh: () => panel.hidden || build(panel),
    mark: (text) => {
      badge.textContent = text;
      root.classList.toggle("marked", Boolean(text));
    },
  };
}

const [EDGE, DROP] = [8, 5]; // pixels: from a panel to the edge of the window, and to its button
const [TALLEST, SHORTEST] = [520, 120]; // pixels of a panel

/** Keeps an open panel inside the window: moved sideways, opened upwards where there is more room, scrolled where it is too long. */
function fit(panel, button) {
  panel.style.translate = "none";
  panel.style.maxHeight = "none";
  panel.classList.remove("up");
  const { clientWidth, clientHeight } = document.documentElement;
  const { left, right, height } = panel.getBoundingClientRect();
  const { top, bottom } = button.getBoundingClientRect();
  const [above, below] = [top - DROP - EDGE, clientHeight - bottom - DROP - EDGE];
  const up = height > below && above > below;
  panel.classList.toggle("up", up);
  panel.style.maxHeight = `${Math.min(TALLEST, Math.max(SHORTEST, up ? above : below))}px`;
  const shift = right > clientWidth - EDGE ? clientWidth - EDGE - right : 0;
  panel.style.translate = `${Math.round(left + shift < EDGE ? EDGE - left : shift)}px 0`;
}

/**
 * Tabs [{key, title}], with Left and Right to move; `attributes(key)` are a tab's own, `choose(key)` is called with the chosen one.
 * @returns {{root, show(key)}}
 */
export function tabList({ label, kind, tabs, attributes, choose }) {
  const buttons = new Map(
    tabs.map(({ key, title }) => [key, h("button", { type: "button", role: "tab", text: title, onclick: () => choose(key), ...attributes(key) })]),
  );
  const root = h("div", { class: kind, role: "tablist", "aria-label": label }, [...buttons.values()]);
  let shown = null;
  root.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const keys = [...buttons.keys()];
    const next = keys[(keys.indexOf(shown) + step + keys.length) % keys.length];
    choose(next);
    buttons.get(next).focus();
  });
  return {
    root,
    show: (chosen) => {
      shown = chosen;
      for (const [key, button] of buttons) {
        button.setAttribute("aria-selected", String(key === chosen));
        button.tabIndex = key === chosen ? 0 : -1;
      }
    },
  };
}

/** A native chooser with its label: options [{key, title}], the chosen key, and what to do with another. */
export function chooser({ label, testid, options, value, choose, title = null }) {
  const select = h("select", { "data-testid": testid, "aria-label": label, onchange: () => choose(select.value) });
  const root = h("label", { class: "chooser", title }, h("span", { class: "quiet", text: label }), select);
  const set = (chosen, offered = options) => {
    const wanted = offered.map(({ key, title }) => `${key}\u0000${title}`).join("\u0001");
    if (select.dataset.offered !== wanted) {
      select.dataset.offered = wanted;
      fill(select, offered.map(({ key, title }) => h("option", { value: key, text: title })));
    }
    select.value = chosen;
  };
  set(value);
  return { root, set };
}

/** Calls at most once a frame. */
export function framed(draw) {
  let waiting = 0;
  const now = () => {
    waiting = 0;
    draw();
  };
  return () => {
    if (!waiting) waiting = requestAnimationFrame(now);
  };
}
