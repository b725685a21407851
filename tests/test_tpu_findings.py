"""Findings of TPU programs: true, about what their authors can change, and doubts that cannot change the answer at the end."""

from pathlib import Path

import pytest

import roofline as rl
from every import every
from hlo_programs import SHARED

DATA = Path(__file__).parent / "data" / "tpu"
DOUBTS = {"unrated", "unknown"}


def _kinds(path: Path, chip: str | None = None) -> list[str]:
    return [finding.kind for finding in rl.analyze(path, chip).findings]


@every("chip", ["v2", "v3", "v4", "v5e", "v5p", "v6e", "v7x"])
def test_the_first_finding_is_about_the_program(chip: str) -> None:
    # A missing rate of VMEM or of the vector unit cannot make a product of 2048^3 wait for it.
    assert _kinds(DATA / f"matmul_{chip}.hlo.gz")[0] not in DOUBTS


@pytest.mark.parametrize(
    ("name", "chip"),
    [("conv_v5e.hlo.gz", "v5e"), ("s_undonated.hlo.gz", "v5e"), ("more/attention_v6e.pb.gz", "v6e"), ("more/embedding_v5e.pb.gz", "v5e")],
)
def test_doubts_about_shared_programs_come_last(name: str, chip: str) -> None:
    if not (SHARED / "tpu" / name).is_file():
        pytest.skip("the shared programs are not here")
    kinds = _kinds(SHARED / "tpu" / name, chip)
    assert kinds[0] not in DOUBTS
    told = [kind for kind in kinds if kind not in DOUBTS]
    assert kinds[: len(told)] == told


def test_the_shared_sharded_step_has_no_unused_results() -> None:
    if not (SHARED / "tpu" / "sharded_v5p_2x2x2.hlo.gz").is_file():
        pytest.skip("the shared programs are not here")
    assert not {"unused-results", "duplicated-work"} & {*_kinds(SHARED / "tpu" / "sharded_v5p_2x2x2.hlo.gz", "v5p")}


def test_activations_that_are_offloaded_are_copied_to_the_host_by_an_unrolled_loop_too() -> None:
    found = {finding.kind for finding in rl.analyze(DATA / "offloaded_layers_v5e.hlo.pb.gz", "v5e").findings}
    assert "host-copies" in found
    assert "layout-copies" not in found
