/** The model against hardware counters, op by op: FLOP and bytes of both, and their ratios. */

import { h } from "#page/dom.js";
import { resource, title } from "#page/law.js";
import { table } from "#page/table.js";
import { show, UNKNOWN } from "#page/units.js";
import { VOCABULARY } from "#page/vocabulary.js";

/** The section; `null` where nothing was counted. */
export function modelAgainstCounters({ report, select }) {
  const ops = report.ops.filter((op) => op.counters);
  if (!ops.length) return null;
  const levels = [...new Set(ops.flatMap((op) => Object.keys(op.counters.bytes ?? {})))].sort();
  const ratios = [...new Set(ops.flatMap((op) => Object.keys(op.counters.ratio ?? {})))].sort();
  const amount = (key, heading, unit) => ({ key, title: heading, unit, numeric: true, main: false, description: heading, format: (value) => show(value, unit) });
  const ratio = (name) => ({
    key: `ratio_${name}`, title: `${title(name)} ratio`, unit: "x", numeric: true, main: false,
    description: "counted / modelled; above 1, more was computed or moved than the model says",
    format: (value) => (value == null ? UNKNOWN : `${show(value, "1", 3)}x`),
    tone: (row) => (Math.abs((row[`ratio_${name}`] ?? 1) - 1) > VOCABULARY.counters_differ ? "worse" : ""),
  });
  const columns = [
    { key: "label", title: "operation", unit: "", numeric: false, main: true, description: "name of the op", format: (value) => value },
    amount("time_s", "time", "s"),
    amount("flops", "modelled work", "FLOP"), amount("counted_flops", "counted work", "FLOP"),
    ...ratios.filter((name) => resource(name).isCompute).map(ratio),
    ...levels.flatMap((level) => {
      const modelled = ops.some((op) => level in op.bytes);
      return [
        modelled && amount(`modelled_${level}`, `modelled ${title(level)}`, resource(level).measure),
        amount(`counted_${level}`, `counted ${title(level)}`, resource(level).measure),
        ratios.includes(level) && ratio(level),
      ].filter(Boolean);
    }),
  ];
  const rows = ops.map((op) => ({
    id: op.id, ops: [op.id], label: op.label || op.name, time_s: op.time_s, flops: op.flops, counted_flops: op.counters.flops,
    ...Object.fromEntries(ratios.map((name) => [`ratio_${name}`, op.counters.ratio?.[name] ?? null])),
    ...Object.fromEntries(levels.flatMap((level) => [
      [`modelled_${level}`, op.bytes[level] ?? null],
      [`counted_${level}`, op.counters.bytes[level] ?? null],
    ])),
  }));
  const list = table({ testid: "counters-table", label: "Model against counters", onselect: select });
  return {
    root: h("section", { class: "below", "aria-label": "Model against counters" }, h("h2", { text: "Model and hardware counters" }), list.root),
    update: (state) => list.show({ rows, columns, selected: new Set(state.selected) }),
  };
}
