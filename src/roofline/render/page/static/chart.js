/**
 * One roofline chart: a canvas for axes and roofs, layers of dots, a canvas for what follows the mouse, and the gestures over them.
 *
 * Wheel or pinch zooms, dragging pans, Shift and dragging (or the box button) zooms into a box, Alt and dragging selects a box,
 * double click resets. Keys: arrows go from dot to dot in order of time, Enter selects, + and - zoom, 0 resets, Shift and arrows pan.
 */

import { roofLines } from "#page/chart_model.js";
import { announce, framed, h } from "#page/dom.js";
import { gestures } from "#page/gestures.js";
import { under as hit } from "#page/hits.js";
import { drawNames, drawRoofNames, placeNames } from "#page/labels.js";
import { LOOKS, layer, stamps } from "#page/layer.js";
import {
  LARGEST_DOT, axisTitles, byWeight, drawArrows, drawAxes, drawHiddenRoofs, drawProgram, drawRoofs, drawStrip, drawTwins, frame,
  drawOutliers, highestShare, inSight as inWindow, locate, outliers, prepared, scales,
} from "#page/paint.js";
import { clamp, box as boxWindow, gridIndex, pan, zoom } from "#page/scale.js";

const MARGIN = 0.4; // of the plot, painted on each side of it so that panning only pushes
const SETTLED_MS = 60; // without a movement, after which a gesture is over
const TELL_MS = 200; // the same, after which the state is updated

/**
 * `onwindow(window | null)` and `onselect(ids, extend)` are called on zooming and selecting; `card` shows what the mouse is over (see card.js).
 * @returns {{root, surface, show(scene), point(id | null), reveal(id), spot(id), reset(), zoomBy(factor), boxes(on)}}
 *   scene {model, colourOf(dot), roofColour(id), theme, window, selected: Set, names: boolean, ariaLabel}
 */
export function chart({ testid, label, onwindow, onselect, card }) {
  const base = h("canvas", { class: "base", "aria-hidden": "true" });
  const over = h("canvas", { class: "over", "aria-hidden": "true" });
  const onPlot = layer(h("canvas", { class: "dots", "aria-hidden": "true" }));
  const onStrip = layer(h("canvas", { class: "dots", "aria-hidden": "true" }));
  const plotClip = h("div", { class: "clip" }, onPlot.canvas);
  const surface = h(
    "div",
    { class: "surface", tabindex: "0", role: "application", "aria-roledescription": "roofline chart", "aria-label": label, "data-testid": testid },
    base,
    plotClip,
    onStrip.canvas,
    over,
  );
  const root = h("div", { class: "chart" }, surface);
  let scene = null;
  let place = null;
  let at = null;
  let dots = null;
  let stampOf = null;
  let looks = null; // of each dot: as usual, faint, or selected
  let painted = null; // where the layer of dots was painted: a reference point on screen, the window's shape, and the margins
  let family = "";
  let lines = [];
  let outside = []; // dots that the fitted window leaves out, as arrows at its edge
  let index = null; // of dots under the mouse, built when first asked for
  let names = [];
  let written = []; // round places that the names of roofs cover
  let view = null; // the window on screen; ahead of the state during a gesture
  let hovered = null;
  let pointed = null; // an id that something else on the page points to
  let cursor = -1; // where the keyboard is, in order of time
  let boxing = false;
  let marquee = null;
  let settled = 0;
  let moving = false;

  const font = () => (family ||= getComputedStyle(document.body).fontFamily);
  const style = () => ({ theme: scene.theme, roofColour: scene.roofColour, font: font(), lit: hovered?.roof?.id ?? null, moving });
  const ratio = () => Math.min(3, window.devicePixelRatio || 1);
  const inSight = (number) => inWindow(dots, number, place);
  /** What is drawn, for placing labels and for hit testing. */
  const drawn = () => ({ place, at, dots, lines, roofs: scene.model.roofs, program: scene.model.program, twins: scene.model.twins, grid, outside });

  function resize() {
    const { width, height } = surface.getBoundingClientRect();
    if (!width || !height || !scene) return;
    for (const canvas of [base, over]) {
      const [wide, high] = [Math.round(width * ratio()), Math.round(height * ratio())];
      if (canvas.width === wide && canvas.height === high) continue;
      canvas.width = wide;
      canvas.height = high;
    }
    place = frame(width, height, scene.model.strip.length > 0);
    const { plot } = place;
    Object.assign(plotClip.style, { left: `${plot.x}px`, top: `${plot.y}px`, width: `${plot.w}px`, height: `${plot.h}px` });
    stampOf = stamps(dots.colours, scene.theme, ratio());
    painted = null;
    draw();
    paintStrip();
    settle();
  }

  function draw() {
    if (!place) return;
    const share = highestShare(scene.model);
    const context = clear(base);
    at = scales(place, view, share);
    index = null;
    lines = roofLines(scene.model, view);
    drawAxes(context, place, at, view, { ...style(), ...axisTitles(scene.model) });
    if (place.strip) drawStrip(context, place, at, share, style());
    locate(dots, at, place);
    outside = view === scene.model.home ? outliers(dots, place) : [];
    drawRoofs(context, place, at, lines, style());
    pushDots();
    drawOver();
  }

  /** Moves the layer of dots with the window; paints it again when its margin is used up or the scale changed. */
  function pushDots() {
    const { plot } = place;
    const [across, along] = [at.x.at(1), at.y.at(1)]; // where (1, 1) of the plane is on screen, in or out of sight
    const shape = `${(view[1] / view[0]).toPrecision(9)} ${(view[3] / view[2]).toPrecision(9)}`;
    const moved = painted && [across - painted.across, along - painted.along];
    if (!painted || painted.shape !== shape || Math.abs(moved[0]) > painted.wide || Math.abs(moved[1]) > painted.high) {
      // While a window changes its shape from frame to frame a margin is never used; it is painted when things have settled.
      const margin = painted && painted.shape !== shape ? 0 : MARGIN;
      painted = { across, along, shape, wide: plot.w * margin, high: plot.h * margin };
      onPlot.paint(dots, (index) => index < dots.onPlot, {
        left: plot.x - painted.wide, top: plot.y - painted.high, width: plot.w + 2 * painted.wide,
        height: plot.h + 2 * painted.high, ratio: ratio(), stampOf, lookOf: looks,
      });
    }
    const pixel = (value) => Math.round(value * ratio()) / ratio();
    const [right, down] = [across - painted.across - painted.wide, along - painted.along - painted.high];
    onPlot.canvas.style.transform = `translate(${pixel(right)}px, ${pixel(down)}px)`;
  }

  /** Ops without FLOP do not move; a row of dots on the very edge needs some room around the strip. */
  function paintStrip() {
    const { strip } = place;
    onStrip.canvas.hidden = !strip;
    if (!strip) return;
    const area = { left: strip.x - LARGEST_DOT, top: strip.y - LARGEST_DOT, width: strip.w + 2 * LARGEST_DOT, height: strip.h + 2 * LARGEST_DOT };
    onStrip.paint(dots, (index) => index >= dots.onPlot, { ...area, ratio: ratio(), stampOf, lookOf: looks });
    Object.assign(onStrip.canvas.style, { left: `${area.left}px`, top: `${area.top}px` });
  }

  /** How each dot looks while some are selected. */
  function look() {
    const { selected } = scene;
    looks = selected.size ? Uint8Array.from(dots.all, (dot) => (dot.ops.some((id) => selected.has(id)) ? LOOKS.CHOSEN : LOOKS.FAINT)) : null;
    if (looks) dots.order.sort((one, other) => looks[one] - looks[other] || dots.size[other] - dots.size[one] || one - other);
  }

  const redraw = framed(draw);
  const redrawOver = framed(drawOver);

  function clear(canvas) {
    const context = canvas.getContext("2d");
    context.setTransform(ratio(), 0, 0, ratio(), 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    return context;
  }

  /** Everything above the dots: arrows, the program, names, the dot under the mouse or keyboard, and the box being drawn. */
  function drawOver() {
    const context = clear(over);
    if (!place || !at) return;
    const { theme } = scene;
    drawHiddenRoofs(context, place, at, lines, dots, style());
    if (scene.model.arrows.length) drawArrows(context, place, at, scene.model.arrows, style());
    drawTwins(context, place, at, scene.model.twins, scene.colourOf, style());
    drawOutliers(context, outside, dots, style());
    drawProgram(context, place, at, scene.model.program, style());
    written = drawRoofNames(context, drawn(), style());
    drawNames(context, drawn(), names, style());
    const lit = hovered?.dot ?? (pointed === null ? -1 : dots.all.findIndex((dot) => dot.ops.includes(pointed)));
    if (lit >= 0 && inSight(lit)) disc(context, lit, scene.colourOf(dots.all[lit]), theme.ink, 2.5);
    if (document.activeElement === surface && cursor >= 0 && inSight(byWeight(dots)[cursor])) ring(context, byWeight(dots)[cursor], theme.memory, 5);
    if (marquee) {
      const { x0, y0, x1, y1 } = marquee;
      context.strokeStyle = theme.memory;
      context.fillStyle = `${theme.memory}22`;
      context.lineWidth = 1;
      context.fillRect(x0, y0, x1 - x0, y1 - y0);
      context.strokeRect(x0, y0, x1 - x0, y1 - y0);
    }
  }

  function disc(context, number, fill, ink, wide) {
    context.beginPath();
    context.arc(dots.x[number], dots.y[number], dots.size[number], 0, 2 * Math.PI);
    context.fillStyle = fill;
    context.fill();
    context.lineWidth = wide;
    context.strokeStyle = ink;
    context.stroke();
  }

  function ring(context, number, colour, gap) {
    context.beginPath();
    context.arc(dots.x[number], dots.y[number], dots.size[number] + gap, 0, 2 * Math.PI);
    context.lineWidth = 2;
    context.strokeStyle = colour;
    context.stroke();
  }

  /** After a gesture: names are placed afresh, and dots painted with a margin. */
  function settle() {
    clearTimeout(settled);
    settled = setTimeout(() => {
      moving = false;
      if (scene && place) names = scene.names && !place.narrow ? placeNames(base.getContext("2d"), drawn(), written, font()) : [];
      if (painted && !painted.wide) painted = null; // now with a margin
      redraw();
    }, SETTLED_MS);
  }

  /** Where dots are, for the mouse. */
  function grid() {
    index ??= gridIndex(Array.from(dots.all, (_, number) => ({ x: dots.x[number], y: dots.y[number], r: dots.size[number] })));
    return index;
  }

  const under = (x, y) => (place && at ? hit(drawn(), x, y) : null);

  function hover(x, y) {
    const found = under(x, y);
    const same = found?.dot === hovered?.dot && found?.roof === hovered?.roof && found?.program === hovered?.program;
    const litRoof = hovered?.roof !== found?.roof;
    hovered = found;
    surface.classList.toggle("pointing", Boolean(found?.dot !== undefined || found?.program));
    if (found) card.show(found.dot === undefined ? found : { mark: dots.all[found.dot] }, surface, x, y);
    else card.hide();
    if (litRoof) redraw();
    else if (!same) redrawOver();
  }

  function leave() {
    const had = hovered;
    hovered = null;
    card.hide();
    if (had?.roof) redraw();
    else redrawOver();
  }

  function move(next, { final = false } = {}) {
    view = clamp(next, scene.model.reach);
    moving = true;
    redraw();
    settle();
    if (final) onwindow(view);
    else later();
  }

  let telling = 0;
  /** The address need not follow every pixel. */
  function later() {
    clearTimeout(telling);
    telling = setTimeout(() => onwindow(view), TELL_MS);
  }

  const value = (x, y) => [at.x.value(x), at.y.value(y)];

  gestures(surface, {
    ready: () => Boolean(at),
    plot: () => place.plot,
    view: () => view,
    boxing: () => boxing,
    value,
    move,
    hover,
    leave,
    click,
    boxed,
    moved: () => onwindow(view),
    draw: (box) => {
      marquee = box;
      redrawOver();
    },
    again: (x, y) => under(x, y)?.dot === undefined && reset(),
  });

  function click(event, x, y) {
    const found = under(x, y);
    if (event.pointerType === "touch") hover(x, y);
    const extend = event.shiftKey || event.ctrlKey || event.metaKey;
    if (found?.dot !== undefined) {
      cursor = byWeight(dots).indexOf(found.dot);
      onselect(dots.all[found.dot].ops, extend);
    } else if (!found && !extend) onselect([], false);
  }

  function boxed(kind, { x0, y0, x1, y1 }, event) {
    if (kind === "pick") {
      const inside = [...grid().inside(x0, y0, x1, y1)].filter(inSight);
      onselect(inside.flatMap((number) => dots.all[number].ops), event.shiftKey);
      return;
    }
    const next = boxWindow(...value(x0, y1), ...value(x1, y0));
    if (next) move(next, { final: true });
  }

  surface.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || !at) return;
    if (step && event.shiftKey) move(pan(
      view,
      { ArrowLeft: 0.1, ArrowRight: -0.1 }[event.key] ?? 0,
      { ArrowUp: -0.1, ArrowDown: 0.1 }[event.key] ?? 0,
    ));
    else if (step) go(cursor < 0 ? 0 : cursor + step);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(dots.all.length - 1);
    else if ((event.key === "Enter" || event.key === " ") && cursor >= 0) onselect(dots.all[byWeight(dots)[cursor]].ops, event.shiftKey);
    else if (event.key === "+" || event.key === "=") zoomBy(0.7);
    else if (event.key === "-" || event.key === "_") zoomBy(1 / 0.7);
    else if (event.key === "0") reset();
    else if (event.key === "Escape") {
      card.hide();
      onselect([], false);
    } else return;
    event.preventDefault();
  });
  surface.addEventListener("blur", () => {
    card.hide();
    redrawOver();
  });
  surface.addEventListener("focus", redrawOver);

  /** The keyboard goes to a dot: it is brought into sight, shown and said. */
  function go(rank) {
    if (!dots.all.length) return;
    cursor = Math.max(0, Math.min(dots.all.length - 1, rank));
    const number = byWeight(dots)[cursor];
    reveal(number);
    card.show({ mark: dots.all[number] }, surface, dots.x[number], dots.y[number]);
    announce(`${cursor + 1} of ${dots.all.length}: ${card.say(dots.all[number])}`);
    redrawOver();
  }

  function reveal(number) {
    if (number < 0 || inSight(number)) return;
    const { plot } = place;
    const across = (plot.x + plot.w / 2 - dots.x[number]) / plot.w;
    const along = (dots.y[number] - plot.y - plot.h / 2) / plot.h;
    view = clamp(pan(view, across, along), scene.model.reach);
    draw();
    settle();
    onwindow(view);
  }

  function zoomBy(factor) {
    const { plot } = place;
    move(zoom(view, ...value(plot.x + plot.w / 2, plot.y + plot.h / 2), factor), { final: true });
  }

  function reset() {
    clearTimeout(telling);
    view = scene.model.home;
    redraw();
    settle();
    onwindow(null);
  }

  new ResizeObserver(framed(resize)).observe(surface);

  return {
    root,
    surface,
    zoomBy,
    reset,
    /** Box zoom by plain dragging, on or off. */
    boxes: (on) => {
      boxing = on;
      surface.classList.toggle("boxing", on);
    },
    /** Lights up the dot of an op that something else on the page points to. */
    point: (id) => {
      if (pointed === id) return;
      pointed = id;
      redrawOver();
    },
    /** Brings the dot of an op into sight. */
    reveal: (id) => place && reveal(dots.all.findIndex((dot) => dot.ops.includes(id))),
    /** Where a dot is on screen, for tests: {x, y, r} relative to the surface, or null. */
    spot: (id) => {
      const number = dots.all.findIndex((dot) => dot.ops.includes(id));
      const edge = outside.find((one) => one.number === number);
      return number < 0 ? null : { x: edge?.x ?? dots.x[number], y: edge?.y ?? dots.y[number], r: dots.size[number], outside: Boolean(edge) };
    },
    show: (next) => {
      const fresh = !scene || scene.model !== next.model || scene.colourOf !== next.colourOf || scene.theme !== next.theme;
      const chosen = !scene || scene.selected.size !== next.selected.size || [...next.selected].some((id) => !scene.selected.has(id));
      scene = next;
      view = next.window ? clamp(next.window, next.model.reach) : next.model.home;
      surface.setAttribute("aria-label", next.ariaLabel ?? label);
      if (fresh) {
        const heaviest = [...next.model.dots, ...next.model.strip].reduce((most, dot) => Math.max(most, dot.weight), 0);
        dots = prepared(next.model.dots, next.model.strip, heaviest, next.colourOf);
        hovered = null;
        cursor = Math.min(cursor, dots.all.length - 1);
        place = null;
        names = [];
      }
      if (fresh || chosen) look();
      if (!place) resize();
      else {
        if (chosen) {
          painted = null;
          paintStrip();
        }
        draw();
        settle();
      }
    },
  };
}
