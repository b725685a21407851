/** What leaves the page: the filtered table as CSV, the chart as SVG or PNG, the report's own JSON, and a link to what is seen. */

import { opsCsv, toCsv } from "#page/csv.js";
import { announce, button, fill, h, menu } from "#page/dom.js";
import { unescaped } from "#page/given.js";
import { toSvg } from "#page/svg.js";

const PICTURE = { width: 1200, height: 720 }; // of an exported chart, in pixels
const SHARPER = 2; // pixels of a PNG per pixel of the drawing

/** `scene()` is what is shown now: {model, rows, columns}, and how the chart is drawn, as `toSvg` takes it. */
export function exporter({ scene, name }) {
  const offer = (label, testid, make) =>
    button({ class: "option action", "data-testid": testid, text: label, onclick: () => (list.close(true), make()) });
  const list = menu({
    label: "Export",
    testid: "export",
    align: "right",
    build: (panel) => {
      if (panel.childElementCount) return;
      fill(panel,
        offer("Table as CSV", "export-csv", () => save(`${name}.csv`, "text/csv;charset=utf-8", csvOf(scene()))),
        offer("Chart as SVG", "export-svg", () => save(`${name}.svg`, "image/svg+xml", svgOf(scene()))),
        offer("Chart as PNG", "export-png", async () => save(`${name}.png`, "image/png", await pngOf(svgOf(scene())))),
        offer("Report as JSON", "export-json", () => save(`${name}.json`, "application/json", jsonOf("report"))),
        document.getElementById("before") && offer(
          "Earlier report as JSON",
          "export-before",
          () => save(`${name}.before.json`, "application/json", jsonOf("before")),
        ),
        offer("Print", "print", () => window.print()),
      );
    },
  });
  return list;
}

/** The table as shown: ops under headings that roofline reads back, anything else under those of the screen. */
const csvOf = ({ rows, columns }) => (rows.every(({ kind }) => kind === "op") ? opsCsv(rows) : toCsv(rows, columns));

function svgOf({ model, ...shown }) {
  return toSvg(model, { ...PICTURE, ...shown });
}

/** The bytes that stand in the page, without what kept them from ending the element. */
function jsonOf(id) {
  return unescaped(document.getElementById(id).textContent);
}

async function pngOf(svg) {
  const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = h("canvas", { width: String(PICTURE.width * SHARPER), height: String(PICTURE.height * SHARPER) });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}

function save(name, type, content) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
  announce(`Saved ${name}`);
}

/** The address with the whole state in it; where the clipboard is closed to us, shown to be copied by hand. */
export async function copyLink(said) {
  try {
    await navigator.clipboard.writeText(location.href);
    said("Link copied");
  } catch {
    said("Copy the link from the address bar");
  }
}
