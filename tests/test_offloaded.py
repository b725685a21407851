"""Saved tensors that are copied to the host and back, and convolutions that run image by image, in traces of PyTorch."""

from pathlib import Path

import pytest

from roofline.report import Finding
from torch_writer import BACKWARD, MAIN, NODE, TorchTrace, report_on

SAVED = (1024, 4096)  # 8 MiB in bf16, which takes 200 µs to the host


def copied(trace: TorchTrace, at: float, way: str, ran: float, thread: int) -> None:
    trace.op("aten::copy_", at, 9, [SAVED, SAVED], thread=thread)
    call = trace.launch(at + 1, "cudaMemcpyAsync", 2, thread=thread)
    trace.ran(f"Memcpy {way}", ran, 200, call, cat="gpu_memcpy", bytes=2 * SAVED[0] * SAVED[1])


@pytest.mark.parametrize("back", [True, False])
def test_tensors_that_come_back_in_the_backward_pass_were_saved(tmp_path: Path, back: bool) -> None:
    trace = TorchTrace()
    for begin in trace.steps(4, 2000):
        trace.frame("train.py(7): step", begin, 1998)
        trace.product(begin + 10, 9, launched=begin + 11, ran=begin + 20, took=300, tensors=[(1024, 1024), (1024, 4096)])
        copied(trace, begin + 30, "DtoH (Device -> Pinned)", begin + 320, MAIN)
        trace.op(f"{NODE}MmBackward0", begin + 100, 90, thread=BACKWARD)
        if back:
            copied(trace, begin + 110, "HtoD (Pinned -> Device)", begin + 520, BACKWARD)
        trace.product(
            begin + 130, 9, launched=begin + 131, ran=begin + 720, took=1270, tensors=[(1024, 4096), (4096, 1024)], thread=BACKWARD
        )
    found = [one for one in report_on(trace, tmp_path).findings if "saved for the backward pass" in one.message]
    assert bool(found) == back
    if found:
        assert found[0].saving_per_step_s == pytest.approx(400e-6, rel=0.01)
        assert "8.4 MB in each step" in found[0].message, "1,024 rows of 4,096 in bf16"


def convolved(folder: Path, kernels: int) -> list[Finding]:
    """Four steps with a convolution of 16 images that runs so many kernels, of 160 µs together."""
    trace = TorchTrace()
    for begin in trace.steps(4, 1000):
        trace.op(
            "aten::convolution",
            begin + 10,
            180,
            [(16, 64, 56, 56), (64, 64, 3, 3)],
            values=["", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"],
        )
        for number in range(kernels):
            trace.run("im2col", launched=begin + 11 + number * 160 / kernels, start=begin + 20 + number * 160 / kernels, dur=160 / kernels)
    return [one for one in report_on(trace, folder).findings if "without cuDNN" in one.message]


@pytest.mark.parametrize("kernels", [16, 48])
def test_a_convolution_with_a_kernel_for_each_image_runs_without_cudnn(tmp_path: Path, kernels: int) -> None:
    (found,) = convolved(tmp_path, kernels)
    assert f"{kernels} kernels for a batch of 16 images" in found.message
    assert "torch.backends.cudnn.enabled = True" in found.levers[0]


def test_a_convolution_of_a_few_kernels_is_the_librarys(tmp_path: Path) -> None:
    assert not convolved(tmp_path, 4)
