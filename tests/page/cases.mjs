/** What the tests read: the shared vectors, and the folder of real reports with Python's answers that pytest prepares. */

import { readdirSync, readFileSync } from "node:fs";

export function read(path) {
  return JSON.parse(readFileSync(path, "utf8"));
}

export const VECTORS = read(new URL("../data/law_vectors.json", import.meta.url));

const folder = process.env.ROOFLINE_PAGE_CASES;

/** Cases of one kind: [{name, report, …answers}]. */
export function cases(kind) {
  if (!folder) throw new Error("run these tests by pytest tests/test_page_logic.py, which prepares the reports they read");
  return readdirSync(folder).filter((file) => file.startsWith(`${kind}-`)).sort().map((file) => ({ name: file, ...read(`${folder}/${file}`) }));
}
