"""Kernels of a program's own whose blocks leave cores idle, by what a profile states of their launches."""

from pathlib import Path

import pytest

from roofline.blocks.waves import even_share, streamed_share
from roofline.report import Finding, Report
from torch_writer import TorchTrace, report_on

TILES = {"grid": (140, 1, 1), "block": [256, 1, 1], "registers per thread": 204, "shared memory": 147456}


def report(tmp_path: Path, name: str, *, dur: float = 160, **launch: object) -> Report:
    """A profile of three steps, of one kernel each, on an H200 with 132 SMs."""
    trace = TorchTrace()
    for begin in trace.steps(3, 200):
        trace.run(name, launched=begin + 1, start=begin + 10, dur=dur, **{**TILES, **launch})
    return report_on(trace, tmp_path)


def told(found: Report) -> Finding | None:
    return next((finding for finding in found.findings if finding.kind == "block-sizes"), None)


def test_a_last_round_of_few_blocks_is_told(tmp_path: Path) -> None:
    # 8 blocks of 140 are left for a second round. If memory limits the kernel, these SMs take their bytes at 64 B a cycle and SM.
    finding = told(report(tmp_path, "matmul_kernel"))
    assert finding is not None
    assert finding.message.startswith("matmul_kernel has 140 blocks for 132 SMs with room for 1 each, so the last round")
    assert finding.message.endswith("Use blocks that fill all SMs evenly: the step would take 174 µs.")
    assert finding.saving_s == pytest.approx(3 * 160e-6 * (1 - streamed_share(140, 132, 1, 3.7)), rel=0.1)
    assert "roofline blocks" in finding.levers[0]


@pytest.mark.parametrize(
    "launch",
    [
        {"grid": (132, 1, 1)},  # each SM has one
        {"grid": (1320, 1, 1)},
        {"grid": (8000, 2, 1)},  # the last round is a small part
        {"dur": 8},  # as short as a launch
        {"name": "void at::native::elementwise_kernel<128, 4>(int)"},  # PyTorch's and the libraries' blocks are not the author's
        {"name": "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NTT"},
        {"name": "cudnn_generated_fort_native_sdpa_sm90_flash_fprop"},
        {"grid": (300, 1, 1), "registers per thread": 32, "shared memory": 0},  # all run at once, and may share the rate of memory
    ],
)
def test_kernels_that_fill_the_cores_are_not_told(tmp_path: Path, launch: dict[str, object]) -> None:
    name = str(launch.pop("name", "matmul_kernel"))
    assert told(report(tmp_path, name, **launch)) is None  # type: ignore[arg-type]


def test_blocks_fill_cores_evenly_where_each_has_as_many() -> None:
    assert even_share(264, 132) == streamed_share(264, 132, 2, 3.0) == 1
    assert even_share(32, 132) == pytest.approx(32 / 132)
    # 66 SMs take all that main memory gives if each can take twice its part.
    assert streamed_share(66, 132, 1, 2.0) == pytest.approx(1)
    assert streamed_share(66, 132, 1, 1.0) == pytest.approx(0.5)
