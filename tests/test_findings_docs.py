"""Each kind of finding has its section, with its rule, its caveat, its saving and every lever; each class of needless work has its row."""

import re
import sys
from pathlib import Path

from every import every
from roofline.analysis.expected_times import SLOW, SLOW_FUSION
from roofline.analysis.findings import block_sizes as blocks_findings
from roofline.analysis.findings import counted as counted_findings
from roofline.analysis.findings import kernels as kernel_findings
from roofline.analysis.findings import reachable
from roofline.graph.facts.loops import MOST_UNROLLED
from roofline.operation import COMPLEX, INTERLEAVED
from roofline.rules.dense_gradient.updates import LEAST
from roofline.rules.low_batch.few_rows import FEW_IN_LOOPS, FEW_ROWS
from roofline.rules.one_hot_product.diagonals import LONG
from roofline.rules.order import RULES
from roofline.rules.unused_results.parts import MOST_USED
from roofline.rules.words import kinds, page, rule_kinds, words_of

PAGE = (Path(__file__).parent.parent / "docs" / "findings.md").read_text()
REACHED = reachable.OF_CATEGORIES
# Thresholds of rules, as their sections give them.
THRESHOLDS = [
    ("one-hot-product", f"at least {LONG:,} rows"),
    ("dense-gradient", f"at least {LEAST / 10**6:.0f} MB"),
    ("unused-results", f"less than {MOST_USED:.0%}"),
    ("layout-copies", f"at most {MOST_UNROLLED} iterations"),
    ("low-batch", f"at most {FEW_ROWS} rows"),
    ("low-batch", f"up to {FEW_IN_LOOPS} rows"),
    ("latency", f"only {1 - kernel_findings.RECORDED_GAPS:.0%} of the gaps"),
    ("excess", f"at least {SLOW} times the expected time ({SLOW_FUSION} times"),
    ("memory", f"distance to {reachable.REACHABLE['hbm']:.0%}"),
    ("memory", f"| fused optimizers | {REACHED['optimizer']:.0%} |"),
    ("memory", f"| {REACHED['pointwise fusion']:.0%}, or {REACHED['reduction fusion']:.0%} if they reduce |"),
    ("memory", f"| gathers, alone or fused with their consumers | {REACHED['gather']:.0%} |"),
    ("memory", f"with complex numbers | {reachable.OF_STREAMED[COMPLEX]:.0%} |"),
    ("memory", f"(associative scans) | {reachable.OF_STREAMED[INTERLEAVED]:.0%} |"),
    ("memory", f"| pooling and its gradient | {REACHED['pooling']:.0%} |"),
    ("memory", f"| memory-bound convolutions | {reachable.OF_BOUND_CATEGORIES['convolution', 'hbm']:.0%} |"),
    ("memory", f"| sorts and scatters, whatever their order | {REACHED['sort']:.0%} |"),
    ("memory", f"Kernels above {reachable.GOOD:.0%} of the roofline have no saving"),
    ("products", f"distance to {reachable.REACHABLE['matrix']:.0%} of the peak, of convolutions to {REACHED['convolution']:.0%}"),
    ("compute", f"distance to {reachable.REACHABLE['vector']:.0%}"),
    ("communication", f"distance to {reachable.OTHERWISE:.0%}"),
    ("few-blocks", f"less than {counted_findings.IDLE_SMS:.0%}"),
    ("uneven-blocks", f"less than {counted_findings.IDLE_SMS:.0%}"),
    ("scattered-access", f"at least {counted_findings.MORE_MOVED} times"),
    ("bank-conflicts", f"at least {counted_findings.MORE_MOVED} times"),
    ("spilled-registers", f"at least {counted_findings.LOCAL:.0%}"),
    ("local-arrays", f"at least {counted_findings.LOCAL:.0%}"),
    ("contended-atomics", f"at least {counted_findings.ATOMICS:.0%}"),
    ("contended-atomics", f"busy above {counted_findings.UNUSED:.0%}"),
    ("divergence", f"at most {counted_findings.FEW_LANES} of the {counted_findings.WARP} threads"),
    ("divergence", f"busy above {counted_findings.ISSUING:.0%}"),
    ("low-occupancy", f"at most {counted_findings.FEW_WARPS:.0%}"),
    ("low-occupancy", f"busy above {counted_findings.WAITING:.0%}"),
    ("block-sizes", f"save at least {blocks_findings.LEAST:.0%}"),
    ("narrow-access", f"at most {counted_findings.NARROW} bytes"),
    ("narrow-access", f"busy above {counted_findings.WAITING:.0%}"),
    ("cache-traffic", f"at least {counted_findings.MORE_MOVED} times"),
]
SUSPECT_FIGURES = [kind for kind in kinds() if page(kind).chapter == "Suspect figures"]
FAULTS = [kind for kind in kinds() if page(kind).chapter not in ("Suspect figures", "Single operations")]


def _section(kind: str) -> str:
    found = re.search(rf"^### {re.escape(kind)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/findings.md has no section {kind}"
    return " ".join(found[1].split())


@every("kind", FAULTS)
def test_every_kind_is_explained(kind: str) -> None:
    section = _section(kind)
    assert all(f"- {word}:" in section for word in ("Rule", "Caveat", "Saving", "Do"))
    assert [lever for lever in words_of(kind).levers if lever not in section] == []


@every("kind", rule_kinds())
def test_a_section_has_the_rule_and_the_caveat_of_its_words(kind: str) -> None:
    words = page(kind)
    section = PAGE[PAGE.index(f"\n### {kind}\n") :].partition("\n- Saving: ")[0]
    assert section.endswith(f"\n- Rule: {words.rule}\n- Caveat: {words.caveat}")


@every(("kind", "threshold"), THRESHOLDS)
def test_a_section_gives_the_threshold_of_its_rule(kind: str, threshold: str) -> None:
    assert threshold in _section(kind)


@every("kind", SUSPECT_FIGURES)
def test_every_suspect_figure_is_explained(kind: str) -> None:
    section = _section(kind)
    assert all(f"- {word}:" in section for word in ("Rule", "Caveat", "Do"))
    assert [lever for lever in page(kind).levers if lever not in section] == []


def test_no_section_is_about_a_kind_that_is_gone() -> None:
    assert set(re.findall(r"^### (.+)$", PAGE, re.MULTILINE)) == set(kinds())


def test_every_class_of_needless_work_is_in_the_table() -> None:
    modules = [sys.modules[rule.__module__] for rule in RULES]
    classes = {"masked", *(module.CLASS for module in modules if hasattr(module, "CLASS"))}
    assert len(classes) > 5
    assert [name for name in sorted(classes) if f"| `{name}` |" not in PAGE] == []
