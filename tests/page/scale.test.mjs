import assert from "node:assert/strict";
import test from "node:test";

import { attainable, box, clamp, extent, fitted, flat, gridIndex, linearScale, linearTicks, logScale, logTicks, pan, placeLabels, radius, ridge, slant, zoom } from "../../src/roofline/render/page/static/scale.js";
import { VECTORS } from "./cases.mjs";
import { close } from "./close.mjs";

const TOY = { peak: 100, bandwidth: 10 };
const WINDOW = [1, 1000, 1, 1000];

test("ticks stand where the figures have them, with the same words", () => {
  for (const [low, high, dimension, expected] of VECTORS.log_ticks) {
    const ticks = logTicks(low, high, dimension);
    close(ticks.map((tick) => [tick.at, tick.label]), expected, `${low} to ${high}`);
    for (const tick of ticks) assert.equal(tick.minor, tick.label === "");
  }
  for (const [low, high, dimension, expected] of VECTORS.linear_ticks) close(linearTicks(low, high, dimension).map((tick) => [tick.at, tick.label]), expected, `to ${high}`);
});

test("every window that clamp allows has at least three labelled ticks", () => {
  const home = [0.01, 1e4, 1e6, 1e15];
  for (let decade = -3; decade < 16; decade += 0.37) {
    const [x0, x1] = clamp([10 ** decade, 10 ** (decade + 0.001), 1e6, 1e15], [1e-3, 1e16, home[2], home[3]]);
    assert.ok(logTicks(x0, x1, "FLOP/s").filter((tick) => tick.label).length >= 3, `${x0} to ${x1}`);
  }
});

test("scales go there and back", () => {
  for (const scale of [logScale(0.1, 1000, 40, 640), logScale(1, 1e15, 500, 20), linearScale(0, 1.3, 500, 20)]) {
    for (const value of [0.2, 1, 1.25]) close(scale.value(scale.at(value)), value, "", 1e-12);
  }
  const scale = logScale(1, 100, 0, 200);
  close([scale.at(1), scale.at(10), scale.at(100)], [0, 100, 200]);
});

test("zooming keeps the place under the pointer", () => {
  const window = zoom(WINDOW, 10, 100, 0.5, 0.25);
  const share = ([x0, x1], x) => Math.log(x / x0) / Math.log(x1 / x0);
  close(share(window, 10), share(WINDOW, 10));
  close(share(window.slice(2), 100), share(WINDOW.slice(2), 100));
  close(Math.log(window[1] / window[0]), 0.5 * Math.log(1000));
});

test("panning moves the contents, and back again", () => {
  close(pan(WINDOW, 1 / 3, -1 / 3), [0.1, 100, 10, 10000]);
  close(pan(pan(WINDOW, 0.3, 0.7), -0.3, -0.7), WINDOW);
});

test("a box is a window in any direction, unless it is too small or off the axes", () => {
  assert.deepEqual(box(10, 1, 1, 100), [1, 10, 1, 100]);
  assert.equal(box(1, 1, 1.01, 100), null);
  assert.equal(box(-1, 1, 10, 100), null);
  assert.equal(box(NaN, 1, 10, 100), null);
});

test("a window stays within reach of its home", () => {
  assert.deepEqual(clamp(WINDOW, WINDOW), WINDOW);
  const far = clamp([1e20, 1e23, 1, 1000], WINDOW);
  close(far, [100, 1e5, 1, 1000], "", 1e-9); // two decades beyond the right end, and no farther
  const wide = clamp([1e-30, 1e30, 1e-30, 1e30], WINDOW);
  close(wide, [0.01, 1e5, 0.01, 1e5], "", 1e-9);
  assert.ok(Math.log10(clamp([10, 10.0001, 1, 1000], WINDOW)[1] / clamp([10, 10.0001, 1, 1000], WINDOW)[0]) > 0.049);
  assert.deepEqual(clamp([NaN, 1, 1, 2], WINDOW), WINDOW);
});

test("a roof is straight on both sides of its ridge", () => {
  assert.equal(ridge(TOY), 10);
  assert.deepEqual([attainable(TOY, 1), attainable(TOY, 10), attainable(TOY, 1000)], [10, 100, 100]);
  assert.deepEqual([slant(TOY, WINDOW), flat(TOY, WINDOW)], [[[1, 10], [10, 100]], [[10, 100], [1000, 100]]]);
  assert.deepEqual([slant(TOY, [100, 1000, 1, 1000]), flat(TOY, [1, 1000, 200, 1000])], [[], []]); // right of the ridge, below the window
  assert.deepEqual(slant(TOY, WINDOW, true), [[1, 10], [100, 1000]]);
  assert.deepEqual(flat(TOY, WINDOW, true), [[1, 100], [1000, 100]]);
});

test("an extent shows every roof and spot, and nothing at all is still a window", () => {
  const [left, right, bottom, top] = extent([TOY], [[0.001, 0.1], [500, 90]]);
  assert.ok(left < 0.001 && right > 500 && bottom < 0.1 && top > 100);
  for (const window of [extent([], []), extent([], [[1, 1]]), extent([TOY], [])]) assert.ok(window[0] < window[1] && window[2] < window[3]);
  assert.ok(extent([TOY], Array.from({ length: 200000 }, () => [1, 1]))[0] > 0);
});

test("the area of a dot is as its weight", () => {
  close(radius(1, 4, 10, 1) ** 2 * 4, radius(4, 4, 10, 1) ** 2);
  assert.equal(radius(0, 4, 10, 2), 2);
  assert.equal(radius(0, 0, 10, 2), 4);
});

test("the nearest dot is the one a search through all finds", () => {
  let seed = 3;
  const random = (most) => (seed = (seed * 48271) % 2147483647) % most;
  const dots = Array.from({ length: 3000 }, () => ({ x: random(900) - 50, y: random(600) - 50, r: 2 + random(12) }));
  const index = gridIndex(dots);
  for (let round = 0; round < 500; round += 1) {
    const [x, y] = [random(900), random(600)];
    const found = index.nearest(x, y, 6);
    const apart = (dot) => Math.hypot(dot.x - x, dot.y - y);
    const under = dots.filter((dot) => apart(dot) <= dot.r);
    if (under.length) close(apart(dots[found]), Math.min(...under.map(apart)));
    else if (dots.some((dot) => apart(dot) <= dot.r + 6)) close(apart(dots[found]) - dots[found].r, Math.min(...dots.map((dot) => apart(dot) - dot.r)));
    else assert.equal(found, -1);
  }
  const inside = index.inside(300, 200, 100, 100);
  assert.deepEqual(inside, [...dots.keys()].filter((at) => dots[at].x >= 100 && dots[at].x <= 300 && dots[at].y >= 100 && dots[at].y <= 200));
  assert.equal(gridIndex([]).nearest(1, 1, 10), -1);
  assert.equal(gridIndex([{ x: NaN, y: 1, r: 3 }]).nearest(1, 1, 10), -1);
});

test("labels lie inside, apart from each other and off the dots", () => {
  const area = { x: 0, y: 0, w: 300, h: 200 };
  const dots = Array.from({ length: 12 }, (_, index) => ({ x: 20 + 22 * index, y: 100 + (index % 3) * 8, r: 5 }));
  const labels = dots.map((dot) => ({ ...dot, width: 60, height: 14 }));
  const placed = placeLabels(labels, area, dots);
  assert.ok(placed.length >= 3);
  for (const one of placed) {
    assert.ok(one.x >= 0 && one.y >= 0 && one.x + 60 <= 300 && one.y + 14 <= 200);
    for (const other of placed) assert.ok(one === other || Math.abs(one.x - other.x) >= 60 || Math.abs(one.y - other.y) >= 14);
  }
});

test("a name whose dot is at the corner of the area, or overlapped by another, still has a place", () => {
  const area = { x: 0, y: 0, w: 300, h: 200 };
  const label = { text: "dot", x: 290, y: 10, r: 5, width: 60, height: 14 };
  const blocked = [{ x: 278, y: 10, r: 8 }]; // at its left, where a name would fit best
  const [placed] = placeLabels([label], area, blocked);
  assert.deepEqual([placed.x + 60, placed.y], [295, 18]); // below, its right end at that of the dot
  assert.equal(placeLabels([{ ...label, x: 150, y: 100 }], area, [{ x: 151, y: 100, r: 8 }]).length, 1);
});

test("a first window leaves out what is very far from any roof, as long as that is little of the time", () => {
  // The corner is at 10 FLOP/B; 1e-8 FLOP/B is nine decades to the left of it.
  const spots = (share) => [[1, 9, 1 - share], [20, 90, 1], [1e-8, 1e-7, share]];
  assert.ok(fitted([TOY], spots(0.1))[0] > 0.1);
  assert.ok(fitted([TOY], spots(0.1))[2] > 1);
  assert.ok(fitted([TOY], spots(0.5))[0] < 1e-8);
  assert.ok(fitted([TOY], [[1e-8, 1e-7, 1]])[0] < 1e-8);
  assert.ok(fitted([], spots(0.1))[0] < 1e-8, "without a roof nothing is far from it");
});
