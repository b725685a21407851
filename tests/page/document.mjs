/** Node has no document: the page's modules find Python's vocabulary where pytest wrote it. */

import { readFileSync } from "node:fs";

const vocabulary = readFileSync(`${process.env.ROOFLINE_PAGE_CASES}/vocabulary.json`, "utf8");
globalThis.document = { getElementById: () => ({ textContent: vocabulary }) };
