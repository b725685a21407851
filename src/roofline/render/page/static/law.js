/**
 * The law of the roofline, for another chip and for the sliders; tested against `placement.py` on shared vectors.
 *
 *     time on unit u   t_u = sum over its resources r of cost[r] / rate[r]
 *     minimum time     max over units t_u          (perfect overlap)
 *     serial time      sum over units t_u          (no overlap)
 *     efficiency       minimum time / measured time
 *
 * A cost maps resources to amounts: `null` is unknown, absent is 0. Names of fields are those of the report's JSON.
 */

import { show } from "#page/units.js";
import { VOCABULARY } from "#page/vocabulary.js";

export const LATENCY = "latency"; // the bound of work too small to fill the time of its own launch

const UNITS = new Map(Object.entries(VOCABULARY.units));
const FALLBACKS = new Map(Object.entries(VOCABULARY.fallbacks));
const met = new Map();

/** What follows from a resource's name, `unit` or `unit/kind`; a unit that Python does not list is a memory. */
export function resource(name) {
  if (!met.has(name)) met.set(name, describe(name));
  return met.get(name);
}

function describe(name) {
  const [unit, kind = ""] = name.split("/");
  const [hardware, ...parts] = unit.split(".");
  const [spelled, of] = UNITS.get(hardware) ?? [hardware.toUpperCase(), "memory"];
  const [isCompute, isLink, isCrossLane] = [of === "compute" && !parts.length, of === "link", of === "cross-lane"];
  const measure = isCompute ? "FLOP" : kind === "hop" ? "hop" : "B";
  return {
    unit, kind, measure, isCompute, isLink, per: `${measure}/s`, isMemory: !isCompute && !isLink && !isCrossLane,
    isArithmetic: isCompute && kind !== "transcendental" && unit !== "eup", title: [spelled, parts.join("."), kind].filter(Boolean).join(" "),
  };
}

/** A resource as people write it: "HBM", "matrix bf16", "VMEM read". */
export function title(name) {
  return resource(name).title;
}

/** A roof's part in words: "HBM 7.2 TB/s". */
export function rateTitle(name, rate) {
  return `${title(name)} ${show(rate, resource(name).per)}`;
}

/**
 * The machine that a report's JSON, or the catalogue in the page, describes: `resolve` gives the ceiling that work on a resource runs
 * under (its own, or the first rated one of its fallbacks), `ridge` FLOP/B, and `bestMatrix` the peak that a chart draws by default.
 */
export function machine(info) {
  const rated = new Map(info.ceilings.map((one) => [one.resource, one]));
  const resolved = new Map();
  // One direction of a link has the rate of the link and is a unit of its own.
  const directed = (name) => {
    const [link] = name.split(".");
    return link !== name && resource(name).isLink && rated.has(link) ? { ...rated.get(link), resource: name } : null;
  };
  // Whether work runs on the vector unit: it is not a product, or no matrix unit of this machine has the product's format.
  const hasMatrix = info.ceilings.some((one) => resource(one.resource).unit === "matrix");
  const lacks = (name) => {
    if (resource(name).unit !== "matrix") return true;
    if (hasMatrix) return (VOCABULARY.lacking[name] ?? []).some((one) => rated.has(one));
    return typeof info.matrix_unit === "boolean" ? !info.matrix_unit : info.kind === "cpu";
  };
  // A product in several passes runs at that part of its format's rate: "matrix/bf16x3".
  const repeated = (name) => {
    const [, base, passes] = /^(matrix\/\w+?)x(\d+)$/.exec(name) ?? [];
    if (base === undefined) return null;
    const once = rated.get(base);
    if (once) return { ...once, rate: once.rate / Number(passes) };
    return lacks(base) ? (rated.get("vector/fp32") ?? null) : null;
  };
  // A TPU's transcendental functions run on a unit of their own.
  const apart = (one) => (info.kind === "tpu" && one?.resource in VOCABULARY.tpu_units ? { ...one, resource: VOCABULARY.tpu_units[one.resource] } : one);
  const rounded = (name) => (info.kind === "tpu" && name in VOCABULARY.tpu_fallbacks ? [VOCABULARY.tpu_fallbacks[name]] : []);
  const resolve = (name) => {
    if (!resolved.has(name)) {
      const others = (FALLBACKS.get(name) ?? []).filter((one) => lacks(name) || resource(one).unit === "matrix");
      const chain = [name, ...rounded(name), ...others];
      resolved.set(name, apart(rated.get(chain.find((one) => rated.has(one)))) ?? directed(name) ?? repeated(name));
    }
    return resolved.get(name);
  };
  const rate = (name) => resolve(name)?.rate ?? null;
  const ridge = (compute, level = "hbm") => (rate(compute) === null || rate(level) === null ? null : rate(compute) / rate(level));
  const compute = info.ceilings.filter((one) => resource(one.resource).isCompute);
  return {
    ...info,
    title: info.title || info.name,
    launch_latency_s: info.launch_latency_s ?? VOCABULARY.latency.launch_s,
    resolve,
    rate,
    ridge,
    bestMatrix: rated.get("matrix/bf16") ?? rated.get("matrix/fp16") ?? most(compute, (one) => one.rate),
  };
}

/** The first of some values for which a number is largest; `null` when there are none. */
function most(values, number) {
  return values.reduce((best, one) => (best !== null && number(best) >= number(one) ? best : one), null);
}

/** The same machine with rates times a factor: by resource, else by unit, else `compute` for arithmetic and `bandwidth` for bytes. */
export function scaled(one, factors) {
  const ceilings = one.ceilings.map((ceiling) => {
    const { unit, isCompute, measure } = resource(ceiling.resource);
    const whole = isCompute ? factors.compute : measure === "B" ? factors.bandwidth : 1;
    const factor = factors[ceiling.resource] ?? factors[unit] ?? whole ?? 1;
    return factor === 1 ? ceiling : { ...ceiling, rate: ceiling.rate * factor, factor };
  });
  return machine({ ...one, ceilings });
}

/**
 * Places a cost on a machine, beside a measured time if there is one. Both are totals over all launches. `known` holds the known parts of
 * amounts that are unknown as a whole; `compute` is the arithmetic that takes the most time, `peak` the ceiling most of it runs under.
 */
export function place(cost, one, { time_s = null, launches = 1, level = "hbm", known = {} } = {}) {
  const [times, peaks, unrated] = [new Map(), new Map(), []];
  const roofs = new Set();
  let heaviest = null;
  for (const name of Object.keys(cost).sort()) {
    const amount = cost[name] ?? known[name];
    if (!amount) continue;
    const ceiling = one.resolve(name);
    if (ceiling === null) {
      unrated.push(name);
      continue;
    }
    const seconds = amount / ceiling.rate;
    roofs.add(ceiling.resource);
    add(times, resource(ceiling.resource).unit, seconds);
    if (isArithmetic(name)) add(peaks, ceiling.resource, seconds);
    if (resource(name).isCompute && (heaviest === null || seconds > heaviest.seconds)) heaviest = { seconds, name };
  }
  const ordered = [...times].sort(([u, s], [v, t]) => t - s || byTie(u, v));
  const floor_s = ordered.length ? ordered[0][1] : 0;
  const hidden = unrated.some((name) => mayBind(name, one)); // a unit without a rate that may take the longest: no bound
  const unit = floor_s > 0 && !hidden ? ordered[0][0] : null;
  const unknown = Object.keys(cost).filter((name) => cost[name] === null).sort();
  const minimum_s = unknown.length ? Math.max(floor_s, time_s) : floor_s; // an unknown minimum is at most the measured time
  const each = launches || 1;
  const blank = !ordered.length && (unrated.length || unknown.length); // nothing known gives a time, so there is no minimum
  const [flops, moved] = [added(cost, isArithmetic), bytesOf(cost, level)];
  const compute = heaviest?.name ?? null;
  return {
    times: Object.fromEntries(ordered), floor_s: blank ? null : floor_s,
    serial_s: blank ? null : ordered.reduce((sum, [, seconds]) => sum + seconds, 0), unit,
    bound: !hidden && time_s !== null && latencyBinds(one.launch_latency_s, minimum_s / each, time_s / each) ? LATENCY : unit,
    efficiency: time_s && unit ? floor_s / time_s : null,
    utilization: time_s ? Object.fromEntries(ordered.map(([name, seconds]) => [name, seconds / time_s])) : {},
    attainable: flops && unit ? flops / floor_s : null, achieved: flops !== null && time_s ? flops / time_s : null,
    intensity: flops === null || !moved ? null : flops / moved, ridge: compute === null ? null : one.ridge(compute, level),
    compute, peak: heaviestKey(peaks), roofs: [...roofs].sort(), unrated, unknown,
  };
}

/** Whether work on an unrated resource may take the longest: `placement.may_bind`. */
function mayBind(name, one) {
  const { unit, isCompute, isLink, measure } = resource(name);
  if (isCompute) return unit === "matrix" || !one.ceilings.some((ceiling) => resource(ceiling.resource).isCompute);
  return name === "hbm" || (isLink && measure === "B");
}

/** Adds an amount to that of a key. */
export function add(amounts, key, amount) {
  amounts.set(key, (amounts.get(key) ?? 0) + amount);
}

/** The first key with the largest amount; `null` when there is none. */
export function heaviestKey(amounts) {
  return most([...amounts.keys()], (key) => amounts.get(key));
}

/** At the ridge, where two times are equal, the compute unit is named: on the ridge is on the roof. */
function byTie(one, other) {
  return resource(other).isCompute - resource(one).isCompute || (one < other ? -1 : 1);
}

/** Whether latency is the bound: a minimum time below one launch, and a time below five of them. */
function latencyBinds(latency, floor_s, time_s) {
  return floor_s < latency && time_s < VOCABULARY.latency.times * latency;
}

function isArithmetic(name) {
  return resource(name).isArithmetic;
}

/** Bytes over one memory level or link, its directions summed; `null` when any of them is unknown. */
export function bytesOf(cost, level) {
  return added(cost, (name) => {
    const { unit, measure } = resource(name);
    return measure === "B" && (unit === level || unit.startsWith(`${level}.`));
  });
}

/** The sum of some amounts; `null` when one of them is unknown. */
function added(cost, mine) {
  let sum = 0;
  for (const name of Object.keys(cost).sort()) {
    if (!mine(name)) continue;
    if (cost[name] === null) return null;
    sum += cost[name];
  }
  return sum;
}

/** The cost of an op or of a point of a report. */
export function costOf({ work, bytes, hops }) {
  return { ...work, ...bytes, ...hops };
}
