"""The catalogue of findings: every kind and group has them, in the terms of the framework and the platform, and each is one clause."""

import re
from itertools import chain
from string import Formatter

from every import every
from roofline.cost import NOTHING
from roofline.rules.words import Words, kinds, observed, page, rule_kinds, words_of
from roofline.workload import Avoidable

NAMES = {"jax", "pytorch", "gpu", "tpu", "cpu", "compiled", "replayed", "host"}
OF_JAX = re.compile(r"\bjax|jnp\.|\blax\.|\bjit|Pallas|astype|preferred_element_type")
OF_PYTORCH = re.compile(r"torch|\bF\.|Flex|flash_attn|detach|unsqueeze")
OF_BOTH = {("unused-results", "sorted")}
HOW = r"|%|\.0%|,|~?\d|\d?(s|B|B/s|FLOP|FLOP/B)|[a-z]+|[a-z]+\|[a-z]+"
NO_FACTS = Avoidable(kind="padding", instead=NOTHING)
RULES = [(kind, group) for kind in rule_kinds() for group in ("", *page(kind).groups)]
SECTIONS = [(kind, group) for kind in kinds() for group in ("", *page(kind).groups)]


@every(("kind", "group"), SECTIONS)
def test_words_are_one_clause_and_speak_of_matmuls(kind: str, group: str) -> None:
    for name in ("", *NAMES):
        words = words_of(kind, group, (name,))
        # The time after it follows behind a colon: "Keep one layout: the step would take 9 ms."
        assert words.levers or group == "gaps"
        assert bool(words.title) == bool(words.change) or group == "gaps"
        assert ": " not in words.change, words.change
        sentences = " ".join(
            (
                words.title,
                words.change,
                words.observation,
                *words.causes.values(),
                *words.levers,
                *chain.from_iterable(words.cases.values()),
            )
        )
        assert not re.search(r"(?<!elementwise )(?<!sums and )(?<!Kronecker )\bproducts?\b", re.sub(r"\{\w+[^}]*\}", "", sentences))


@every(("kind", "group"), SECTIONS)
def test_observations_name_their_facts_and_how_to_write_them(kind: str, group: str) -> None:
    words = words_of(kind, group)
    for observation in (words.observation, *words.causes.values()):
        for _, fact, how, _ in Formatter().parse(observation):
            assert fact is None or (re.fullmatch(r"[a-z_]+", fact) and re.fullmatch(HOW, how or "")), observation
        assert not re.search(r"[{}\[\]]", Words(title="", change="", observation=observation).observed(NO_FACTS)), observation


@every("kind", kinds())
def test_only_known_frameworks_and_platforms_replace_words(kind: str) -> None:
    assert {name for section in (page(kind), *page(kind).groups.values()) for name in section.on} <= NAMES


@every(("kind", "group"), RULES)
def test_advice_about_pytorch_speaks_of_pytorch(kind: str, group: str) -> None:
    levers = words_of(kind, group, ("pytorch",)).levers
    if not group or any(OF_PYTORCH.search(lever) for lever in levers):
        assert (kind, group) in OF_BOTH or [lever for lever in levers if OF_JAX.search(lever)] == []


def test_a_framework_replaces_more_than_a_platform_and_a_group_takes_nothing_over() -> None:
    assert "splash_attention" in words_of("stored-attention", "", ("tpu", "jax")).levers[0]
    assert "scaled_dot_product_attention" in words_of("stored-attention", "", ("tpu", "pytorch")).levers[0]
    assert words_of("missing-donation").observation
    assert words_of("wide-format", "fp32").observation == ""
    assert words_of("dense-experts", "16") == words_of("dense-experts")


@every(
    ("observation", "written"),
    [
        ("stores {kept:B} of {kept:B}", "stores 41.94 MB of 41.94 MB"),
        ("uses {share:%} of {rows:row}, in {one:row}", "uses 8% of 1,200 rows, in 1 row"),
        ("sorts {rows:,} elements {times:3} times", "sorts 1,200 elements 2.67 times"),
        ("runs twice[, called from {caller}][, or from {nowhere}][, or {empty}]", "runs twice, called from f.py:7"),
        ("computes {nowhere} again", "computes – again"),
    ],
)
def test_observations_are_written_with_the_facts_of_the_evidence(observation: str, written: str) -> None:
    facts = {"kept": 41943040, "share": 0.08, "rows": 1200, "one": 1, "times": 8 / 3, "caller": "f.py:7", "empty": ""}
    evidence = Avoidable(kind="padding", instead=NOTHING, facts=facts)
    assert Words(title="", change="", observation=observation).observed(evidence) == written


def test_the_cause_of_evidence_chooses_its_observation() -> None:
    evidence = Avoidable(kind="duplicated-work", instead=NOTHING, facts={"kernel": "dot.7"})
    assert observed(evidence) == "computes the same values as dot.7"
    again = Avoidable(kind="duplicated-work", instead=NOTHING, cause="pass", facts={"caller": "train.py:7"})
    assert observed(again) == "runs a forward pass a second time, without gradients, called from train.py:7"
    assert hash(again) == hash(Avoidable(kind="duplicated-work", instead=NOTHING, cause="pass", facts={"caller": "train.py:7"}))
