const read = (name) => JSON.parse(document.getElementById(name).textContent);
const [found, shown] = [read("plans"), read("shown")];
const plans = found.plans;
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F6FB5", "#8C6D31", "#5B636D"];
const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT] = [1060, 380, 60, 36, 12, 12];
const ROW = 18;
const [ROWS, PREFIXES] = [100, [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"]]];

function show(value, unit) {
  const [size, prefix] = PREFIXES.find(([least]) => Math.abs(value) >= least) ?? [1, ""];
  return `${Number((value / size).toPrecision(3))} ${prefix}${unit}`;
}

function make(tag, attributes = {}, ...children) {
  const isDrawn = ["svg", "circle", "line", "rect", "text", "title", "g"].includes(tag);
  const element = isDrawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const nameOf = (plan) => Object.entries(plan.mesh).filter(([, size]) => size > 1).map(([axis, size]) => axis + size).join(" ") || "one device";
const kindOf = (plan) => ["tp", "pp", "cp", "ep", "fsdp"].filter((axis) => plan.mesh[axis] > 1).join(" ") || "data";
const kinds = [...new Set(plans.map(kindOf))];
const colourOf = (index) => COLOURS[Math.min(index, COLOURS.length - 1)];

function scale(values, from, to, of = (value) => value) {
  const [least, most] = [of(Math.min(...values)), of(Math.max(...values))];
  const room = (most - least || Math.abs(most) || 1) * 0.05;
  return { place: (value) => from + ((of(value) - least + room) / (most - least + 2 * room)) * (to - from), least: least - room, most: most + room };
}

// Times are on a logarithmic axis: the slowest plan may take a hundred times as long as the best.
function ticksOfLogarithms({ least, most }) {
  const powers = Array.from({ length: 40 }, (_, index) => 10 ** (index - 20));
  const steps = most - least > Math.log(20) ? [1, 2, 5] : [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8];
  return powers.flatMap((power) => steps.map((step) => step * power)).filter((value) => Math.log(value) >= least && Math.log(value) <= most);
}

function ticks({ least, most }) {
  const step = 10 ** Math.floor(Math.log10((most - least) / 4));
  const width = [1, 2, 5, 10].map((times) => times * step).find((size) => (most - least) / size <= 8);
  return Array.from({ length: 12 }, (_, index) => (Math.ceil(least / width) + index) * width).filter((value) => value <= most && value >= 0);
}

function chart() {
  const across = scale(plans.map((plan) => plan.step_s), LEFT, WIDTH - RIGHT, Math.log);
  const up = scale([...plans.map((plan) => plan.memory.total), found.capacity], HEIGHT - BOTTOM, TOP);
  const drawing = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + 24}`, role: "group", "aria-label": "Plans by time and memory" });
  for (const value of ticksOfLogarithms(across)) drawing.append(make("text", { x: across.place(value), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, show(value, "s")));
  for (const value of ticks(up)) drawing.append(make("text", { x: LEFT - 6, y: up.place(value) + 4, "text-anchor": "end" }, show(value, "B")));
  drawing.append(make("line", { class: "axis", x1: LEFT, x2: WIDTH, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }));
  drawing.append(make("line", { class: "limit", x1: LEFT, x2: WIDTH, y1: up.place(found.capacity), y2: up.place(found.capacity) }));
  plans.forEach((plan, index) => drawing.append(make(
    "circle", { class: "dot", "data-plan": index, cx: across.place(plan.step_s), cy: up.place(plan.memory.total), r: 5, fill: colourOf(kinds.indexOf(kindOf(plan))), onclick: () => choose(index) },
    make("title", {}, `${index + 1}: ${nameOf(plan)}, microbatch ${plan.microbatch}, ${plan.format}, ${plan.recompute}: ${show(plan.step_s, "s")}, ${show(plan.memory.total, "B")}`),
  )));
  kinds.slice(0, COLOURS.length).forEach((kind, index) => {
    const x = LEFT + index * 110;
    drawing.append(make("circle", { cx: x, cy: HEIGHT + 12, r: 5, fill: colourOf(index) }), make("text", { x: x + 9, y: HEIGHT + 16 }, kind));
  });
  document.getElementById("chart").replaceChildren(drawing);
}

function timeline(index) {
  if (!shown.spans[index]) return make("p", { class: "quiet" }, `Only the first ${shown.spans.length} plans have a timeline.`);
  const row = shown.spans[index].map(([stage, start, time, part]) => ({ stage, start_s: start, time_s: time, part }));
  const parts = [...new Set(row.map(({ part }) => part))].filter((part) => part !== "wait");
  const stages = Math.max(0, ...row.map(({ stage }) => stage)) + 1;
  const length = plans[index].step_s;
  const drawing = make("svg", { viewBox: `0 0 ${WIDTH} ${stages * ROW + 8}`, role: "img", "aria-label": "One step along time, a row per pipeline stage" });
  for (const { stage, start_s: start, time_s: time, part } of row) {
    if (part === "wait") continue;
    const place = { x: (start / length) * WIDTH, y: stage * ROW, width: Math.max(0.5, (time / length) * WIDTH), height: ROW - 3, fill: colourOf(parts.indexOf(part)) };
    drawing.append(make("rect", place, make("title", {}, `${part}: ${show(time, "s")}`)));
  }
  return drawing;
}

function rowsOf(headings, rows) {
  return make("table", {}, make("thead", {}, make("tr", {}, ...headings.map((text) => make("th", { scope: "col" }, text)))), make("tbody", {}, ...rows));
}

const cells = (texts, attributes = {}) => make("tr", attributes, ...texts.map((text, index) => make("td", index === texts.length - 1 ? { class: "formula" } : {}, text)));

function choose(index) {
  const plan = plans[index];
  for (const marked of document.querySelectorAll("[data-plan]")) marked.classList.toggle("chosen", Number(marked.dataset.plan) === index);
  document.getElementById("chosen-title").textContent = `Plan ${index + 1}: ${nameOf(plan)}, microbatch ${plan.microbatch}, ${plan.format}, recomputation ${plan.recompute}: ${show(plan.step_s, "s")} (${show(plan.low_s, "s")} to ${show(plan.high_s, "s")})`;
  document.getElementById("timeline").replaceChildren(timeline(index));
  const parts = Object.entries(plan.parts).sort(([, one], [, other]) => other - one);
  const colours = [...new Set((shown.spans[index] ?? []).map(([, , , part]) => part))].filter((part) => part !== "wait");
  const swatch = (part) => make("svg", { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" }, ...(colours.includes(part) ? [make("rect", { width: 10, height: 10, fill: colourOf(colours.indexOf(part)) })] : []));
  const named = (part) => make("span", {}, swatch(part), ` ${part}`);
  const terms = parts.map(([part, seconds]) => cells([named(part), show(seconds, "s"), `${((100 * seconds) / plan.step_s).toPrecision(2)}%`, shown.formulas[part]]));
  const ledger = Object.entries(plan.memory).map(([part, bytes]) => cells([part, show(bytes, "B"), shown.memory[part]]));
  document.getElementById("parts").replaceChildren(make("div", { class: "tables" }, rowsOf(["part", "time", "share", "formula"], terms), rowsOf(["memory", "bytes", "formula"], ledger)));
}

function table() {
  const rows = plans.slice(0, ROWS).map((plan, index) => make(
    "tr", { "data-plan": index },
    make("td", {}, make("button", { type: "button", onclick: () => choose(index) }, `${index + 1}: ${nameOf(plan)}`)),
    ...[plan.microbatch, plan.format, plan.recompute, show(plan.step_s, "s"), show(plan.memory.total, "B"), `${(100 * plan.mfu).toPrecision(2)}%`, plan.fits].map((text) => make("td", {}, String(text))),
  ));
  document.getElementById("table").replaceChildren(rowsOf(["plan", "microbatch", "format", "again", "step", "memory", "MFU", "fits"], rows));
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => { document.documentElement.dataset.theme = dark.matches ? "dark" : "light"; };
dark.addEventListener("change", paint);
paint();
chart();
table();
choose(0);
