"""What if a program adds to places of an array in bf16: XLA's kernels on GPUs take longer for that than in fp32."""

from pathlib import Path

import pytest

from program_texts import program_text
from roofline.analysis.what_if import what_if
from roofline.report import OpInfo, Report
from torch_writer import Kernels, steps_of

PROGRAM = program_text("what_if_scatters/program.hlo")
DIMENSIONS = "update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"


def after(tmp_path: Path, rows: int, number: str = "bf16", combined: str = "add(%a, %b)") -> tuple[Report, OpInfo]:
    file = tmp_path / "step.hlo"
    file.write_text(PROGRAM.replace("DIMENSIONS", DIMENSIONS).replace("ROWS", str(rows)).replace("COMBINED", combined), encoding="utf-8")
    report = what_if(file, f"dtype {number}", "h200")
    return report, next(op for op in report.ops if op.name == "gradient")


def test_rows_added_to_a_large_table_take_so_long_for_each_number(tmp_path: Path) -> None:
    report, op = after(tmp_path, 30522)
    assert op.time_s == pytest.approx(101e-6, rel=0.05)  # as measured
    assert any("keep it in fp32" in note for note in report.input.notes)


def test_rows_added_to_a_few_places_wait_for_each_other(tmp_path: Path) -> None:
    _, two = after(tmp_path, 2)
    assert two.time_s == pytest.approx(21.2e-3, rel=0.05)  # as measured
    _, more = after(tmp_path, 16)
    assert more.time_s == pytest.approx((two.time_s or 0.0) / 8, rel=0.01)


def test_what_is_only_put_in_its_place_moves_half_the_bytes(tmp_path: Path) -> None:
    for number, combined in (("bf16", "copy(%b)"), ("fp16", "add(%a, %b)")):
        report, op = after(tmp_path, 2, number, combined)
        assert op.time_s < 0.7 * op.before_s
        assert not any("keep it in fp32" in note for note in report.input.notes)


@pytest.mark.parametrize(("took_us", "share"), [(600, 1.0), (130, 0.5)])
def test_kernels_of_pytorch_that_take_their_time_by_element_keep_it(tmp_path: Path, took_us: int, share: float) -> None:
    # 100,000 rows of 768 fp32 read and written, with their indices: 615 MB, 128 µs at 4.8 TB/s.
    rows = (100_000, 768)

    def layer(kernels: Kernels) -> None:
        kernels.op("aten::mm", [rows, (768, 768)], dtype="float")
        kernels.trace.op("aten::index_select", kernels.at, 5, [rows, (), (100_000,)], types=["float", "Scalar", "long int"])
        kernels.trace.events[-1]["args"]["Concrete Inputs"][1] = "0"
        kernels.trace.run("index", launched=kernels.at + 1, start=kernels.ran, dur=took_us)

    report = what_if(steps_of(layer).write(tmp_path / "trace.json"), "dtype bf16")
    (gather,) = (op for op in report.ops if "index_select" in op.name)
    assert gather.time_s == pytest.approx((gather.before_s or 0.0) * share, rel=0.1)
