/** The list of runs: filled from its JSON twin, asked again every so often, filtered, sorted and walked with the keyboard. */
import { h } from "./dom.js";
import { percent, show } from "./units.js";

const EVERY_MS = 2000;
const DIGITS = 3;
const STEP = 200; // rows added at a time: thousands at once would keep the browser busy

const COLUMNS = [
  { key: "name", title: "Run", text: (run) => run.name },
  { key: "kind", title: "Kind", text: (run) => (run.files > 1 ? `${run.kind}, ${run.files} files` : run.kind) },
  { key: "modified_s", title: "Changed", text: (run) => when(run.modified_s), numeric: true },
  { key: "bytes", title: "Size", text: (run) => show(run.bytes, "B", DIGITS), numeric: true },
  { key: "device", title: "Device", text: (run) => run.summary?.device ?? run.summary?.machine ?? "" },
  { key: "step_s", title: "Time per step", text: (run) => known(run.summary?.step_s, (step_s) => show(step_s, "s", DIGITS)), numeric: true },
  { key: "time_s", title: "Time of run", text: (run) => known(run.summary?.time_s, (time_s) => show(time_s, "s", DIGITS)), numeric: true },
  { key: "efficiency", title: "Roofline efficiency", text: (run) => known(efficiencyOf(run), percent), numeric: true },
];

const found = { runs: [], notes: [] };
const view = { sort: "modified_s", descending: true, most: STEP, ticked: [] };
const part = (id) => document.getElementById(id);

/** A figure in words; unknown is an empty cell, as the run may not have been read yet. */
function known(value, write) {
  return value === null || value === undefined ? "" : write(value);
}

/** The moment a file changed, by the reader's own clock: 2026-03-09 14:05. */
function when(seconds) {
  const date = new Date(1000 * seconds);
  const two = (number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

/** As on the page of a run: that of its average step, else of the whole run. */
function efficiencyOf({ summary }) {
  return summary?.step_efficiency ?? summary?.efficiency ?? null;
}

function valueOf(run, key) {
  if (key === "efficiency") return efficiencyOf(run);
  return key in run ? run[key] : (run.summary?.[key] ?? null);
}

/** The order of two names, in which run_2 comes before run_10. */
const byName = (one, other) => one.localeCompare(other, "en", { numeric: true });

/** The runs that pass the filter, in order; what is unknown comes last either way. */
function shownRuns() {
  const words = part("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (run) => `${run.name} ${run.kind} ${run.path} ${run.summary?.device ?? ""} ${run.summary?.machine ?? ""}`.toLowerCase();
  const passing = found.runs.filter((run) => words.every((word) => text(run).includes(word)));
  const sign = view.descending ? -1 : 1;
  return passing.sort((one, other) => {
    const [a, b] = [valueOf(one, view.sort), valueOf(other, view.sort)];
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "string" ? byName(a, b) : a - b) || byName(one.name, other.name);
  });
}

function heading(column) {
  const on = view.sort === column.key;
  const button = h("button", { type: "button", "data-sort": column.key }, column.title);
  return h("th", { scope: "col", class: column.numeric ? "number" : null, "aria-sort": on ? (view.descending ? "descending" : "ascending") : "none" }, button);
}

function line(run) {
  const tick = h("input", { type: "checkbox", "aria-label": `compare ${run.name}`, "data-tick": run.id });
  tick.checked = view.ticked.includes(run.id);
  const cells = COLUMNS.map((column) => {
    const cell = h("td", { class: column.numeric ? "number" : null, "data-title": column.title });
    if (column.key === "name") {
      cell.append(h("a", { href: run.page, title: run.path }, run.name));
      if (run.state === "failed") cell.append(h("span", { class: "wrong", title: run.error }, " failed"));
      if (run.state === "reading" || run.state === "waiting") cell.append(h("span", { class: "quiet" }, " reading…"));
    } else cell.textContent = column.text(run);
    return cell;
  });
  return h("tr", { "data-id": run.id }, h("td", {}, tick), ...cells);
}

/** Draw everything again, keeping the focus where it was. */
function draw() {
  const focus = document.activeElement;
  const kept = focus?.closest?.("tr")?.dataset.id;
  const inBox = focus?.matches?.("[data-tick]");
  const sorted = focus?.dataset?.sort;
  const runs = shownRuns();
  const rows = runs.slice(0, view.most).map(line);
  const head = h("tr", {}, h("th", { scope: "col" }, h("span", { class: "unseen" }, "compare")), ...COLUMNS.map(heading));
  const caption = h("caption", { class: "unseen" }, "runs");
  part("runs").replaceChildren(
    rows.length ? h("table", {}, caption, h("thead", {}, head), h("tbody", {}, ...rows)) : h("p", { class: "quiet" }, nothing()),
  );
  part("count").textContent = runs.length === found.runs.length ? `${runs.length} runs` : `${runs.length} of ${found.runs.length} runs`;
  part("more").hidden = runs.length <= view.most;
  part("notes").replaceChildren(...found.notes.map((note) => h("li", {}, note)));
  drawPair();
  if (kept) part("runs").querySelector(`tr[data-id="${kept}"] ${inBox ? "input" : "a"}`)?.focus();
  else if (sorted) part("runs").querySelector(`[data-sort="${sorted}"]`)?.focus();
}

function nothing() {
  return found.runs.length ? "No runs match this filter." : "No runs found yet. New profiles in these folders appear here automatically.";
}

/** What is ticked: the first is before, the second after. */
function drawPair() {
  const runs = view.ticked.map((id) => found.runs.find((run) => run.id === id)).filter(Boolean);
  const ready = runs.length === 2;
  part("pair").textContent = ready
    ? `before: ${runs[0].name} → after: ${runs[1].name}`
    : runs.length ? `before: ${runs[0].name}. Tick a second run.` : "Tick two runs to compare.";
  part("compare").hidden = part("swap").hidden = !ready;
  if (ready) part("compare").href = `/compare/${runs[0].id}/${runs[1].id}`;
}

function tick(id) {
  view.ticked = view.ticked.includes(id) ? view.ticked.filter((other) => other !== id) : [...view.ticked.slice(-1), id];
  for (const box of document.querySelectorAll("[data-tick]")) box.checked = view.ticked.includes(box.dataset.tick);
  drawPair();
}

/** Up and down go from run to run, Space on a run ticks it, a slash goes to the filter. */
function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches?.("input[type=search]");
  if (event.key === "/" && !typing) {
    part("filter").focus();
    event.preventDefault();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const links = [...part("runs").querySelectorAll("tbody a")];
    const at = links.indexOf(event.target.closest?.("tr")?.querySelector("a"));
    const next = event.key === "ArrowDown" ? at + 1 : at - 1;
    (links[next] ?? (next < 0 ? part("filter") : null))?.focus();
    event.preventDefault();
  } else if (event.key === " " && event.target.matches?.("tbody a")) {
    tick(event.target.closest("tr").dataset.id);
    event.preventDefault();
  }
}

function click(event) {
  const sort = event.target.closest("[data-sort]")?.dataset.sort;
  if (sort) {
    view.descending = view.sort === sort ? !view.descending : sort !== "name" && sort !== "kind" && sort !== "device";
    view.sort = sort;
    draw();
  } else if (event.target.matches("[data-tick]")) tick(event.target.dataset.tick);
  else if (event.target === part("more")) {
    view.most += STEP;
    draw();
  } else if (event.target === part("swap")) {
    view.ticked.reverse();
    drawPair();
  }
}

let last = null;
async function ask() {
  try {
    const answer = await fetch("/index.json", { cache: "no-cache" });
    const tag = answer.headers.get("etag");
    if (answer.ok && tag !== last) {
      Object.assign(found, await answer.json());
      last = tag;
      draw();
    }
  } catch {
    part("count").textContent = "no response from the server; it may have stopped";
    last = null;
  }
}

async function keepAsking() {
  for (;;) {
    if (!document.hidden) await ask();
    await new Promise((done) => setTimeout(done, EVERY_MS));
  }
}

part("tools").addEventListener("submit", (event) => event.preventDefault());
part("filter").addEventListener("input", () => {
  view.most = STEP;
  draw();
});
document.addEventListener("keydown", key);
document.addEventListener("click", click);
keepAsking();
