/** The first screen: one sentence, the time as a bar by cause, the device, and the figures that matter most. */

import { chosen } from "#page/chosen.js";
import { button, fill, h, named } from "#page/dom.js";
import { boundWords } from "#page/facts.js";
import { rateTitle, resource, title as resourceTitle } from "#page/law.js";
import { programRows } from "#page/program_rows.js";
import { ownMachine, select, timedOn, totals } from "#page/rows.js";
import { fillStack, stack, stackLegend, VISIBLE } from "#page/stack.js";
import { meaning } from "#page/terms.js";
import { percent, plain, show, unbroken } from "#page/units.js";
import { VOCABULARY } from "#page/vocabulary.js";


/**
 * @returns {{root, update(state, derived)}} `before` is an earlier report, whose figures stand before those of this one; of `words`, the
 *   sentences and figures that Python gives, `comparison` is about the two
 */
export function headline({ report, words, store, before = null }) {
  const sentence = h("p", { class: "sentence", "data-testid": "sentence" });
  const bar = h("div", { class: "time-bar", "data-testid": "time-bar" });
  const device = h("p", { class: "device-line", "data-testid": "device-line" });
  const list = h("dl", { class: before ? "figures pairs" : "figures", "data-testid": "figures", tabindex: "0", "aria-label": "Key figures" });
  const notice = h("p", { class: "notice", role: "status", "data-testid": "notice", hidden: true });
  const root = h("section", { class: "summary", "aria-label": "Summary" },
    before && h("p", { class: "sentence verdict", "data-testid": "verdict", text: unbroken(words.comparison.verdict) }),
    sentence,
    bar,
    device,
    notice,
    list,
  );
  return {
    root,
    update: (state, derived) => {
      const { theme, machine } = derived;
      const choice = chosen(report, state, derived);
      sentence.textContent = unbroken(choice.own ? report.summary : titleOfChoice(choice, state, machine, machine !== ownMachine(report)));
      bar.hidden = !choice.parts.length;
      const earlier = before && earlierOf(before, state, machine === ownMachine(report) ? null : machine);
      if (choice.parts.length) fillBars(bar, choice, earlier?.choice, theme);
      fill(device, deviceParts(report, derived, store));
      const old = new Map((earlier ? figuresOf(before, earlier, earlier.choice, words.before_figures) : []).map(([, value, , key]) => [key, value]));
      fill(list, figuresOf(report, derived, choice, words.figures).map((one) => figure(one, old.get(one[3]))));
      const changed = changes(report, state, machine);
      notice.hidden = !changed;
      if (changed) fill(notice,
        changed,
        " ",
        button({ text: "Reset", "data-testid": "notice-reset", onclick: () => store.set({ chip: null, factors: {}, window: null }) }),
      );
    },
  };
}

/** The same figures of an earlier run; of a step or device only where that run has it too. */
function earlierOf(before, state, other) {
  const machine = other ?? ownMachine(before);
  const part = { ...state, step: null, device: null, host: null };
  const all = select(before, part, machine);
  const program = programRows(before, part, machine);
  const sums = totals(all);
  const derived = { all, machine, program, totals: sums, shown: sums };
  return { ...derived, choice: chosen(before, part, derived) };
}

/** The bar of a time, and above it that of an earlier run on the same scale. */
function fillBars(element, choice, earlier, theme) {
  const seconds = (one) => one.time_s ?? one.floor_s;
  if (!earlier?.parts.length || earlier.minimum !== choice.minimum) {
    fillStack(element, { parts: choice.parts, whole: seconds(choice), theme, minimum: choice.minimum });
    return;
  }
  const whole = Math.max(seconds(choice), seconds(earlier));
  const row = (word, one) => h("div", { class: "run-bar" },
    h("span", { class: "quiet", text: word }),
    stack({ parts: one.parts, whole, theme, minimum: one.minimum }),
    h("span", { class: "figure", text: show(seconds(one), "s", 3) }),
  );
  const gone = earlier.parts.filter(({ cause }) => !choice.parts.some((part) => part.cause === cause)).map(({ cause }) => ({ cause, seconds: 0 }));
  const was = new Map(earlier.parts.map((part) => [part.cause, part.seconds]));
  const parts = [...choice.parts, ...gone].map((part) => ({ ...part, before: was.get(part.cause) ?? 0 })).filter((part) => Math.max(part.seconds, part.before) >= VISIBLE * whole);
  fill(element, row("before", earlier), row("after", choice), stackLegend({ parts, whole: seconds(choice), theme, minimum: choice.minimum }));
}

function figure([word, value, remark, key], before = undefined) {
  return h("div", { class: "one", "data-testid": `figure-${key}`, title: meaning(word) },
    h("dt", { text: word }),
    h("dd", {}, h("span", { class: "large", text: pair(before, value) }), h("span", { class: "quiet", text: remark ?? "" })),
  );
}

/** A figure before and after, its unit once where it is the same: "691.5 → 414.5 GFLOP". */
export function pair(before, after) {
  if (before === undefined || before === after) return after;
  const [, old, oldUnit] = /^(\S+)( \S+)$/.exec(before) ?? [];
  return old && after.endsWith(oldUnit) ? `${old} → ${after}` : `${before} → ${after}`;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** What was chosen; its time and where it goes are in the bar and the figures. */
function titleOfChoice({ title }, { feeds }, machine, isOther) {
  return capital([title, feeds ? "" : "without infeed and outfeed", isOther ? `on ${machine.title || machine.name}` : ""].filter(Boolean).join(", "));
}

/** Whether a notable part of the time is in ops without a known minimum. */
function hasUnknown({ parts, time_s }) {
  return parts.some(({ cause, seconds }) => cause === "unpriced" && seconds >= VOCABULARY.notable_loss * time_s);
}

/** The chip in one line: name, peaks of the units in use, bandwidth, capacity and ridge point. */
function deviceParts(report, { machine, all }, store) {
  const peaks = new Map();
  for (const row of all) if (row.peak) peaks.set(row.peak, (peaks.get(row.peak) ?? 0) + (row.flops ?? 0));
  const used = [...peaks].sort(([, one], [, other]) => other - one).slice(0, 2).map(([name]) => name);
  const main = machine.bestMatrix?.resource;
  const shown = [...new Set([...(main ? [main] : []), ...used, "hbm"])].filter((name) => machine.rate(name) !== null);
  const capacity = (machine.capacities ?? []).find((one) => one.level === "hbm");
  const ridge = main ? machine.ridge(main) : null;
  const count = report.input.devices?.length ?? 0;
  const words = [
    ...shown.map((name) => [rateTitle(name, machine.rate(name)), resource(name).isMemory ? "Memory level" : "Ceiling"]),
    capacity ? [`${show(capacity.bytes, "B")} ${resourceTitle("hbm")}`, "Memory level"] : null,
    ridge ? [`ridge point ${show(ridge, "FLOP/B")}`, "Ridge point"] : null,
  ].filter(Boolean);
  return [
    button({
      class: "plain-button device-name", "data-testid": "device-name",
      text: `${count > 1 ? `${count} × ` : ""}${machine.title || machine.name}`, title: "Every ceiling and its source",
      onclick: () => store.set({ tab: "ops", panel: "device" }),
    }),
    words.map(([text, term]) => h("span", { class: "quiet", title: meaning(term) }, named(text, { title: null }))),
  ];
}

function changes(report, state, machine) {
  const own = report.machine.title || report.machine.name;
  const factors = Object.entries(state.factors).map(([key, factor]) => `, ${key === "compute" ? "peak compute" : key} at ${percent(factor)}`);
  if (state.chip === null && !factors.length) return "";
  const which = state.chip === null ? own : `${machine.title} instead of ${own}`;
  const times = timedOn(report, machine) ? `Measured times are those of ${own}.` : "Times shown are minimum times on that chip.";
  return `Ceilings of ${which}${factors.join("")}. ${times}`;
}

/** `fixed` are the figures of the whole report, which Python gives. */
function figuresOf(report, { shown, totals, machine }, choice, fixed) {
  const { point, time_s, floor_s, mfu, hfu, minimum } = choice;
  const own = machine === ownMachine(report);
  const found = [];
  if (time_s) {
    const busy = choice.parts.find(({ cause }) => cause === "idle");
    found.push([`Time${choice.per}`, show(time_s, "s", 3), `${percent(1 - (busy?.seconds ?? 0) / time_s)} busy`, "time"]);
    const some = hasUnknown(choice);
    const least_s = some ? floor_s || null : floor_s;
    found.push([`Minimum time${choice.per}`, show(least_s, "s", 3), least_s === null ? "" : some ? "of the ops that have one" : `${percent(floor_s / time_s)} of the time`, "floor"]);
  } else {
    const taken = point?.measured_s ?? point?.time_s;
    const measured = taken ? `measured: ${show(taken, "s", 3)}` : "no measured times";
    found.push([`Minimum time${choice.per}`, show(floor_s, "s", 3), measured, "floor"]);
  }
  if (mfu !== null) found.push(["MFU", percent(mfu), "needed work", "mfu"]);
  if (hfu !== null) found.push(["HFU", percent(hfu), "work that ran", "hfu"]);
  if (time_s && own && point?.efficiency) found.push(["Roofline efficiency", percent(point.efficiency), "fully overlapped", "efficiency"]);
  if (point) {
    const [kind, unit] = boundWords(point.bound);
    const used = minimum ? null : point.utilization?.[point.bound];
    found.push(["Bound by", unit, [kind, used ? `${percent(used)} utilized` : ""].filter(Boolean).join(", "), "bound"]);
    const ridge = machine.bestMatrix ? machine.ridge(machine.bestMatrix.resource) : null;
    found.push(["Arithmetic intensity", show(point.intensity, "FLOP/B"), ridge ? `ridge point ${show(ridge, "FLOP/B")}` : "", "intensity"]);
  }
  const rate = report.changes?.length || report.predicted ? "predicted" : "achieved";
  found.push(["Work", show(point?.flops ?? totals.flops, "FLOP"), point?.rate ? `${show(point.rate, "FLOP/s")} ${rate}` : "", "work"]);
  found.push(...fixed);
  found.push(["Operations", plain(shown.ops), shown.ops === totals.ops ? "" : `of ${plain(totals.ops)} shown`, "ops"]);
  return found;
}
