/**
 * Dots as pixels. A browser without a fast graphics card needs some ten microseconds for every circle, however it is asked to draw
 * one; written straight into memory, five thousand of them take about a millisecond. On logarithmic axes panning moves everything by
 * the same pixels, so a layer is painted with a margin around it and then only pushed.
 */

const [PLAIN, FAINT, CHOSEN] = [0, 1, 2]; // how a dot looks: as usual, while others are selected, selected
const FILL = 0.62; // share of its colour in the inside of a dot
const FADED = 0.3; // the same for a dot while others are selected
const QUARTERS = 4; // radii in quarters of a pixel: finer than anybody sees, and few enough to keep
const LARGER = 1000; // than any radius in quarters, so that one number holds colour, look and radius

/** Circles of these colours over this theme's background, made when they are first needed, for so many device pixels per pixel. */
export function stamps(colours, theme, ratio) {
  const made = new Map();
  return (colour, look, size) => {
    const quarters = Math.round(size * QUARTERS);
    const key = (colour * 3 + look) * LARGER + quarters;
    let found = made.get(key);
    if (!found) made.set(key, (found = stamp(colours[colour], look, (quarters / QUARTERS) * ratio, theme, ratio)));
    return found;
  };
}

/** One circle as its pixels: where each is from the centre, and its colour in the order of memory. */
function stamp(colour, look, radius, theme, ratio) {
  const own = parts(colour);
  const paper = parts(theme.background);
  const inside = mix(paper, own, look === FAINT ? FADED : look === CHOSEN ? 1 : FILL);
  const edge = look === CHOSEN ? parts(theme.ink) : mix(paper, own, look === FAINT ? 0.55 : 1);
  const outer = look === CHOSEN ? radius + ratio : radius;
  const width = look === CHOSEN ? 2 * ratio : ratio;
  const reach = Math.ceil(outer + 0.5);
  const [dx, dy, values] = [[], [], []];
  for (let y = -reach; y <= reach; y += 1) {
    for (let x = -reach; x <= reach; x += 1) {
      const far = Math.hypot(x, y);
      const cover = Math.min(1, Math.max(0, outer + 0.5 - far));
      if (!cover) continue;
      const [red, green, blue] = mix(inside, edge, Math.min(1, Math.max(0, far - (outer - width) + 0.5)));
      dx.push(x);
      dy.push(y);
      values.push(((Math.round(cover * 255) << 24) | (blue << 16) | (green << 8) | red) >>> 0);
    }
  }
  return { reach, dx: Int16Array.from(dx), dy: Int16Array.from(dy), values: Uint32Array.from(values), offsets: null, stride: 0 };
}

function parts(hex) {
  return [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

function mix(one, other, share) {
  return one.map((part, index) => Math.round(part + (other[index] - part) * share));
}

/**
 * A canvas of dots. `paint` fills it with the dots of `order` between two ranks of it, `left` and `top` being the place of its corner in
 * CSS pixels; it is never smaller than what was asked for.
 */
export function layer(canvas) {
  const context = canvas.getContext("2d", { willReadFrequently: true });
  let image = null;
  let pixels = null;
  return {
    canvas,
    paint: (dots, wanted, { left, top, width, height, ratio, stampOf, lookOf }) => {
      const [wide, high] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
      if (canvas.width !== wide || canvas.height !== high || !image) {
        canvas.width = wide;
        canvas.height = high;
        image = context.createImageData(wide, high);
        pixels = new Uint32Array(image.data.buffer);
      } else pixels.fill(0);
      canvas.style.width = `${wide / ratio}px`;
      canvas.style.height = `${high / ratio}px`;
      const { x, y, size, colour, order } = dots;
      for (let rank = 0; rank < order.length; rank += 1) {
        const index = order[rank];
        if (!wanted(index)) continue;
        const one = stampOf(colour[index], lookOf ? lookOf[index] : PLAIN, size[index]);
        const across = Math.round((x[index] - left) * ratio);
        const along = Math.round((y[index] - top) * ratio);
        const { reach } = one;
        if (across < -reach || along < -reach || across >= wide + reach || along >= high + reach) continue;
        if (
          across < reach || along < reach || across >= wide - reach || along >= high - reach
        ) press(pixels, one, across, along, wide, high);
        else pressInside(pixels, one, along * wide + across, wide);
      }
      context.putImageData(image, 0, 0);
    },
  };
}

function pressInside(pixels, one, at, wide) {
  if (one.stride !== wide) {
    one.offsets = Int32Array.from(one.dx, (x, index) => one.dy[index] * wide + x);
    one.stride = wide;
  }
  const { offsets, values } = one;
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index];
    const spot = at + offsets[index];
    pixels[spot] = value >= OPAQUE ? value : over(value, pixels[spot]);
  }
}

function press(pixels, { dx, dy, values }, across, along, wide, high) {
  for (let index = 0; index < values.length; index += 1) {
    const x = across + dx[index];
    const y = along + dy[index];
    if (x >= 0 && y >= 0 && x < wide && y < high) pixels[y * wide + x] = over(values[index], pixels[y * wide + x]);
  }
}

const OPAQUE = 0xff000000;

/** One colour over another, both with their share in the highest byte. */
function over(upper, lower) {
  if (lower === 0 || upper >= OPAQUE) return upper;
  const above = (upper >>> 24) / 255;
  const below = ((lower >>> 24) / 255) * (1 - above);
  const all = above + below;
  const part = (shift) => Math.round((((upper >>> shift) & 255) * above + ((lower >>> shift) & 255) * below) / all);
  return ((Math.round(all * 255) << 24) | (part(16) << 16) | (part(8) << 8) | part(0)) >>> 0;
}

export const LOOKS = { PLAIN, FAINT, CHOSEN };
