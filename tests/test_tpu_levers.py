"""Levers speak of the hardware at hand: on TPUs of tiles, the matrix unit, VMEM and flags of the compiler; on GPUs as before."""

import re
from itertools import chain
from pathlib import Path

import pytest

import roofline as rl
from every import every
from roofline.rules.words import kinds, page, words_of

# Words of GPUs and of their libraries.
OF_GPUS = re.compile(
    r"cudnn|cublas|cutlass|triton|hopper|flashinfer|\bncu\b|--counters|occupancy|coalesc|\bwarps?\b|\bwaves?\b|\bSMs?\b|tf32|tensor cores?|"
    r"ops\.gpu|chip has cores|more blocks than|vendor's|pinned|CUDA|shared memory",
    re.IGNORECASE,
)
# Hardware counters and launches show these on NVIDIA GPUs alone; the rules of the groups are about GPUs, or about PyTorch.
COUNTED = {
    "few-blocks", "uneven-blocks", "scattered-access", "bank-conflicts", "spilled-registers", "local-arrays", "contended-atomics",
    "divergence", "low-occupancy", "narrow-access", "cache-traffic", "block-sizes",
}  # fmt: skip
ELSEWHERE = {
    ("wide-format", "full fp32"), ("wide-format", "dequantized cache"), ("unused-results", "sampled"), ("layout-copies", "pages"),
    ("layout-copies", "depthwise"), ("low-batch", "images"),
}  # fmt: skip


TPU = ("tpu", "jax")


@every("name", sorted({*kinds()} - COUNTED))
def test_nothing_said_of_a_tpu_speaks_of_gpus(name: str) -> None:
    for group in ("",) if name.startswith("idle") else ("", *page(name).groups):  # groups of idle time are of GPUs, and of PyTorch
        words = words_of(name, group, TPU)
        sentences = (words.title, words.change, words.observation, *words.levers, *chain.from_iterable(words.cases.values()))
        assert (name, group) in ELSEWHERE or [sentence for sentence in sentences if OF_GPUS.search(sentence)] == []


def test_levers_for_one_category_are_those_of_the_platform() -> None:
    assert "cuDNN" in page("memory").cases["attention"][0]
    assert "attention" not in words_of("memory", "", TPU).cases
    assert "multiples of 128" in words_of("products", "", TPU).cases["convolution"][0]


@every(("chip", "word"), [("v5e", "VMEM"), ("h100", "vendor's kernel")])
def test_a_program_gets_the_levers_of_the_chip_it_is_compared_with(chip: str, word: str, tmp_path: Path) -> None:
    assert any(word in lever for lever in _levers(tmp_path, _program(4096, 4096, 4096), chip, "products"))


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
    assert (words_of("products", "", TPU).cases["fill"][0] in _levers(tmp_path, _program(4096, k, 4096), chip, "products")) is is_told


@pytest.mark.parametrize(("chip", "is_told"), [("v2", False), ("v4", False), ("v5e", True), ("v6e", True), ("v7x", True)])
def test_a_faster_format_is_named_where_the_chip_has_one(tmp_path: Path, chip: str, is_told: bool) -> None:
    assert (words_of("products", "", TPU).cases["faster"][0] in _levers(tmp_path, _program(4096, 4096, 4096), chip, "products")) is is_told


STREAM = """HloModule jit_f, is_scheduled=true

ENTRY %main (a: f32[8192,4096]) -> f32[8192,4096] {
  %a = f32[8192,4096]{1,0:T(8,128)} parameter(0)
  %first = f32[8192,4096]{1,0:T(8,128)SPACE} exponential(%a)
  ROOT %second = f32[8192,4096]{1,0:T(8,128)} add(%first, %first)
}
"""


@pytest.mark.parametrize(("space", "is_told"), [("", True), ("S(1)", False)])
def test_a_program_whose_intermediates_stay_in_vmem_is_not_told_to_fuse(tmp_path: Path, space: str, is_told: bool) -> None:
    assert (
        words_of("memory", "", TPU).cases["in vmem"][0] in _levers(tmp_path, STREAM.replace("SPACE", space), "v5e", "memory")
    ) is is_told


def test_without_times_what_takes_longest_at_least_is_told_first(tmp_path: Path) -> None:
    # A product of 4096^3 takes 698 us at 197 TFLOP/s, negating half as many elements before it 41 us at 819 GB/s.
    program = _program(4096, 4096, 4096).replace(
        "  ROOT %dot",
        "  %c = bf16[4096,2048]{1,0:T(8,128)(2,1)} parameter(2)\n  %less = bf16[4096,2048]{1,0:T(8,128)(2,1)} negate(%c)\n  ROOT %dot",
    )
    (tmp_path / "f.hlo").write_text(program)
    kinds = [finding.kind for finding in rl.analyze(tmp_path / "f.hlo", "v5e").findings]
    assert kinds.index("products") < kinds.index("memory")


@pytest.mark.parametrize(("chip", "is_told"), [("v5e", False), ("v6e", True), ("v7x", True)])
def test_bf16_is_advised_for_the_vector_unit_where_it_computes_that_faster(tmp_path: Path, chip: str, is_told: bool) -> None:
    loop = " ".join(f"%s{n} = f32[64,128]{{1,0:T(8,128)S(1)}} sine(%s{n - 1})" + "\n" for n in range(1, 40))
    program = f"""HloModule jit_f, is_scheduled=true

ENTRY %main (a: f32[64,128]) -> f32[64,128] {{
  %s0 = f32[64,128]{{1,0:T(8,128)S(1)}} parameter(0)
  {loop}
  ROOT %r = f32[64,128]{{1,0:T(8,128)S(1)}} add(%s39, %s39)
}}
"""
    lever = words_of("compute", "", TPU).cases["narrow"][0]
    assert (lever in _levers(tmp_path, program, chip, "compute")) is is_told
