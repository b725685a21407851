import assert from "node:assert/strict";
import test from "node:test";

import { DEFAULTS, decode, encode, store } from "../../src/roofline/render/page/static/state.js";

let seed = 11;
const random = (most) => (seed = (seed * 48271) % 2147483647) % most;
const pick = (values) => values[random(values.length)];
const WORDS = ["", "~", "loop fusion", "a,b", "100%", "=&#", "</script>", "ü\u202e", "x:y/z", "%7E", "\u{1F600}", "+ "];
const several = (make) => Array.from({ length: random(4) }, make);

function randomState() {
  const of = {
    tab: () => pick(["ops", "program", "compare"]), panel: () => pick(["findings", "device"]), theme: () => pick(["auto", "dark", "light"]),
    level: () => pick(["hbm", "l2", "vmem.read", "bound"]), colour: () => pick(["bound", "category", "dtype"]), size: () => pick(["time", "lost", "equal"]),
    filter: () => pick(["", "efficiency<0.5 time>1%", "/a|b/i", ...WORDS]), categories: () => several(() => pick(WORDS)), bounds: () => several(() => pick(["hbm", "latency", ""])),
    dtypes: () => several(() => pick(["bf16", "fp32"])), feeds: () => pick([true, false]), step: () => pick([null, 0, 7]), device: () => pick([null, 0, 3]),
    host: () => pick([null, ...WORDS]), group: () => pick(["", "scope", "category"]), folded: () => pick([true, false]), depth: () => pick([1, 2, 5]), sort: () => pick(["time_s", "name", "lost_s"]),
    descending: () => pick([true, false]), columns: () => pick([null, [], ["name", "time_s"]]),
    selected: () => [...new Set(several(() => random(9)))].sort((one, other) => one - other), window: () => pick([null, [0.01, 1000, 1e9, 2.5e15], [1.5e-9, 3, 0.25, 7]]),
    hidden: () => several(() => pick(["hbm", "matrix/bf16"])), shown: () => several(() => pick(["l2", "vmem.read"])), chip: () => pick([null, "tpu-v7x/device", "h200-sxm"]),
    factors: () => pick([{}, { compute: 1.25 }, { bandwidth: 0.5, "matrix/bf16": 2 }]), compare: () => pick([true, false]), whatif: () => pick([null, 0, 3]), scopes: () => pick([["total"], [], DEFAULTS.scopes]),
    labels: () => pick([true, false]), timeline: () => pick(["step", "run"]), stretch: () => pick([null, [0, 0], [7, 999]]),
  };
  return Object.fromEntries(Object.keys(DEFAULTS).map((name) => [name, random(3) ? DEFAULTS[name] : of[name]()]));
}

test("any state survives the fragment", () => {
  for (let round = 0; round < 3000; round += 1) {
    const state = randomState();
    assert.deepEqual(decode(encode(state)), state, encode(state));
    assert.deepEqual(decode(`#${encode(state)}`), state);
  }
});

test("a fragment has only letters that addresses may have", () => {
  for (let round = 0; round < 1000; round += 1) assert.match(encode(randomState()), /^[A-Za-z0-9\-._~!$&'()*+,;=:@/?%]*$/);
});

test("the state that nobody touched has an empty fragment", () => {
  assert.equal(encode(DEFAULTS), "");
  assert.deepEqual(decode(""), DEFAULTS);
});

test("a fragment can be read", () => {
  assert.equal(encode({ ...DEFAULTS, level: "l2", filter: "time>1%", selected: [3, 4, 5, 9], factors: { compute: 1.2 } }), "level=l2&filter=time%3E1%25&selected=3-5,9&factors=compute:1.2");
});

test("what makes no sense gives the default of its field, and leaves the others", () => {
  const bad = [
    "level=", "level=%", "level=HBM", "level=../x", "colour=red", "size=huge", "feeds=maybe", "step=1.5", "step=x", "group=shoe", "depth=", "sort=__proto__%20", "window=1,2,3",
    "window=2,1,1,2", "window=0,1,1,2", "window=a,b,c,d", "selected=1-", "selected=9-1", "selected=0-999999999", "selected=-1", "factors=compute", "factors=compute:0",
    "factors=compute:1e9", "factors=compute:-1", "factors=a:b:c", "categories=%E0%A4%A", "filter=%", "theme=blue", "compare=2", "stretch=5-2", "stretch=a-b", "stretch=3", "timeline=day", "__proto__=1", "constructor=1", "=", "&&&", "filter",
  ];
  for (const part of bad) assert.deepEqual(decode(`${part}&labels=0`), { ...DEFAULTS, labels: false }, part);
  for (const fragment of [null, undefined, 7, "#", "#####", "\ud800", "a".repeat(100000)]) assert.deepEqual(decode(fragment), DEFAULTS);
});

test("halves of letters do not break the fragment", () => {
  assert.equal(decode(encode({ ...DEFAULTS, filter: "a\ud800b" })).filter, "a\ufffdb");
});

test("a store tells what changed, once, and only when it did", () => {
  const one = store();
  const heard = [];
  const off = one.on((state, changed) => heard.push([state.level, changed]));
  one.set({ level: "l2", feeds: true });
  one.set({ level: "l2", selected: [] });
  assert.deepEqual(heard, [["l2", ["level"]]]);
  off();
  one.set({ level: "hbm" });
  assert.equal(heard.length, 1);
  assert.equal(one.get().level, "hbm");
});
