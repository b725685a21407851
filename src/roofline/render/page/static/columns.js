/** Columns of the tables: what each shows, in which unit, and how it reads. */

import { title } from "#page/law.js";
import { percent, plain, show, UNKNOWN } from "#page/units.js";

/**
 * @typedef {Object} Column
 * @property {string} key  of the row, and the heading of the CSV
 * @property {string} title
 * @property {string} unit  the base unit, "" for a bare number or text
 * @property {string} description
 * @property {boolean} numeric
 * @property {(value: any) => string} format
 */

const text = (key, name, description) => ({ key, title: name, unit: "", description, numeric: false, format: (value) => value ?? "" });
const hardware = (key, name, description) => ({ ...text(key, name, description), format: (value) => (value ? title(value) : UNKNOWN) });
const numeric = (key, name, unit, description, format) => ({ key, title: name, unit, description, numeric: true, format });
const quantity = (key, name, unit, description) => numeric(key, name, unit, description, (value) => show(value, unit));
const fraction = (key, name, description) => numeric(key, name, "%", description, (value) => percent(value));
const number = (key, name, description) => numeric(key, name, "", description, (value) => plain(value));

/** The columns of the table of ops. @type {readonly Column[]} */
export const COLUMNS = Object.freeze([
  number("rank", "rank", "place by time, longest first"),
  text("name", "operation", "name of the operation"),
  text("category", "category", "kind of operation"),
  text("module", "program", "compiled program it belongs to"),
  text("scope", "scope", "where in the model it was written"),
  text("location", "source", "line of source code"),
  text("phase", "phase", "forward or backward, where the program tells them apart"),
  number("count", "count", "executions"),
  number("kernels", "kernels", "kernels launched"),
  quantity("time_s", "time", "s", "duration of its kernels, all executions"),
  quantity("self_time_s", "self time", "s", "without nested ops and what earlier events of the stream cover"),
  fraction("share", "share", "share of the self time of all ops selected"),
  quantity("flops", "work", "FLOP", "arithmetic, transcendentals apart"),
  quantity("rate", "rate", "FLOP/s", "work over time"),
  quantity("attainable", "attainable", "FLOP/s", "the best rate: all work in the time of the floor"),
  quantity("bytes", "bytes", "B", "bytes over the memory level or link chosen"),
  quantity("bandwidth", "bandwidth", "B/s", "those bytes over time"),
  quantity("intensity", "intensity", "FLOP/B", "work over those bytes"),
  quantity("ridge", "ridge", "FLOP/B", "the intensity at which its arithmetic would meet the roof of that level"),
  hardware("unit", "unit", "the unit that does the arithmetic which takes the most time"),
  text("dtype", "format", "the number format of that arithmetic"),
  hardware("bound", "bound by", "the unit with the longest time, or latency"),
  quantity("floor_s", "floor", "s", "the least time: the longest on any unit, if all overlap"),
  quantity("serial_s", "serial", "s", "the time if no unit overlaps with another"),
  quantity("lost_s", "lost", "s", "time minus floor: what a perfect kernel would save"),
  fraction("efficiency", "of roof", "floor over time; 100% is on the roof, more is a doubt"),
]);

/** The keys of the columns shown when nobody chose others. */
export const USUAL_COLUMNS = Object.freeze([
  "rank", "name", "category", "count", "time_s", "share", "rate", "bandwidth", "intensity", "bound", "efficiency", "lost_s",
]);

/** The columns of the table of the whole program. @type {readonly Column[]} */
export const PROGRAM_COLUMNS = Object.freeze([
  text("name", "part", "the whole program, its work by hardware counters, its average step, or one step"),
  quantity("time_s", "time", "s", "wall time summed over devices, idle included"),
  quantity("busy_s", "busy", "s", "the part of it in which something ran"),
  quantity("flops", "work", "FLOP", "arithmetic, transcendentals apart"),
  quantity("rate", "rate", "FLOP/s", "work over time"),
  quantity("bytes", "bytes", "B", "bytes over the memory level or link chosen"),
  quantity("bandwidth", "bandwidth", "B/s", "those bytes over time"),
  quantity("intensity", "intensity", "FLOP/B", "work over those bytes"),
  hardware("bound", "bound by", "the unit with the longest time"),
  quantity("floor_s", "floor", "s", "the least time for all of its work, if everything overlaps"),
  fraction("efficiency", "of roof", "floor over time"),
  fraction("op_efficiency", "ops' floors", "the sum of the ops' floors over time"),
  fraction("peak_share", "of peak FLOP rate", "rate over peak, every number format by its own: the busiest compute unit"),
  fraction("memory_utilization", "max memory use", "bandwidth over its peak, of the memory level used most"),
  fraction("link_utilization", "max link use", "bandwidth over its peak, of the link used most"),
]);

/** The columns of the table that compares two reports. @type {readonly Column[]} */
export const DIFFERENCE_COLUMNS = Object.freeze([
  text("name", "operation", "name of the operation, or of the category compared as one"),
  text("category", "category", "kind of operation"),
  text("module", "program", "compiled program it belongs to"),
  text("matched", "matched by", "how the two sides were paired"),
  quantity("before_s", "before", "s", "self time before"),
  quantity("after_s", "after", "s", "self time after"),
  quantity("change_s", "change", "s", "after minus before: negative is faster"),
  fraction("share", "of change", "part of the whole change; negative where it runs against the rest"),
  numeric("speedup", "speed-up", "x", "time before over time after", times),
  fraction("before_efficiency", "of roof before", "floor over time before"),
  fraction("after_efficiency", "of roof after", "floor over time after"),
  hardware("before_bound", "bound before", "what bound it before"),
  hardware("after_bound", "bound after", "what binds it after"),
]);

function times(ratio) {
  return ratio === null || ratio === undefined ? UNKNOWN : `${show(ratio, "1", 3)}x`;
}
