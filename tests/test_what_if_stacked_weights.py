"""Programs in other number formats: weights that a loop cuts out of the arrays of all layers, and products of uneven sizes."""

from pathlib import Path

import pytest

from hlo_programs import SCANNED_LAYERS
from roofline.analysis.changes import change
from roofline.analysis.changes.state import State
from roofline.analysis.what_if import what_if
from roofline.cost import Cost
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.operation import Product
from roofline.prediction import predict
from roofline.report import Report
from roofline.workload import Op, Recording, Workload

LAYERS, LAYER = 4, 4096 * 8192


def bytes_of(report: Report, name: str) -> float:
    return float(next(op.bytes["hbm"] for op in report.ops if op.name == name))


@pytest.mark.parametrize(("words", "element"), [("dtype int8-weights", 1), ("dtype fp8", 1), ("dtype bf16", 2)])
def test_weights_that_a_loop_cuts_out_of_an_array_take_the_new_format(tmp_path: Path, words: str, element: int) -> None:
    """The kernel that copies a layer's weights reads and writes the new format, and the product reads it."""
    program = tmp_path / "scan.hlo"
    program.write_text(SCANNED_LAYERS)
    after = what_if(str(program), words, machine="h200")
    assert bytes_of(after, "w") == pytest.approx(LAYERS * 2 * LAYER * element, rel=1e-4)
    assert bytes_of(after, "y") == pytest.approx(LAYERS * LAYER * element, rel=0.01)


def test_a_product_of_uneven_sizes_keeps_its_difference_in_another_format() -> None:
    """A vocabulary of 50,257 is no multiple of 16 bytes in either format: libraries take slower kernels for both."""
    machine = load("h200")
    calibration = calibration_for(machine).for_kernels()

    def times(vocabulary: int, slower: float) -> float:
        logits = Product(m=4096, k=1280, n=vocabulary, left="fp32", right="fp32", out="fp32", compute="tf32")
        cost = Cost.of({"matrix/tf32": logits.flops, "hbm": logits.bytes})
        expected = predict(logits, cost, machine, calibration)
        assert expected is not None
        op = Op(name="y", cost=cost, operation=logits, time_s=slower * expected.time_s)
        state = State(Recording(format="xspace", workload=Workload((op,))), {}, machine, calibration)
        change(state, ["dtype", "bf16"])
        return state.changed()[0].time_s

    assert times(50257, 2.5) / times(50257, 1.0) == pytest.approx(2.5**0.85, rel=0.05)
    assert times(50304, 2.5) / times(50304, 1.0) == pytest.approx(2.5 ** (0.4 * 0.85), rel=0.05)
