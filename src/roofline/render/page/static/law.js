/**
 * The law of the roofline, equal to `placement.py` and `machine.py` and tested against them on shared vectors.
 *
 *     time on unit u   t_u = sum over its resources r of cost[r] / rate[r]
 *     floor            T_min = max over units t_u          (perfect overlap)
 *     serial time      T_max = sum over units t_u          (no overlap)
 *     efficiency       T_min / measured time               (1.0 is on the roof)
 */

import { parse, show } from "#page/units.js";

/**
 * @typedef {Object} Resource  One kind of service by one unit of hardware.
 * @property {string} name  `unit` or `unit/kind`
 * @property {string} unit
 * @property {string} kind  a number format, "transcendental", "hop" or ""
 * @property {"FLOP"|"B"|"hop"} measure
 * @property {string} per  what its rate is counted in
 * @property {boolean} isCompute
 * @property {boolean} isLink
 * @property {boolean} isMemory
 * @property {boolean} isArithmetic  compute that counts as FLOP: not transcendentals
 */

/**
 * @typedef {Object} Ceiling  A rate and where it comes from, as the report's JSON has it.
 * @property {string} resource
 * @property {number} rate
 * @property {string} [per]
 * @property {string} [provenance]
 * @property {string} [citation]
 * @property {string} [note]
 * @property {number|null} [peak]
 * @property {number} [factor]  by how much `scaled` changed it, where it did
 */

/**
 * @typedef {Object} Machine
 * @property {string} name
 * @property {string} title
 * @property {number} launch_latency_s
 * @property {Ceiling[]} ceilings
 * @property {(resource: string) => Ceiling|null} ceiling  of exactly this resource
 * @property {(resource: string) => Ceiling|null} resolve  its own, or the first rated one of its declared fallbacks
 * @property {(resource: string) => number|null} rate  of the resolved ceiling
 * @property {(compute: string, level?: string) => number|null} ridge  in FLOP/B
 * @property {Ceiling|null} bestMatrix  the roof a chart draws when nobody names one
 */

/** @typedef {Record<string, number|null>} Cost  Amounts by resource; `null` is unknown, absent is 0. */

/**
 * @typedef {Object} Placement
 * @property {Record<string, number>} times  seconds on each unit, longest first
 * @property {number} floor_s
 * @property {number} serial_s
 * @property {string|null} unit  with the longest time
 * @property {string|null} bound  a unit, "latency", or null when it asks for nothing
 * @property {number|null} efficiency  never clipped
 * @property {Record<string, number>} utilization
 * @property {number|null} flops
 * @property {number|null} attainable  FLOP/s
 * @property {number|null} achieved  FLOP/s
 * @property {number|null} intensity  FLOP/B over the level
 * @property {number|null} ridge  FLOP/B of the arithmetic that takes the most time, over the level
 * @property {string|null} compute  the resource of the arithmetic that takes the most time
 * @property {string[]} roofs  rated resources that the work ran under
 * @property {string[]} unrated
 * @property {string[]} unknown
 */

export const LATENCY = "latency"; // the bound of work too small to fill the time of its own launch
const LATENCY_TIMES = 5;
const LAUNCH_LATENCY_S = parse("2 µs", "s");

const COMPUTE_UNITS = ["matrix", "vector", "compute"];
const LINK_UNITS = ["ici", "nvlink", "xgmi", "neuronlink", "xelink", "roce", "ethernet", "c2c", "dcn", "pcie"];

// Where work goes when the unit it asks for has no rate; the same table as in machine.py.
const FALLBACKS = Object.freeze({
  "matrix/tf32": ["matrix/fp32", "vector/fp32"],
  "matrix/fp32": ["vector/fp32"],
  "matrix/fp64": ["vector/fp64"],
  "matrix/bf16": ["vector/bf16", "vector/fp32"],
  "matrix/fp16": ["vector/fp16", "vector/fp32"],
  "vector/bf16": ["vector/fp32"],
  "vector/fp16": ["vector/fp32"],
  "vector/fp8": ["vector/fp32"],
  "vector/fp4": ["vector/fp32"],
  "vector/int8": ["vector/int32", "vector/fp32"],
  "vector/int16": ["vector/int32", "vector/fp32"],
  "vector/int32": ["vector/fp32"],
  "vector/int64": ["vector/int32", "vector/fp32"],
  "vector/int4": ["vector/int32", "vector/fp32"],
  "vector/tf32": ["vector/fp32"],
  "vector/transcendental": ["vector/fp32"],
});

/** @type {Map<string, Resource>} */
const met = new Map();

/**
 * What follows from a resource's name, worked out once.
 * @param {string} name
 * @returns {Resource}
 */
export function resource(name) {
  let found = met.get(name);
  if (!found) met.set(name, (found = describe(name)));
  return found;
}

function describe(name) {
  const slash = name.indexOf("/");
  const unit = slash < 0 ? name : name.slice(0, slash);
  const kind = slash < 0 ? "" : name.slice(slash + 1);
  const isCompute = COMPUTE_UNITS.includes(unit);
  const isLink = LINK_UNITS.includes(unit.split(".")[0]);
  const measure = isCompute ? "FLOP" : kind === "hop" ? "hop" : "B";
  return Object.freeze({
    name, unit, kind, measure, per: `${measure}/s`,
    isCompute, isLink, isMemory: !isCompute && !isLink, isArithmetic: isCompute && kind !== "transcendental",
  });
}

const SPELLED = { nvlink: "NVLink", pcie: "PCIe", neuronlink: "NeuronLink", xelink: "Xe Link", roce: "RoCE", xgmi: "xGMI" };
const WORDS = ["matrix", "vector", "compute", "host", "ethernet", LATENCY];

/**
 * A resource as people write it: "HBM", "matrix bf16", "VMEM read".
 * @param {string} name
 * @returns {string}
 */
export function title(name) {
  const { unit, kind } = resource(name);
  const [first, ...rest] = unit.split(".");
  const spelled = Object.hasOwn(SPELLED, first) ? SPELLED[first] : WORDS.includes(first) ? first : first.toUpperCase();
  return [spelled, rest.join("."), kind].filter(Boolean).join(" ");
}

/**
 * A roof's part in words: "HBM 7.2 TB/s".
 * @param {string} name
 * @param {number} rate
 * @returns {string}
 */
export function rateTitle(name, rate) {
  return `${title(name)} ${show(rate, resource(name).per)}`;
}

/**
 * The machine that a report's JSON, or the embedded catalogue, describes.
 * @param {{name: string, title?: string, launch_latency_s?: number|null, ceilings: Ceiling[]}} info
 * @returns {Machine}
 */
export function machine(info) {
  const rated = new Map(info.ceilings.map((one) => [one.resource, one]));
  const resolved = new Map();
  const ceiling = (name) => rated.get(name) ?? null;
  // One direction of a link has the rate of the link, which is one direction's, and is a unit of its own.
  const directed = (name) => {
    const [link, direction] = name.split(".");
    return direction && LINK_UNITS.includes(link) && rated.has(link) ? { ...rated.get(link), resource: name } : null;
  };
  const resolve = (name) => {
    if (!resolved.has(name)) {
      const chain = [name, ...(Object.hasOwn(FALLBACKS, name) ? FALLBACKS[name] : [])];
      resolved.set(name, chain.map(ceiling).find(Boolean) ?? directed(name));
    }
    return resolved.get(name);
  };
  const rate = (name) => resolve(name)?.rate ?? null;
  const ridge = (compute, level = "hbm") => {
    const [peak, bandwidth] = [rate(compute), rate(level)];
    return peak === null || bandwidth === null ? null : peak / bandwidth;
  };
  return {
    ...info,
    title: info.title || info.name,
    launch_latency_s: info.launch_latency_s ?? LAUNCH_LATENCY_S,
    ceiling, resolve, rate, ridge,
    bestMatrix: ceiling("matrix/bf16") ?? ceiling("matrix/fp16") ?? fastest(info.ceilings),
  };
}

function fastest(ceilings) {
  const compute = ceilings.filter((one) => resource(one.resource).isCompute);
  return compute.reduce((best, one) => (best && best.rate >= one.rate ? best : one), null);
}

/**
 * The same machine with rates times a factor: by resource, else by unit, else `compute` for arithmetic and `bandwidth` for bytes.
 * @param {Machine} one
 * @param {Record<string, number>} factors
 * @returns {Machine}
 */
export function scaled(one, factors) {
  const ceilings = one.ceilings.map((ceiling) => {
    const factor = factorOf(resource(ceiling.resource), factors);
    if (factor === 1) return ceiling;
    return { ...ceiling, rate: ceiling.rate * factor, factor: (ceiling.factor ?? 1) * factor };
  });
  return machine({ ...one, ceilings });
}

function factorOf({ name, unit, isCompute, measure }, factors) {
  const whole = isCompute ? factors.compute : measure === "B" ? factors.bandwidth : undefined;
  const factor = factors[name] ?? factors[unit] ?? whole ?? 1;
  return Number.isFinite(factor) && factor > 0 ? factor : 1;
}

/**
 * Hold a cost against a machine, and against a measured time if there is one. Both are totals over all launches.
 * @param {Cost} cost
 * @param {Machine} one
 * @param {{time_s?: number|null, launches?: number, level?: string, least?: Cost}} [options]
 *   `least` holds the known parts of amounts that are unknown as a whole
 * @returns {Placement}
 */
export function place(cost, one, { time_s = null, launches = 1, level = "hbm", least = {} } = {}) {
  const times = new Map();
  const [roofs, unrated] = [new Set(), []];
  let heaviest = null;
  for (const name of Object.keys(cost).sort()) {
    const amount = cost[name] ?? least[name];
    if (!amount) continue;
    const ceiling = one.resolve(name);
    if (ceiling === null) {
      unrated.push(name);
      continue;
    }
    const seconds = amount / ceiling.rate;
    const { unit } = resource(ceiling.resource);
    roofs.add(ceiling.resource);
    times.set(unit, (times.get(unit) ?? 0) + seconds);
    if (resource(name).isCompute && (heaviest === null || seconds > heaviest.seconds)) heaviest = { seconds, name };
  }
  const ordered = [...times].sort(([u, s], [v, t]) => t - s || byTie(u, v));
  const floor_s = ordered.length ? ordered[0][1] : 0;
  const unit = floor_s > 0 ? ordered[0][0] : null;
  const flops = flopsOf(cost);
  const compute = heaviest?.name ?? null;
  return {
    times: Object.fromEntries(ordered),
    floor_s,
    serial_s: ordered.reduce((sum, [, seconds]) => sum + seconds, 0),
    unit,
    bound: time_s !== null && launchBinds(one, floor_s, time_s, launches || 1) ? LATENCY : unit,
    efficiency: time_s && unit ? floor_s / time_s : null,
    utilization: time_s ? Object.fromEntries(ordered.map(([name, seconds]) => [name, seconds / time_s])) : {},
    flops,
    attainable: flops && floor_s ? flops / floor_s : null,
    achieved: flops !== null && time_s ? flops / time_s : null,
    intensity: intensityOf(cost, level),
    ridge: compute === null ? null : one.ridge(compute, level),
    compute,
    roofs: [...roofs].sort(),
    unrated,
    unknown: Object.keys(cost).filter((name) => cost[name] === null).sort(),
  };
}

/** At the ridge, where two times are equal, the compute unit is named: on the ridge is on the roof. */
function byTie(one, other) {
  const [mine, theirs] = [!COMPUTE_UNITS.includes(one), !COMPUTE_UNITS.includes(other)];
  return mine - theirs || (one < other ? -1 : one > other ? 1 : 0);
}

/** Whether latency is the bound: a floor below one launch, and a time below five of them. */
function launchBinds(one, floor_s, time_s, launches) {
  const latency = one.launch_latency_s;
  return floor_s / launches < latency && time_s / launches < LATENCY_TIMES * latency;
}

/**
 * All arithmetic, transcendentals apart; `null` if any of it is unknown.
 * @param {Cost} cost
 * @returns {number|null}
 */
export function flopsOf(cost) {
  return added(cost, (name) => resource(name).isArithmetic);
}

/**
 * Bytes over one memory level or link, its directions summed; `null` when any of them is unknown.
 * @param {Cost} cost
 * @param {string} level
 * @returns {number|null}
 */
export function bytesOf(cost, level) {
  return added(cost, (name) => {
    const { unit, measure } = resource(name);
    return measure === "B" && (unit === level || unit.startsWith(`${level}.`));
  });
}

function added(cost, mine) {
  let sum = 0;
  for (const name of Object.keys(cost).sort()) {
    if (!mine(name)) continue;
    if (cost[name] === null) return null;
    sum += cost[name];
  }
  return sum;
}

/**
 * FLOP per byte over one memory level or link; `null` when it is unknown or no byte crosses there.
 * @param {Cost} cost
 * @param {string} level
 * @returns {number|null}
 */
export function intensityOf(cost, level) {
  const [flops, moved] = [flopsOf(cost), bytesOf(cost, level)];
  return flops === null || !moved ? null : flops / moved;
}

/**
 * The cost of an op or of a point of a report.
 * @param {{work?: Cost, bytes?: Cost, hops?: Cost}} op
 * @returns {Cost}
 */
export function costOf(op) {
  return { ...op.work, ...op.bytes, ...op.hops };
}

/**
 * The known parts of an op's unknown amounts. The report gives such an amount as `null`, but the seconds of its known part are in
 * the unit's time; what the other resources of that unit do not explain is that part.
 * @param {Object} op  or a point, as the report has it
 * @param {Machine} own  the machine that the report was made with
 * @returns {Cost}
 */
export function leastOf(op, own) {
  const cost = costOf(op);
  const least = {};
  for (const name of Object.keys(cost).filter((each) => cost[each] === null)) {
    const ceiling = own.resolve(name);
    if (!ceiling) continue;
    const { unit } = resource(ceiling.resource);
    const whole = op.times?.[unit] ?? (op.utilization?.[unit] ?? 0) * (op.time_s ?? 0);
    const explained = place({ ...cost, ...least }, own).times[unit] ?? 0;
    const hidden = whole - explained;
    if (hidden > whole * ROUNDING) least[name] = hidden * ceiling.rate;
  }
  return least;
}

const ROUNDING = 1e-9; // of a time: less than this is no part of it
