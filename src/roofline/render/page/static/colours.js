/** Colours, safe for colour blindness and the same as in the figures (`plot/style.py`), and how groups get them. */

import { GROUPINGS } from "#page/groups.js";
import { LATENCY, resource, title } from "#page/law.js";
import { VOCABULARY } from "#page/vocabulary.js";

const LIGHT = ["#0072B2", "#D55E00", "#009E73", "#B0508C", "#2B2470", "#7A1F3D"];
const DARK = ["#56B4E9", "#E8702A", "#009E73", "#D98CB8", "#F0E442", "#3C7DD9"];

// Of what the host does, above strips that have the colours above.
const HOST = { light: ["#A67C00", "#6B7F23", "#8B5A2B", "#00808A"], dark: ["#F0C54A", "#A9C46C", "#D2A679", "#5BC8D0"] };

/** The two themes; text has a contrast of at least 4.5 against the background, lines of at least 3. */
export const THEMES = Object.freeze({
  light: theme("light", "#FFFFFF", "#1B1F24", "#5B636D", "#E7EAEE", "#CDD3DA", LIGHT),
  dark: theme("dark", "#14171B", "#ECEFF3", "#A3ABB5", "#2A3038", "#4A545F", DARK),
});

function theme(name, background, ink, muted, grid, edge, series) {
  const [memory, compute, good] = series;
  return Object.freeze({ name, background, ink, muted, grid, edge, series: Object.freeze(series), memory, compute, good });
}

/** What dots can be coloured by. */
export const COLOURINGS = ["bound", "category", "dtype", "unit", "phase"].map((key) => GROUPINGS.find((one) => one.key === key));

/** The colour of work bound by a unit of hardware: the same unit looks the same in every figure. */
export function ofUnit(theme, unit) {
  if (!unit || unit === LATENCY) return theme.muted;
  if (unit === "matrix" || unit === "compute") return theme.compute;
  if (unit === "vector") return theme.series[3];
  if (unit === "hbm") return theme.memory;
  return resource(unit).isLink ? theme.good : theme.series[4];
}

/** The colour of a part of a time: `causes` names it. */
export function causeColour(theme, cause) {
  const colour = VOCABULARY.causes[cause]?.colour ?? "muted";
  return theme.series[colour] ?? theme[colour];
}

/** The colour of what the host did while a device was idle, by its place among the reasons; those beyond the palette share a grey. */
export function hostColour(theme, place) {
  return HOST[theme.name][place] ?? theme.muted;
}

/**
 * A colour for each group of marks, the heaviest group first; groups beyond the palette, and those without a name, share one grey.
 *
 * Hand over the marks of the whole report, not only those in sight: then a group keeps its colour whatever the filter.
 */
export function assign(marks, by, theme) {
  const groups = new Map();
  for (const mark of marks) {
    const group = mark[by] ?? "";
    const { weight, count } = groups.get(group) ?? { weight: 0, count: 0 };
    groups.set(group, { weight: weight + mark.weight, count: count + 1 });
  }
  const ordered = [...groups].sort(([one, a], [other, b]) => b.weight - a.weight || (one < other ? -1 : 1));
  const ofHardware = by === "bound" || by === "unit";
  const colours = new Map();
  for (const [group] of ordered) {
    const usual = !group ? theme.muted : ofHardware ? ofUnit(theme, group) : theme.series[0];
    const used = new Set(colours.values());
    const free = theme.series.find((colour) => !used.has(colour)) ?? theme.muted;
    colours.set(group, usual === theme.muted || !used.has(usual) ? usual : free);
  }
  const legend = ordered.map(([group, sum]) => ({ group, title: !group ? NAMELESS[by] : ofHardware ? title(group) : group, colour: colours.get(group), ...sum }));
  // A roof has the colour of the dots that it bounds; where dots are coloured by something else, no colour of theirs.
  const roofColour = (name) => {
    const { unit, kind } = resource(name);
    if (ofHardware) return colours.get(unit) ?? ofUnit(theme, unit);
    return (by === "dtype" && kind && colours.get(kind)) || theme.muted;
  };
  return { colours, colourOf: (mark) => colours.get(mark[by] ?? "") ?? theme.muted, roofColour, legend };
}

const NAMELESS = { bound: "no known bound", category: "no category", dtype: "no arithmetic", unit: "no arithmetic", phase: "unknown phase" };
