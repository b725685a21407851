/** The model against hardware counters, op by op: FLOP and bytes of both, and their ratios. */

import { h } from "#page/dom.js";
import { resource, title } from "#page/law.js";
import { per } from "#page/rows.js";
import { table } from "#page/table.js";
import { show, UNKNOWN } from "#page/units.js";

/** The section; `null` where nothing was counted. */
export function modelAgainstCounters({ report, select }) {
  const ops = report.ops.filter((op) => op.counters);
  if (!ops.length) return null;
  const levels = [...new Set(ops.flatMap((op) => Object.keys(op.counters.bytes ?? {})))].sort();
  const amount = (key, heading, unit) => ({ key, title: heading, unit, numeric: true, main: false, description: heading, format: (value) => show(value, unit) });
  const ratio = (key, heading) => ({
    key, title: heading, unit: "x", numeric: true, main: false,
    description: "counted / modelled; above 1, more was computed or moved than the model says",
    format: (value) => (value == null ? UNKNOWN : `${show(value, "1", 3)}x`),
    tone: (row) => (row[key] > 1.1 || row[key] < 0.9 ? "worse" : ""),
  });
  const columns = [
    { key: "label", title: "operation", unit: "", numeric: false, main: true, description: "name of the op", format: (value) => value },
    amount("time_s", "time", "s"),
    amount("flops", "modelled work", "FLOP"), amount("counted_flops", "counted work", "FLOP"), ratio("flops_ratio", "work ratio"),
    ...levels.flatMap((level) => {
      const modelled = ops.some((op) => level in op.bytes);
      return [
        modelled && amount(`modelled_${level}`, `modelled ${title(level)}`, resource(level).measure),
        amount(`counted_${level}`, `counted ${title(level)}`, resource(level).measure),
        modelled && ratio(`ratio_${level}`, `${title(level)} ratio`),
      ].filter(Boolean);
    }),
  ];
  const rows = ops.map((op) => ({
    id: op.id, ops: [op.id], label: op.label || op.name, time_s: op.time_s, flops: op.flops, counted_flops: op.counters.flops,
    flops_ratio: per(op.counters.flops, op.flops),
    ...Object.fromEntries(levels.flatMap((level) => [
      [`modelled_${level}`, op.bytes[level] ?? null],
      [`counted_${level}`, op.counters.bytes[level] ?? null],
      [`ratio_${level}`, per(op.counters.bytes[level] ?? null, op.bytes[level] ?? null)],
    ])),
  }));
  const list = table({ testid: "counters-table", label: "Model against counters", onselect: select });
  return {
    root: h("section", { class: "below", "aria-label": "Model against counters" }, h("h2", { text: "Model against hardware counters" }), list.root),
    update: (state) => list.show({ rows, columns, selected: new Set(state.selected) }),
  };
}
