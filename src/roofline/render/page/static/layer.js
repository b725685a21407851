/**
 * A layer of dots: each is a picture, drawn once a colour, look and size. On logarithmic axes panning moves everything by the same pixels,
 * so a layer is painted with a margin around it and then only pushed.
 */

const [PLAIN, FAINT, CHOSEN] = [0, 1, 2]; // how a dot looks: as usual, while others are selected, selected
export const LOOKS = { PLAIN, FAINT, CHOSEN };
const INSIDE = [0.62, 0.3, 1]; // share of its colour in the inside of a dot, by its look
const EDGE = [1, 0.55, 1]; // and in its edge
const QUARTERS = 4; // radii in quarters of a pixel: finer than anybody sees, and few enough to keep
const LARGER = 1000; // than any radius in quarters, so that one number holds colour, look and radius

/** Circles of these colours over this theme's background, drawn when they are first needed, for so many device pixels per pixel. */
export function stamps(colours, theme, ratio) {
  const drawn = new Map();
  return (colour, look, size) => {
    const quarters = Math.round(size * QUARTERS);
    const key = (colour * 3 + look) * LARGER + quarters;
    if (!drawn.has(key)) drawn.set(key, stamp(colours[colour], look, quarters / QUARTERS, theme, ratio));
    return drawn.get(key);
  };
}

/** One circle in the middle of a small canvas. */
function stamp(colour, look, radius, theme, ratio) {
  const wide = look === CHOSEN ? 2 : 1;
  const outer = (look === CHOSEN ? radius + 1 : radius) - wide / 2;
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 2 * Math.ceil((outer + wide) * ratio);
  const context = canvas.getContext("2d");
  context.translate(canvas.width / 2, canvas.height / 2);
  context.scale(ratio, ratio);
  context.arc(0, 0, outer, 0, 2 * Math.PI);
  context.fillStyle = theme.background;
  context.fill();
  context.globalAlpha = INSIDE[look];
  context.fillStyle = colour;
  context.fill();
  context.globalAlpha = EDGE[look];
  context.lineWidth = wide;
  context.strokeStyle = look === CHOSEN ? theme.ink : colour;
  context.stroke();
  return canvas;
}

/** A canvas of dots. `paint` draws those that are `wanted`; `left` and `top` are the place of its corner in CSS pixels. */
export function layer(canvas) {
  const context = canvas.getContext("2d");
  return {
    canvas,
    paint: ({ x, y, size, colour, order }, wanted, { left, top, width, height, ratio, stampOf, lookOf }) => {
      [canvas.width, canvas.height] = [width, height].map((side) => Math.max(1, Math.round(side * ratio))); // which empties it
      canvas.style.width = `${canvas.width / ratio}px`;
      canvas.style.height = `${canvas.height / ratio}px`;
      for (const index of order) {
        if (!wanted(index)) continue;
        const dot = stampOf(colour[index], lookOf ? lookOf[index] : PLAIN, size[index]);
        const [across, along] = [(x[index] - left) * ratio, (y[index] - top) * ratio].map((middle) => Math.round(middle - dot.width / 2));
        if (across > -dot.width && along > -dot.width && across < canvas.width && along < canvas.height) context.drawImage(dot, across, along);
      }
    },
  };
}
