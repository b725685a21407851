import assert from "node:assert/strict";
import test from "node:test";

import "./document.mjs";

const { parsed, unescaped } = await import("../../src/roofline/render/page/static/given.js");

test("names lose what moves, reorders or hides text, wherever they are", () => {
  const text = String.raw`{"ops":[{"name":"a\u001b[2Jb\u0007\u202ec\u2067d\u200be\ufeff"}],"notes":["\tx\ny 😀 é"]}`;
  const found = parsed(text);
  assert.equal(found.ops[0].name, "a·[2Jb··c·d·e·");
  assert.equal(found.notes[0], "·x\ny 😀 é");
});

test("what is exported is what Python wrote", () => {
  const spelled = String.raw`{"name":"\u202eleft \\u202e \u001b <\/script>\u003c!--"}`;
  assert.equal(unescaped(spelled), String.raw`{"name":"` + "\u202e" + String.raw`left \\u202e \u001b </script><!--"}`);
});
