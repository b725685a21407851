"""Weights of all layers in one array: copying a layer's out of it before a matmul is not needed."""

from every import every
from evidence import reviewed_program
from hlo_programs import SCANNED_LAYERS
from program_texts import program_text
from roofline.cost import NOTHING
from roofline.hlo.read import parse
from roofline.workload import Avoidable


def stacked(text: str) -> dict[str, Avoidable]:
    """The copies of slices that a program does not need, by their kernels."""
    ops = reviewed_program(parse(text.encode(), "scan"), "gpu")
    return {op.name: one for op in ops for one in op.avoidable if one.group == "stacked"}


def test_a_loop_copies_the_weights_of_each_layer() -> None:
    found = stacked(SCANNED_LAYERS)
    assert list(found) == ["w"]
    assert (found["w"].kind, found["w"].instead, found["w"].unneeded) == ("layout-copies", NOTHING, "copied")


@every(
    ("old", "new"),
    [
        ("tuple(%j, %next, %ws)", "tuple(%j, %next, %changed)"),  # the loop updates them, so they are no argument in its trips
        ("ROOT %layer = bf16[4096,8192]{1,0} bitcast(%cut)", "%flat = bf16[4096,8192]{1,0} bitcast(%cut)\n  ROOT %layer = "
         "bf16[4096,8192]{1,0} negate(%flat)"),  # it computes something
    ],
)  # fmt: skip
def test_other_kernels_are_needed(old: str, new: str) -> None:
    changed = "%changed = bf16[4,4096,8192]{2,1,0} negate(%ws)\n  ROOT %out ="
    text = SCANNED_LAYERS.replace(old, new)
    assert text != SCANNED_LAYERS
    assert not stacked(text.replace("ROOT %out = (", f"{changed} (") if "%changed" in new else text)


def test_a_slice_with_gaps_is_copied_for_a_reason() -> None:
    """Of weights [rows, layers, columns] a layer's rows lie apart."""
    text = SCANNED_LAYERS.replace("bf16[4,4096,8192]", "bf16[4096,4,8192]").replace("bf16[1,4096,8192]", "bf16[4096,1,8192]")
    text = text.replace("%p1, %zero, %zero), dynamic_slice_sizes={1,4096,8192}", "%zero, %p1, %zero), dynamic_slice_sizes={4096,1,8192}")
    assert not stacked(text)


def test_an_indexed_layer_is_copied_outside_of_loops_too() -> None:
    text = program_text("stacked_arguments/an_indexed_layer_is_copied_outside_of_loops_too.hlo")
    assert list(stacked(text)) == ["second"]


def test_a_layer_that_every_trip_of_a_loop_copies_is_one_of_stacked_weights() -> None:
    """A decoder that indexes its layers one by one, in a loop over tokens: an array per layer helps more than one copy before the loop."""
    text = SCANNED_LAYERS.replace("fusion(%ws, %i), kind=kLoop, calls=%sliced", "fusion(%ws, %one), kind=kLoop, calls=%sliced")
    text = text.replace("  %one = s32[] constant(1)\n", "").replace("  %w = ", "  %one = s32[] constant(1)\n  %w = ")
    (op,) = [op for op in reviewed_program(parse(text.encode(), "scan"), "gpu") if op.name == "w"]
    assert [(one.kind, one.group) for one in op.avoidable if one.unneeded] == [("layout-copies", "stacked")]
