"""Chains of kernels inside one program, and what becomes of them: fused, recomputed, or with fewer rows; tables of positions."""

from fractions import Fraction
from pathlib import Path

import pytest
from msgspec.structs import replace

from roofline.analysis.changes import change
from roofline.analysis.changes.state import State
from roofline.analysis.what_if import what_if
from roofline.cost import NOTHING, Cost
from roofline.hlo.price.collectives import Network
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.read import parse
from roofline.hlo.scaling.growth import Program
from roofline.hlo.scaling.hidden import Data
from roofline.hlo.scaling.inputs import dimension_named, dimensions_of
from roofline.hlo.scaling.scaled import scaled
from roofline.hlo.unneeded import Review
from roofline.hlo.unneeded.row_chains import Chain
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.operation import Product, Streamed
from roofline.workload import Avoidable, Op, Recording, Workload

LARGE = 2 * 4096 * 4096  # bytes of the arrays below
SUM = """
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
"""
PARTS = f"""
{SUM}
%minus_body (p0: bf16[4096,4096]) -> bf16[4096,4096] {{
  %p0 = bf16[4096,4096]{{1,0}} parameter(0)
  ROOT %t = bf16[4096,4096]{{1,0}} negate(%p0)
}}

%sum_body (p0: bf16[4096,4096]) -> f32[4096] {{
  %p0 = bf16[4096,4096]{{1,0}} parameter(0)
  %w = f32[4096,4096]{{1,0}} convert(%p0)
  %zero = f32[] constant(0)
  ROOT %s = f32[4096]{{0}} reduce(%w, %zero), dimensions={{AXIS}}, to_apply=%add
}}

%div_body (p0: bf16[4096,4096], p1: f32[4096]) -> bf16[4096,4096] {{
  %p0 = bf16[4096,4096]{{1,0}} parameter(0)
  %p1 = f32[4096]{{0}} parameter(1)
  %n = bf16[4096]{{0}} convert(%p1)
  %b = bf16[4096,4096]{{1,0}} broadcast(%n), dimensions={{0}}
  ROOT %d = bf16[4096,4096]{{1,0}} divide(%p0, %b)
}}
"""
APART = (
    "HloModule apart, is_scheduled=true\n"
    + PARTS
    + """
ENTRY %main (x: bf16[4096,4096]) -> bf16[4096,4096] {
  %x = bf16[4096,4096]{1,0} parameter(0)
  %first = bf16[4096,4096]{1,0} fusion(%x), kind=kLoop, calls=%minus_body
  %second = f32[4096]{0} fusion(%first), kind=kInput, calls=%sum_body
  ROOT %third = bf16[4096,4096]{1,0} fusion(%first, %second), kind=kLoop, calls=%div_body
}
"""
)
PRODUCT_BETWEEN = (
    "HloModule between, is_scheduled=true\n"
    + PARTS
    + """
ENTRY %main (x: bf16[4096,4096], w: bf16[4096,4096]) -> bf16[4096,4096] {
  %x = bf16[4096,4096]{1,0} parameter(0)
  %w = bf16[4096,4096]{1,0} parameter(1)
  %first = bf16[4096,4096]{1,0} fusion(%x), kind=kLoop, calls=%minus_body
  %second = f32[4096]{0} fusion(%first), kind=kInput, calls=%sum_body
  %y = bf16[4096,4096]{1,0} dot(%first, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %third = bf16[4096,4096]{1,0} fusion(%y, %second), kind=kLoop, calls=%div_body
}
"""
)


def chains(text: str, axis: int = 1) -> tuple[list[Chain], list[list[str]]]:
    module = parse(text.replace("AXIS", str(axis)).encode(), "program")
    found = Review(Pricer(module, "gpu", Network.of(None, "gpu"))).chains(module.entry)
    return found, [[module.entry_computation[place].name for place in chain.places] for chain in found]


def test_kernels_that_go_along_the_same_rows_are_one_chain() -> None:
    (chain,), names = chains(APART)
    assert names == [["first", "second", "third"]]
    assert chain.moved == chain.least == 2 * LARGE


def test_what_is_worked_out_of_sums_of_rows_belongs_to_their_chain() -> None:
    """A small kernel between the sum and what takes it, and one whose result nothing but the caller takes."""
    root = "  ROOT %third = bf16[4096,4096]{1,0} fusion(%first, %second), kind=kLoop, calls=%div_body"
    after = """  %norm = f32[4096]{0} negate(%second)
  %third = bf16[4096,4096]{1,0} fusion(%first, %norm), kind=kLoop, calls=%div_body
  %kept = f32[4096]{0} negate(%norm)
  ROOT %both = (bf16[4096,4096]{1,0}, f32[4096]{0}) tuple(%third, %kept)"""
    text = APART.replace(root, after).replace("-> bf16[4096,4096] {\n  %x", "-> (bf16[4096,4096], f32[4096]) {\n  %x")
    (chain,), names = chains(text)
    assert names == [["first", "second", "norm", "kept", "third"]]
    assert (chain.moved, chain.least) == (2 * LARGE + 4 * 4096, 2 * LARGE)


def test_a_sum_across_rows_is_no_part_of_a_chain_nor_what_needs_it() -> None:
    assert chains(APART, axis=0) == ([], [])


def test_what_comes_back_through_a_product_is_no_part_of_a_chain() -> None:
    (chain,), names = chains(PRODUCT_BETWEEN)
    assert names == [["second", "first"]]
    assert chain.moved == 2 * LARGE + 4 * 4096  # what the product takes is written too
    assert chain.least == 2 * LARGE


def test_a_program_whose_kernels_could_be_one_is_faster_fused(tmp_path: Path) -> None:
    path = tmp_path / "apart.hlo"
    path.write_text(APART.replace("AXIS", "1"))
    report = what_if(str(path), "fuse all", "h200")
    times = {op.name: op.time_s or 0.0 for op in report.ops}
    assert times["first"] == times["second"] == 0
    assert 2 * LARGE / 4.9e12 < times["third"] < 0.6 * sum(op.before_s or 0.0 for op in report.ops)
    assert not any("no two kernels" in note for note in report.input.notes)
    path.write_text(PRODUCT_BETWEEN.replace("AXIS", "0"))
    assert any("no two kernels" in note for note in what_if(str(path), "fuse all", "h200").input.notes)


POSITIONS = """
HloModule step, is_scheduled=true

%body (p0: f32[4,8,16], p1: f32[8,16]) -> f32[32,16] {
  %p0 = f32[4,8,16]{2,1,0} parameter(0)
  %p1 = f32[8,16]{1,0} parameter(1)
  %all = f32[4,8,16]{2,1,0} broadcast(%p1), dimensions={1,2}
  %sum = f32[4,8,16]{2,1,0} add(%p0, %all)
  ROOT %flat = f32[32,16]{1,0} reshape(%sum)
}

ENTRY %main (tok: s32[4,8], table: f32[100,16], pos: f32[8,16], w: f32[16,64]) -> f32[32,64] {
  %tok = s32[4,8]{1,0} parameter(0), metadata={op_name="tok"}
  %table = f32[100,16]{1,0} parameter(1), metadata={op_name="P['table']"}
  %pos = f32[8,16]{1,0} parameter(2), metadata={op_name="P['pos']"}
  %w = f32[16,64]{1,0} parameter(3), metadata={op_name="P['w']"}
  %x = f32[4,8,16]{2,1,0} gather(%table, %tok), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, \
slice_sizes={1,16}
  %y = f32[32,16]{1,0} fusion(%x, %pos), kind=kLoop, calls=%body
  ROOT %z = f32[32,64]{1,0} dot(%y, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_a_table_of_positions_is_as_long_as_the_sequence() -> None:
    program = Program(parse(POSITIONS.encode(), "step"))
    assert {one.name for one in dimensions_of(program)} >= {"batch", "sequence"}
    sequence = dimension_named(program, "sequence")
    assert sequence is not None
    shapes = {one.name: one.shape.dims for one in scaled(program, sequence.marks, 2).entry_computation}
    assert shapes == {"tok": (4, 16), "table": (100, 16), "pos": (16, 16), "w": (16, 64), "x": (4, 16, 16), "y": (64, 16), "z": (64, 64)}


def state_of(ops: tuple[Op, ...], programs: dict[str, str]) -> State:
    machine = load("h200")
    modules = {name: parse(text.encode(), name) for name, text in programs.items()}
    return State(Recording(format="xspace", workload=Workload(ops)), modules, machine, calibration_for(machine).for_kernels())


def streamed(name: str, label: str, phase: str = "forward") -> Op:
    cost = Cost.of({"hbm": 2 * LARGE})
    return Op(name=name, label=label, module="apart", cost=cost, time_s=2e-5, phase=phase, operation=Streamed(kind="fusion"))


def test_where_no_layer_is_named_what_occurs_once_is_not_recomputed() -> None:
    ops = (streamed("a", "layer"), streamed("b", "layer"), streamed("c", "loss"), streamed("d", "layer", "backward"))
    state = state_of(ops, {})
    change(state, ["remat", "on"])
    assert [one.beside.name for one in state.added] == ["a", "b"]


def test_a_chain_that_stores_nothing_for_gradients_is_one_kernel_the_first_time() -> None:
    names = ("first", "second", "third")
    ops = (*(streamed(name, name) for name in names), streamed("other", "other", "backward"))
    state = state_of(ops, {"apart": APART.replace("AXIS", "1")})
    change(state, ["remat", "on"])
    (added,) = state.added
    assert added.beside.name == "third"
    assert added.time_s == pytest.approx(1.4 * 2e-5)  # the bytes of one of them instead of three


EXPERTS = (
    "HloModule apart, is_scheduled=true\n"
    + PARTS.replace("AXIS", "1")
    + """
ENTRY %main (x: bf16[4096,4096], u: bf16[4096,4096], w: bf16[4096,4096]) -> bf16[4096,4096] {
  %x = bf16[4096,4096]{1,0} parameter(0)
  %u = bf16[4096,4096]{1,0} parameter(1)
  %w = bf16[4096,4096]{1,0} parameter(2)
  %before = bf16[4096,4096]{1,0} fusion(%x), kind=kLoop, calls=%minus_body
  %up = bf16[4096,4096]{1,0} dot(%before, %u), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %between = bf16[4096,4096]{1,0} fusion(%up), kind=kLoop, calls=%minus_body
  %down = bf16[4096,4096]{1,0} dot(%between, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %after = bf16[4096,4096]{1,0} fusion(%down), kind=kLoop, calls=%minus_body
}
"""
)


def test_what_lies_between_grouped_products_has_as_many_rows_fewer() -> None:
    product = Product(m=4096, k=4096, n=4096, batch=1, left="bf16", right="bf16", out="bf16", compute="bf16")
    cost = Cost.of({"matrix/bf16": product.flops, "hbm": product.bytes})
    reason = Avoidable(kind="dense-experts", instead=cost * Fraction(1, 4), why="", factor=4)
    products = [Op(name=name, module="apart", cost=cost, time_s=3e-4, operation=product, avoidable=(reason,)) for name in ("up", "down")]
    state = state_of((*products, *(streamed(name, name) for name in ("before", "between", "after"))), {"apart": EXPERTS})
    change(state, ["grouped"])
    left = {op.name: float(op.cost.known("hbm")) for op in state.ops}
    assert left["between"] == LARGE / 2  # of 2
    assert left["before"] == left["after"] == 2 * LARGE


def test_changes_that_combine_do_so_in_any_order() -> None:
    train = str(Path(__file__).parent / "data" / "h200" / "pairs" / "train_b4.xplane.pb.gz")
    first, last, alone, flash = (
        next(point.time_s for point in what_if(train, words).points if point.scope == "average" and point.infeed_outfeed)
        for words in ("scale batch=x4 remat on", "remat on scale batch=x4", "kernel attention=flash", "kernel attention=flash fuse all")
    )
    assert first == pytest.approx(last, rel=1e-3)
    assert flash is not None
    assert alone is not None
    assert flash <= alone * 1.0001  # what the kernel replaced is gone, so it is not fused


CAPACITY = """
HloModule experts, is_scheduled=true
SUM
ENTRY %main (x: f32[16,4], up: f32[2,4,6], down: f32[2,6,4]) -> f32[4] {
  %x = f32[16,4]{1,0} parameter(0), metadata={op_name="x"}
  %up = f32[2,4,6]{2,1,0} parameter(1), metadata={op_name="up"}
  %down = f32[2,6,4]{2,1,0} parameter(2), metadata={op_name="down"}
  %minus = f32[16,4]{1,0} negate(%x)
  %groups = f32[2,8,4]{2,1,0} reshape(%minus)
  %h = f32[2,8,6]{2,1,0} dot(%groups, %up), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  %y = f32[2,8,4]{2,1,0} dot(%h, %down), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  %flat = f32[16,4]{1,0} reshape(%y)
  %zero = f32[] constant(0)
  ROOT %all = f32[4]{0} reduce(%flat, %zero), dimensions={0}, to_apply=%add
}
""".replace("SUM", SUM)


def test_more_tokens_fill_the_groups_of_experts_and_more_experts_have_smaller_ones() -> None:
    program = Program(parse(CAPACITY.encode(), "experts"))
    batch = dimension_named(program, "batch")
    assert batch is not None
    shapes = {one.name: one.shape.dims for one in scaled(program, batch.marks, 2).entry_computation}
    assert (shapes["x"], shapes["groups"], shapes["up"], shapes["y"]) == ((32, 4), (2, 16, 4), (2, 4, 6), (2, 16, 4))
    cost = Cost.of({"matrix/fp32": 2 * 2 * 8 * 4 * 6, "hbm": 4 * 2 * (8 * 4 + 4 * 6 + 8 * 6)})
    state = state_of((Op(name="h", module="experts", cost=cost, time_s=1e-5),), {"experts": CAPACITY})
    change(state, ["scale", "experts=x4"])
    after = {one.name: one.shape.dims for one in state.programs["experts"].entry_computation}
    assert (after["x"], after["groups"], after["up"], after["y"]) == ((16, 4), (8, 2, 4), (8, 4, 6), (8, 2, 4))
    assert float(state.ops[0].cost.flops) == float(cost.flops)
    assert float(state.ops[0].cost.known("hbm")) == 4 * 8 * (2 * 4 + 4 * 6 + 2 * 6)
    assert any("up[0], down[0]" in note and "x[0]" not in note for note in state.notes)


def test_storing_what_a_loop_recomputes_takes_no_longer_than_that() -> None:
    remat = str(Path(__file__).parent / "data" / "h200" / "jax_remat.xplane.pb.gz")
    report = what_if(remat, "remat off")
    changed = [op for op in report.ops if op.expected is not None]
    assert changed
    assert all((op.time_s or 0.0) <= (op.before_s or 0.0) * 1.0001 for op in changed)


def test_a_chain_that_stores_values_again_is_several_kernels_the_first_time() -> None:
    reason = Avoidable(kind="recomputation", instead=NOTHING, why="")
    ops = tuple(replace(streamed(name, name, "backward"), avoidable=(reason,)) for name in ("first", "second", "third"))
    state = state_of(ops, {"apart": APART.replace("AXIS", "1")})
    change(state, ["remat", "off"])
    times = [new.time_s for _, new in sorted(state.changed().items())]
    assert times == pytest.approx([0.0, 0.0, 6e-5 - 1.4 * 2e-5])  # what they take less one kernel for all of them


JOINED = """
HloModule joined, is_scheduled=true

%body (p0: bf16[16,8], p1: bf16[16,8], p2: bf16[8,1]) -> bf16[32,1] {
  %p0 = bf16[16,8]{1,0} parameter(0)
  %p1 = bf16[16,8]{1,0} parameter(1)
  %p2 = bf16[8,1]{1,0} parameter(2)
  %both = bf16[32,8]{1,0} concatenate(%p0, %p1), dimensions={0}
  ROOT %y = bf16[32,1]{1,0} dot(%both, %p2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY %main (x: bf16[8,1], u: bf16[16,8], v: bf16[16,8]) -> bf16[32,1] {
  %x = bf16[8,1]{1,0} parameter(0)
  %u = bf16[16,8]{1,0} parameter(1)
  %v = bf16[16,8]{1,0} parameter(2)
  ROOT %y = bf16[32,1]{1,0} fusion(%u, %v, %x), kind=kCustom, calls=%body
}
"""


def test_weights_that_a_kernel_joins_are_weights_for_a_batch_of_one() -> None:
    module = parse(JOINED.encode(), "joined")
    place = module.entry_computation.root
    found = Review(Pricer(module, "gpu", Network.of(None, "gpu"))).product(module.entry, place)
    one = Product(m=32, k=8, n=1, batch=1, left="bf16", right="bf16", out="bf16", compute="bf16")
    assert Data(module, {0}).operation(place, one, found, 4) == replace(one, n=4)
