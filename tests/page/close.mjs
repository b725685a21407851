/** Equality of values to a relative error, for figures that two languages compute. */

import assert from "node:assert/strict";

export function close(actual, expected, where = "", relative = 1e-12) {
  if (typeof expected === "number" && typeof actual === "number") {
    const same = actual === expected || Math.abs(actual - expected) <= relative * Math.abs(expected);
    assert.ok(same, `${where}: ${actual} is not ${expected}`);
  } else if (Array.isArray(expected)) {
    assert.ok(Array.isArray(actual) && actual.length === expected.length, `${where}: ${JSON.stringify(actual)} is not ${JSON.stringify(expected)}`);
    expected.forEach((each, index) => close(actual[index], each, `${where}[${index}]`, relative));
  } else if (expected !== null && typeof expected === "object") {
    assert.deepEqual(Object.keys(actual).sort(), Object.keys(expected).sort(), where);
    for (const [key, each] of Object.entries(expected)) close(actual[key], each, `${where}.${key}`, relative);
  } else {
    assert.equal(actual, expected, where);
  }
}
