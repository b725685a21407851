"""Levers speak of the hardware at hand: on TPUs of tiles, the matrix unit, VMEM and flags of the compiler; on GPUs as before."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import roofline as rl
from roofline.analysis.advice_kinds import KINDS as ADVICE_KINDS
from roofline.analysis.advice_rules import levers_on
from roofline.analysis.finding_kinds import KINDS, Kind, levers_for_category
from roofline.analysis.platform_kinds import ADVICE, FASTER, FILL, IN_VMEM, LEVERS, TPU_KINDS
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


@pytest.mark.parametrize(("chip", "word"), [("v5e", "VMEM"), ("h100", "vendor's kernel")])
def test_a_program_gets_the_levers_of_the_chip_it_is_compared_with(chip: str, word: str) -> None:
    report = rl.analyze(DATA / "matmul_v5e.hlo.gz", chip)
    (finding,) = [finding for finding in report.findings if finding.kind == "products"]
    assert any(word in lever for lever in finding.levers)


def test_every_lever_for_tpus_is_documented() -> None:
    kinds = [kind for name, kind in TPU_KINDS.items() if kind is not KINDS[name]]
    rules = [words_of(name, "", ("tpu", "jax")) for name in rule_kinds()]
    levers = {lever for words in (*kinds, *rules) for lever in words.levers if lever not in PAGE}
    assert sorted(levers) == []


def _program(m: int, k: int, n: int) -> str:
    return f"""HloModule jit_f, is_scheduled=true

ENTRY %main (a: bf16[{m},{k}], b: bf16[{k},{n}]) -> bf16[{m},{n}] {{
  %a = bf16[{m},{k}]{{1,0:T(8,128)(2,1)}} parameter(0)
  %b = bf16[{k},{n}]{{1,0:T(8,128)(2,1)}} parameter(1)
  ROOT %dot = bf16[{m},{n}]{{1,0:T(8,128)(2,1)}} convolution(%a, %b), dim_labels=bf_io->bf
}}
"""


def _levers(tmp_path: Path, program: str, chip: str, kind: str) -> tuple[str, ...]:
    (tmp_path / "f.hlo").write_text(program)
    (finding,) = [finding for finding in rl.analyze(tmp_path / "f.hlo", chip).findings if finding.kind == kind]
    return finding.levers


@pytest.mark.parametrize(("chip", "k", "is_told"), [("v6e", 4096, False), ("v6e", 1000, False), ("v6e", 1100, True), ("v5e", 1100, False)])
def test_sizes_that_fill_the_matrix_unit_are_not_to_be_changed(tmp_path: Path, chip: str, k: int, is_told: bool) -> None:
    # 1000 of 1024 rows are 98%; 1100 are 86% of 1280, five times the rows of a v6e, but 95% of 1152, nine times those of a v5e.
    assert (FILL in _levers(tmp_path, _program(4096, k, 4096), chip, "products")) is is_told


@pytest.mark.parametrize(("chip", "is_told"), [("v2", False), ("v4", False), ("v5e", True), ("v6e", True), ("v7x", True)])
def test_a_faster_format_is_named_where_the_chip_has_one(tmp_path: Path, chip: str, is_told: bool) -> None:
    assert (FASTER in _levers(tmp_path, _program(4096, 4096, 4096), chip, "products")) is is_told


STREAM = """HloModule jit_f, is_scheduled=true

ENTRY %main (a: f32[8192,4096]) -> f32[8192,4096] {
  %a = f32[8192,4096]{1,0:T(8,128)} parameter(0)
  %first = f32[8192,4096]{1,0:T(8,128)SPACE} exponential(%a)
  ROOT %second = f32[8192,4096]{1,0:T(8,128)} add(%first, %first)
}
"""


@pytest.mark.parametrize(("space", "is_told"), [("", True), ("S(1)", False)])
def test_a_program_whose_intermediates_stay_in_vmem_is_not_told_to_fuse(tmp_path: Path, space: str, is_told: bool) -> None:
    assert (IN_VMEM in _levers(tmp_path, STREAM.replace("SPACE", space), "v5e", "memory")) is is_told


def test_without_times_what_takes_longest_at_least_is_told_first(tmp_path: Path) -> None:
    # A product of 4096^3 takes 698 us at 197 TFLOP/s, negating half as many elements before it 41 us at 819 GB/s.
    program = _program(4096, 4096, 4096).replace(
        "  ROOT %dot",
        "  %c = bf16[4096,2048]{1,0:T(8,128)(2,1)} parameter(2)\n  %less = bf16[4096,2048]{1,0:T(8,128)(2,1)} negate(%c)\n  ROOT %dot",
    )
    (tmp_path / "f.hlo").write_text(program)
    kinds = [finding.kind for finding in rl.analyze(tmp_path / "f.hlo", "v5e").findings]
    assert kinds.index("products") < kinds.index("memory")
