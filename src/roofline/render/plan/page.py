"""Plans as a page: one HTML file with every plan on a chart of time against memory, and the chosen plan's step, parts and memory.

The page holds the bytes that ``--json`` writes, and the spans of the first plans; it asks the network for nothing.
"""

import html
import json

import msgspec

from ...errors import clean
from ...plan.plans import Plans
from ...plan.schedule import spans
from ..export import to_json
from ..page.html import closed_policy, data_element, part, script_hash
from .training import FORMULAS, MEMORY, best_sentence, subject

DETAILED = 40  # plans with a timeline on the page


def plans_page(plans: Plans) -> str:
    """The page of some plans."""
    style, script = part("page.css") + part("plans.css"), part("plans.mjs")
    shown = {
        "spans": [msgspec.to_builtins(spans(plan)) for plan in plans.plans[:DETAILED]],
        "formulas": {name: formula for name, (formula, _) in FORMULAS.items()},
        "memory": MEMORY,
    }
    parts = {
        "title": html.escape(clean(f"{plans.model} on {plans.chips} x {plans.chip}")),
        "policy": closed_policy(f"'{script_hash(script)}'", f"'{script_hash(style)}'"),
        "style": f"<style>{style}</style>",
        "subject": html.escape(clean(subject(plans))),
        "best": html.escape(clean(best_sentence(plans))),
        "assumed": html.escape(clean("; ".join(plans.best.assumed))),
        "evidence": html.escape(clean(plans.evidence)),
        "plans": data_element("plans", to_json(plans)),
        "shown": data_element("shown", json.dumps(shown).encode()),
        "script": f'<script type="module">{script}</script>',
    }
    page = part("plans.html")
    for name, text in parts.items():
        page = page.replace(f"<!--{{{name}}}-->", text)
    return page
