/** The top of the page: what it is about, the tabs, what leaves the page, and the glossary. */

import { button, check, fill, h, menu, named, tabList } from "#page/dom.js";
import { copyLink } from "#page/export.js";
import { icon } from "#page/icons.js";
import { glossary } from "#page/terms.js";

const THEMES = [{ key: "auto", title: "System" }, { key: "light", title: "Light" }, { key: "dark", title: "Dark" }];

/** The bar with the title, tabs and buttons. `tabs` are [{key, title}]. */
export function topBar({ title, subtitle, store, tabs, exporting, live }) {
  const bar = tabList({
    label: "Views", kind: "tabs", tabs, attributes: (key) => ({ id: `tab-${key}`, "aria-controls": "view", "data-testid": `tab-${key}` }),
    choose: (tab) => store.set({ tab }),
  });
  const theme = menu({
    label: "Theme",
    testid: "theme",
    align: "right",
    build: (panel) => fill(panel, THEMES.map(({ key, title: name }) => check({
      type: "radio", kind: "option", label: name, name: "theme", value: key, checked: store.get().theme === key, onchange: () => store.set({ theme: key }),
    }).root)),
  });
  const said = h("span", { class: "said", role: "status" });
  const link = button({ class: "menu-button", "data-testid": "copy-link", onclick: () => copyLink((text) => tell(text)) },
    icon("link"),
    h("span", { text: "Copy link" }),
  );
  const tell = (text) => {
    said.textContent = text;
    setTimeout(() => (said.textContent = ""), 2500);
  };
  const words = glossary();
  const root = h("div", { class: "top-inner" },
    h("div", { class: "titles" },
      live?.home && h("a", { class: "home", href: live.home, text: "All runs" }),
      h("h1", { "data-testid": "title" }, named(title, { most: 80 })),
      h("p", { class: "quiet", "data-testid": "subtitle" }, subtitle.map((word, index) => [index ? " · " : "", named(word, { most: 60 })])),
    ),
    tabs.length > 1 && bar.root,
    h("div", { class: "actions" },
      said,
      link,
      exporting.root,
      theme.root,
      words.button,
      words.dialog,
      live?.twin && h("a", { class: "menu-button", href: live.twin, text: "JSON", "data-testid": "twin" }),
    ),
  );
  return { root, update: ({ tab }) => bar.show(tab) };
}
