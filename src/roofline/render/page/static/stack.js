/** A time as one bar, stacked by cause: the minimum of the needed work, then what is lost to what. */

import { causeColour } from "#page/colours.js";
import { fill, h } from "#page/dom.js";
import { percent, show } from "#page/units.js";
import { VOCABULARY } from "#page/vocabulary.js";

export const VISIBLE = VOCABULARY.named_share; // of the whole: a smaller part is not in the legend

/** What a part of a time is: "lost to memory", "the minimum", or, of minimum times, "memory-bound". */
export function partTitle(cause, minimum = false) {
  const part = VOCABULARY.causes[cause];
  return (minimum && part?.of_minimum) || (part?.title ?? cause);
}

/** One bar: `parts` are [{cause, seconds}], `whole` the seconds of its full width. */
export function stack({ parts, whole, theme, minimum = false, label = null }) {
  const bar = h("div", { class: "stack", role: "img", "aria-label": label ?? described(parts, whole, minimum) });
  for (const { cause, seconds } of parts) {
    const part = h("span", { class: "stack-part", "data-cause": cause, title: `${partTitle(cause, minimum)}: ${show(seconds, "s", 3)} (${percent(seconds / whole)})` });
    part.style.width = `${(100 * seconds) / whole}%`;
    part.style.background = causeColour(theme, cause);
    bar.append(part);
  }
  return bar;
}

function described(parts, whole, minimum) {
  return parts.map(({ cause, seconds }) => `${partTitle(cause, minimum)} ${show(seconds, "s", 3)}, ${percent(seconds / whole)}`).join("; ");
}

/** The legend of a bar: what each colour is, with its seconds (after those `before`) and share. */
export function stackLegend({ parts, whole, theme, minimum = false, testid = null }) {
  return h("ul", { class: "stack-legend", "data-testid": testid },
    parts.filter(({ seconds, before }) => before !== undefined || seconds === null || seconds >= VISIBLE * whole).map(({ cause, seconds, before }) => {
      const swatch = h("span", { class: "swatch square", "aria-hidden": "true" });
      swatch.style.background = causeColour(theme, cause);
      const share = seconds === null ? "" : ` ${percent(seconds / whole)}`;
      return h("li", { "data-cause": cause, title: VOCABULARY.causes[cause]?.meaning ?? null },
        swatch,
        h("span", { text: partTitle(cause, minimum) }),
        seconds !== null && h("b", { text: before === undefined ? show(seconds, "s", 3) : `${show(before, "s", 3)} → ${show(seconds, "s", 3)}` }),
        h("span", { class: "quiet", text: share }),
      );
    }),
  );
}

/** Fills an element with a bar and its legend. */
export function fillStack(element, scene) {
  return fill(element, stack(scene), stackLegend(scene));
}
