"""Programs of the TPU compiler in the operators that were written."""

from pathlib import Path

import pytest

from every import every
from program_texts import program_text
from roofline.cost import Cost
from roofline.errors import SourceError
from roofline.hlo.ir.module import HloModule
from roofline.hlo.ir.values import Values
from roofline.hlo.lower import as_written
from roofline.hlo.price.collectives import Network
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.price.program import running
from roofline.hlo.read import parse, parse_all
from roofline.hlo.review.kernels import Kernels
from roofline.machines import load
from roofline.sources import read
from roofline.sources.files import all_of

DATA = Path(__file__).parent / "data"
COMPILED = sorted((*DATA.glob("tpu/*.hlo*.gz"), *DATA.glob("rules/*.hlo.gz")))

BATCHED = program_text("lower/batched.hlo")


def pricer(module: HloModule) -> Pricer:
    return Pricer(module, "tpu", Network.of(None, "tpu"))


def matrix(cost: Cost) -> dict[str, object]:
    return {resource.name: amount for resource, amount in cost.amounts if resource.unit == "matrix"}


@every("path", COMPILED)
def test_each_kernel_has_the_same_place_and_the_same_products(path: Path) -> None:
    for module in parse_all(all_of(path), path.name):
        written = as_written(module)
        before, after = ({(one.computation, one.index): one for one in running(pricer(each))} for each in (module, written))
        assert before.keys() == after.keys()
        for place, kernel in before.items():
            assert kernel.instruction.name == after[place].instruction.name
            assert matrix(kernel.price.cost) == matrix(after[place].price.cost)


@every("path", COMPILED)
def test_no_kernel_has_a_fusion_inside(path: Path) -> None:
    for module in parse_all(all_of(path), path.name):
        written = as_written(module)
        bodies = {call.computation for each in written for one in each if one.opcode == "fusion" for call in one.calls}
        run = {number for number in range(len(written.computations)) if number not in bodies}
        direct = {
            call.computation for number in run for one in written.computations[number] for call in one.calls if one.opcode == "fusion"
        }
        assert not any(one.opcode == "fusion" for number in direct for one in written.computations[number])


def test_a_convolution_that_moves_along_an_axis_is_a_batch_of_products() -> None:
    written = as_written(parse(BATCHED, "batched"))
    kernels = Kernels(pricer(written), Values(written), written.entry)
    product = kernels.product(2)
    assert product is not None
    assert str(product) == "4×(512×64×256)"
    assert (product.dims.lhs_batch, product.dims.rhs_batch) == ((0,), (0,))
    assert (product.dims.lhs_contracting, product.dims.rhs_contracting) == ((2,), (2,))


def test_a_convolution_whose_windows_overlap_stays_one() -> None:
    text = """HloModule conv, is_scheduled=true
ENTRY %main {
  %x = bf16[8,32,32,64]{3,2,1,0:T(8,128)(2,1)} parameter(0)
  %w = bf16[3,3,64,64]{3,2,1,0:T(8,128)(2,1)} parameter(1)
  ROOT %y = bf16[8,32,32,64]{3,2,1,0:T(8,128)(2,1)} convolution(%x, %w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
}
"""
    module = parse(text, "conv")
    assert [one.opcode for one in as_written(module).entry_computation] == ["parameter", "parameter", "convolution"]


def _body_of_product(text: str) -> list[tuple[str, str]]:
    """The opcodes and shapes of the body of a program's only kernel."""
    written = as_written(parse(text, "product"))
    (kernel,) = [kernel for kernel in written.entry_computation if kernel.opcode == "fusion"]
    return [(part.opcode, str(part.shape)) for part in written.computations[kernel.calls[0].computation]]


def test_the_rows_of_a_product_are_those_of_the_operand_whose_axes_come_first_in_the_result() -> None:
    text = """HloModule turned, is_scheduled=true
ENTRY %main {
  %x = bf16[512,64]{1,0:T(8,128)(2,1)} parameter(0)
  %w = bf16[64,256]{1,0:T(8,128)(2,1)} parameter(1)
  ROOT %y = bf16[256,512]{0,1:T(8,128)(2,1)} convolution(%x, %w), dim_labels=bf_io->fb
}
"""
    assert _body_of_product(text)[2:] == [("dot", "bf16[256,512]{0,1:T(8,128)(2,1)}")]


def test_a_product_whose_result_is_in_another_order_is_transposed_after_it() -> None:
    text = """HloModule turned, is_scheduled=true
ENTRY %main {
  %x = bf16[8,64,32] parameter(0)
  %w = bf16[32,16,1] parameter(1)
  ROOT %y = bf16[64,16,8]{1,2,0} convolution(%x, %w), window={size=1}, dim_labels=0bf_io0->bf0
}
"""
    # The columns of w are in the middle. In memory the axes of the dot have the order of the result: nothing moves.
    sizes = [shape for opcode, shape in _body_of_product(text) if opcode in ("dot", "transpose")]
    assert sizes == ["bf16[16,8,64]{0,1,2}", "bf16[64,16,8]{1,2,0}"]


def test_fusions_that_double_at_every_depth_are_left_as_they_are(tmp_path: Path) -> None:
    # 30 bodies, each of which calls the next one twice: 2^30 sums, if all were written out.
    bodies = [
        f"%f{depth} {{\n  %p = bf16[8,128]{{1,0}} parameter(0)\n"
        f"  %a = bf16[8,128]{{1,0}} fusion(%p), kind=kLoop, calls=%f{depth + 1}\n"
        f"  ROOT %b = bf16[8,128]{{1,0}} fusion(%a), kind=kLoop, calls=%f{depth + 1}\n}}\n"
        for depth in range(30)
    ]
    last = "%f30 {\n  %p = bf16[8,128]{1,0} parameter(0)\n  ROOT %s = bf16[8,128]{1,0} add(%p, %p)\n}\n"
    entry = "ENTRY %main {\n  %x = bf16[8,128]{1,0} parameter(0)\n  ROOT %y = bf16[8,128]{1,0} fusion(%x), kind=kLoop, calls=%f0\n}\n"
    path = tmp_path / "step.hlo"
    path.write_text("\n".join(["HloModule doubled, is_scheduled=true\n", *bodies, last, entry]))
    module = parse(path.read_bytes(), "doubled")
    assert as_written(module) is module
    assert [op.name for op in read(path, load("v5e")).workload] == ["y"]


def test_a_damaged_attribute_leaves_the_program_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "step.hlo"
    path.write_text(BATCHED.replace("dim_labels=0bf_0oi->0bf", "dim_labels=damaged"))
    with pytest.raises(SourceError, match="damaged"):  # as pricing says, with the line
        read(path, load("v5e"))


def test_a_convolution_whose_labels_do_not_fit_its_arrays_is_left_as_it_is() -> None:
    module = parse(BATCHED.replace("dim_labels=0bf_0oi->0bf", "dim_labels=01bf_01oi->01bf"), "batched")
    assert {one.opcode for computation in as_written(module) for one in computation} >= {"convolution"}


def test_an_inner_fusion_with_an_operand_less_than_its_body_needs_is_left_as_it_is() -> None:
    module = parse(
        program_text("lower/an_inner_fusion_with_an_operand_less_than_its_body_needs_is_left_as_it_is.hlo"),
        "m.hlo",
    )
    (outer,) = [computation for computation in as_written(module) if computation.name == "outer"]
    assert [one.opcode for one in outer] == ["parameter", "fusion"]
