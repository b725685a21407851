/** What Python defines and the page only shows: names of hardware units, fallbacks, units of quantities, columns (`data.py`). */
export const VOCABULARY = JSON.parse(document.getElementById("vocabulary").textContent);
