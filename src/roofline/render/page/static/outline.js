/** The outline of figures that change in steps. */

export const TALL = 100; // units of a drawing, whatever its pixels

/** The area below a line of steps, equal neighbours as one. */
export function outline(tops) {
  let path = `M0 ${TALL}`;
  let last = null;
  for (const [bucket, top] of tops.entries()) {
    const y = Math.round(10 * (TALL - Math.min(top, TALL))) / 10;
    if (y !== last) path += `H${bucket}V${y}`;
    last = y;
  }
  return `${path}H${tops.length}V${TALL}Z`;
}
