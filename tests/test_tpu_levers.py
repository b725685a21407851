"""Levers speak of the hardware at hand: on TPUs of tiles, the matrix unit, VMEM and flags of the compiler; on GPUs as before."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import roofline as rl
from roofline.analysis.advice_kinds import KINDS as ADVICE_KINDS
from roofline.analysis.advice_rules import levers_on
from roofline.analysis.finding_kinds import KINDS, Kind, levers_for_category
from roofline.analysis.platform_kinds import ADVICE, LEVERS, TPU_KINDS
from roofline.machines import load
from roofline.rules.words import page, rule_kinds, words_of

DATA = Path(__file__).parent / "data" / "tpu"
PAGE = " ".join((Path(__file__).parent.parent / "docs" / "findings.md").read_text().split())
# Words of GPUs and of their libraries.
OF_GPUS = re.compile(
    r"cudnn|cublas|cutlass|triton|hopper|flashinfer|\bncu\b|--counters|occupancy|coalesc|\bwarps?\b|\bwaves?\b|\bSMs?\b|tf32|tensor cores?|"
    r"ops\.gpu|chip has cores|more blocks than|vendor's|pinned|CUDA|shared memory",
    re.IGNORECASE,
)
# Hardware counters show these on NVIDIA GPUs alone; the rules of the groups are about GPUs, or about PyTorch.
COUNTED = {
    "few-blocks", "uneven-blocks", "scattered-access", "bank-conflicts", "spilled-registers", "local-arrays", "contended-atomics",
    "divergence", "low-occupancy", "narrow-access", "cache-traffic",
}  # fmt: skip
ELSEWHERE = {
    ("wide-format", "full fp32"), ("wide-format", "dequantized cache"), ("unused-results", "sampled"), ("layout-copies", "pages"),
    ("layout-copies", "depthwise"),
}  # fmt: skip


def _words(kind: Kind) -> Iterator[str]:
    yield from (kind.title, kind.change, kind.phrase, *kind.levers, *kind.compiled, *kind.looped, *kind.linear)
    for levers in (kind.by_category or {}).values():
        yield from levers


@pytest.mark.parametrize("name", sorted(TPU_KINDS.keys() - COUNTED))
def test_no_finding_of_a_tpu_speaks_of_gpus(name: str) -> None:
    assert [words for words in _words(TPU_KINDS[name]) if OF_GPUS.search(words)] == []


@pytest.mark.parametrize("name", rule_kinds())
def test_no_rule_speaks_of_gpus_on_a_tpu(name: str) -> None:
    for group in ("", *page(name).groups):
        words = words_of(name, group, ("tpu", "jax"))
        sentences = (words.title, words.change, words.observation, *words.levers)
        assert (name, group) in ELSEWHERE or [sentence for sentence in sentences if OF_GPUS.search(sentence)] == []


@pytest.mark.parametrize("name", ADVICE_KINDS)
def test_no_advice_on_a_tpu_speaks_of_gpus(name: str) -> None:
    assert [lever for lever in levers_on(name, load("v6e")) if OF_GPUS.search(lever)] == []


def test_words_of_gpus_are_found_where_they_belong() -> None:
    assert any(OF_GPUS.search(lever) for lever in KINDS["products"].levers)
    assert any(OF_GPUS.search(lever) for lever in levers_on("compute-far", load("h100")))
    assert levers_on("memory-far", load("h100")) == ADVICE_KINDS["memory-far"].levers


def test_every_kind_of_advice_for_tpus_exists() -> None:
    assert ADVICE.keys() <= ADVICE_KINDS.keys()
    assert LEVERS.keys() <= KINDS.keys()
    assert TPU_KINDS.keys() == KINDS.keys()


def test_levers_for_one_category_are_those_of_the_platform() -> None:
    assert "cuDNN" in levers_for_category("memory", KINDS["memory"], "attention")[0]
    assert levers_for_category("memory", TPU_KINDS["memory"], "attention") == ()
    assert "multiples of 128" in levers_for_category("products", TPU_KINDS["products"], "convolution")[0]


@pytest.mark.parametrize(("chip", "word"), [("v5e", "matrix unit"), ("h100", "vendor's kernel")])
def test_a_program_gets_the_levers_of_the_chip_it_is_compared_with(chip: str, word: str) -> None:
    report = rl.analyze(DATA / "matmul_v5e.hlo.gz", chip)
    (finding,) = [finding for finding in report.findings if finding.kind == "products"]
    assert any(word in lever for lever in finding.levers)


def test_every_lever_for_tpus_is_documented() -> None:
    kinds = [kind for name, kind in TPU_KINDS.items() if kind is not KINDS[name]]
    rules = [words_of(name, "", ("tpu", "jax")) for name in rule_kinds()]
    levers = {lever for words in (*kinds, *rules) for lever in words.levers if lever not in PAGE}
    assert sorted(levers) == []
