/** What the host did while a device was idle: a thin strip above the device's, as high in each bucket as that is idle. */

import { hostColour } from "#page/colours.js";
import { drawn, h, named, stretched } from "#page/dom.js";
import { TALL } from "#page/outline.js";
import { VISIBLE } from "#page/stack.js";
import { percent } from "#page/units.js";


/** What the host did in a bucket: the place of the reason in the report, or `null`. */
export const hostAt = (lane, bucket) => lane.host?.[bucket] ?? null;

/** The strip of one device. */
export function hostStrip(lane, theme, height) {
  const idle = lane.causes.idle ?? [];
  const paths = new Map();
  for (const [bucket, place] of (lane.host ?? []).entries()) {
    const high = place === null ? 0 : Math.round((TALL * (idle[bucket] ?? 0)) / lane.bucket_s);
    if (high) paths.set(place, `${paths.get(place) ?? ""}M${bucket} ${TALL}v${-high}h1v${high}z`);
  }
  const parts = [...paths].map(([place, d]) => drawn("path", { d, fill: hostColour(theme, place), "data-reason": String(place) }));
  const drawing = stretched(lane.at_roof_s.length, TALL, { class: "host-lane" }, parts);
  drawing.style.height = `${height}px`;
  return drawing;
}

/** The reasons that occur in some lane, with their shares of the time shown, the longest first. */
export function hostLegend(words, lanes, theme) {
  const whole = lanes.reduce((sum, { time_s }) => sum + time_s, 0);
  const sums = new Map();
  for (const lane of lanes) {
    for (const [bucket, place] of (lane.host ?? []).entries()) {
      if (place !== null) sums.set(place, (sums.get(place) ?? 0) + (lane.causes.idle?.[bucket] ?? 0));
    }
  }
  const shown = [...sums].filter(([, seconds]) => seconds >= VISIBLE * whole).sort(([, one], [, other]) => other - one);
  return shown.map(([place, seconds]) => {
    const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = hostColour(theme, place);
    return h("li", { class: "entry", "data-reason": String(place) }, swatch, named(words[place]), h("span", { class: "quiet", text: percent(seconds / whole) }));
  });
}
