/** Gestures on a chart: wheel and pinch zoom, dragging pans or draws a box, a click selects, a double click resets. */

import { pan, zoom } from "#page/scale.js";

const CLICK = 4; // pixels of movement that still make a click
const [FASTEST, PER_PIXEL, PER_LINE] = [120, 0.0022, 16]; // of the wheel: pixels an event counts for at most, zoom a pixel, pixels a line

/**
 * Tells a chart what happens on its surface. `chart` answers `ready()`, `plot()`, `view()`, `value(x, y)` in base units and `boxing()`,
 * and is told `move(window)`, `moved()`, `draw(box | null)`, `boxed(kind, box, event)`, `hover(x, y)`, `leave()`, `click(event, x, y)`
 * and `again(x, y)`.
 */
export function gestures(surface, chart) {
  const hands = new Map(); // pointers that are down
  let grip = null;
  const where = (event) => {
    const { left, top } = surface.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };

  surface.addEventListener(
    "wheel",
    (event) => {
      if (!chart.ready()) return;
      event.preventDefault();
      const pixels = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? PER_LINE : 1);
      const factor = Math.exp(Math.max(-FASTEST, Math.min(FASTEST, pixels)) * PER_PIXEL);
      chart.move(zoom(chart.view(), ...chart.value(...where(event)), factor));
    },
    { passive: false },
  );

  surface.addEventListener("pointerdown", (event) => {
    if (!chart.ready() || event.button > 0) return;
    surface.setPointerCapture?.(event.pointerId);
    const [x, y] = where(event);
    hands.set(event.pointerId, [x, y]);
    const kind = event.altKey ? "pick" : event.shiftKey || chart.boxing() ? "box" : "pan";
    grip = { x, y, view: chart.view(), moved: false, kind, box: null };
    if (hands.size === 2) {
      const centre = middle(hands);
      grip = { ...grip, kind: "pinch", moved: true, apart: spread(hands), centre, held: chart.value(...centre) };
    }
  });

  surface.addEventListener("pointermove", (event) => {
    const [x, y] = where(event);
    if (!grip) {
      if (event.pointerType !== "touch") chart.hover(x, y);
      return;
    }
    hands.set(event.pointerId, [x, y]);
    if (grip.kind === "pinch") pinch();
    else if (grip.moved || Math.hypot(x - grip.x, y - grip.y) >= CLICK) drag(x, y);
  });

  function pinch() {
    if (hands.size < 2) return;
    const { w, h } = chart.plot();
    const [x, y] = middle(hands);
    const zoomed = zoom(grip.view, ...grip.held, grip.apart / Math.max(1, spread(hands)));
    chart.move(pan(zoomed, (x - grip.centre[0]) / w, (grip.centre[1] - y) / h));
  }

  function drag(x, y) {
    if (!grip.moved) chart.leave();
    grip.moved = true;
    const plot = chart.plot();
    if (grip.kind === "pan") {
      surface.classList.add("dragging");
      chart.move(pan(grip.view, (x - grip.x) / plot.w, (grip.y - y) / plot.h));
    } else {
      grip.box = bounded(grip.x, grip.y, x, y, plot);
      chart.draw(grip.box);
    }
  }

  const release = (event) => {
    if (!grip) return;
    hands.delete(event.pointerId);
    surface.classList.remove("dragging");
    const done = grip;
    if (done.kind === "pinch" && hands.size) return;
    grip = null;
    if (done.box) chart.draw(null);
    if (event.type === "pointercancel") return;
    if (!done.moved) chart.click(event, ...where(event));
    else if (done.box) chart.boxed(done.kind, done.box, event);
    else chart.moved();
  };
  surface.addEventListener("pointerup", release);
  surface.addEventListener("pointercancel", release);
  surface.addEventListener("pointerleave", () => grip || chart.leave());
  surface.addEventListener("dblclick", (event) => chart.again(...where(event)));
}

function spread(hands) {
  const [[x0, y0], [x1, y1]] = [...hands.values()];
  return Math.hypot(x1 - x0, y1 - y0);
}

function middle(hands) {
  const [[x0, y0], [x1, y1]] = [...hands.values()];
  return [(x0 + x1) / 2, (y0 + y1) / 2];
}

/** The box between two corners, inside an area. */
function bounded(x0, y0, x1, y1, { x, y, w, h }) {
  const across = [x0, x1].map((one) => Math.max(x, Math.min(x + w, one))).sort((one, other) => one - other);
  const along = [y0, y1].map((one) => Math.max(y, Math.min(y + h, one))).sort((one, other) => one - other);
  return { x0: across[0], y0: along[0], x1: across[1], y1: along[1] };
}
