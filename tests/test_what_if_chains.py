"""Chains of kernels inside one program, and what becomes of them: fused, recomputed, or with fewer rows; tables of positions."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from every import every
from program_texts import program_text
from roofline.analysis.changes import change
from roofline.analysis.changes.fuse import fused_s, instructions
from roofline.analysis.changes.state import State
from roofline.analysis.what_if import measured_source, what_if
from roofline.cost import NOTHING, Cost
from roofline.graph.row_chains import Chain, row_chains
from roofline.hlo.price.collectives import Network
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.read import parse
from roofline.hlo.review import Review
from roofline.hlo.scaling.batch_of_one import Data
from roofline.hlo.scaling.growth import Program
from roofline.hlo.scaling.named_dimensions import dimension_named, dimensions_of
from roofline.hlo.scaling.scaled import scaled
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.operation import Label, Product, RowWise, Streamed
from roofline.sources.embedded import programs_behind
from roofline.workload import Array, Avoidable, Op, Recording, Workload

LARGE = 2 * 4096 * 4096  # bytes of the arrays below
SUM = """
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
"""
PARTS = program_text("what_if_chains/parts.hlo", SUM=SUM)
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
PRODUCT_BETWEEN = "HloModule between, is_scheduled=true\n" + PARTS + program_text("what_if_chains/product_between.hlo")


def chains(text: str, axis: int = 1) -> tuple[list[Chain], list[list[str]]]:
    review = Review.of(parse(text.replace("AXIS", str(axis)).encode(), "program"), "gpu")
    program, ops = review.graph(), review.workload().ops
    assert program is not None
    found = row_chains(program.graph)
    return found, [[ops[op].name for kernel in chain.kernels for op in program.ops[kernel]] for chain in found]


def test_kernels_that_go_along_the_same_rows_are_one_chain() -> None:
    (chain,), names = chains(APART)
    assert names == [["first", "second", "third"]]
    assert chain.moved == chain.least == 2 * LARGE
    assert chain.sums == 1


def test_sums_of_a_row_that_need_each_other_are_finished_one_after_the_other() -> None:
    """As the maximum and the sum of a softmax; a kernel that finishes one itself shows how fast such kernels are."""
    root = "  ROOT %third = bf16[4096,4096]{1,0} fusion(%first, %second), kind=kLoop, calls=%div_body"
    again = """  %third = bf16[4096,4096]{1,0} fusion(%first, %second), kind=kLoop, calls=%div_body
  %fourth = f32[4096]{0} fusion(%third), kind=kInput, calls=%sum_body
  ROOT %fifth = bf16[4096,4096]{1,0} fusion(%third, %fourth), kind=kLoop, calls=%div_body"""
    (chain,), _ = chains(APART.replace(root, again))
    assert chain.sums == 2
    norm = program_text("what_if_chains/sums_of_a_row_that_need_each_other_are_finished_one_after_the_other.hlo")
    last = again.replace("ROOT %fifth", "%fifth") + "\n  ROOT %sixth = bf16[4096,4096]{1,0} fusion(%fifth), kind=kCustom, calls=%norm_body"
    (chain,), _ = chains(APART.replace(root, last).replace("ENTRY", norm))
    assert chain.sums == 0


def test_a_residual_around_a_norm_is_one_more_row_to_hold() -> None:
    """What the chain makes before a norm and adds after it has to stay on chip; what comes from outside is read again."""
    module = program_text("what_if_chains/a_residual_around_a_norm_is_one_more_row_to_hold.hlo")
    for residual, held in (("first", 1), ("x", 0), ("norm", 0)):
        (chain,), names = chains(module.replace("RESIDUAL", residual))
        assert names == [["first", "norm", "gate", "last"]]
        assert chain.sums == held


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


def test_a_chain_inside_a_program_is_fused_once(tmp_path: Path) -> None:
    """Though its kernels also take arguments of the program and give its results, as those of programs that follow each other."""
    path = tmp_path / "apart.hlo"
    path.write_text(f"""HloModule apart, is_scheduled=true
{PARTS.replace("AXIS", "1")}
ENTRY %main (x: bf16[4096,4096]) -> (bf16[4096,4096], bf16[4096,4096]) {{
  %x = bf16[4096,4096]{{1,0}} parameter(0)
  %first = bf16[4096,4096]{{1,0}} fusion(%x), kind=kLoop, calls=%minus_body
  %last = bf16[4096,4096]{{1,0}} fusion(%first), kind=kLoop, calls=%minus_body
  ROOT %both = (bf16[4096,4096]{{1,0}}, bf16[4096,4096]{{1,0}}) tuple(%first, %last)
}}
""")
    recording, machine = measured_source(str(path), "h200")
    array = Array("bf16[4096,4096]", LARGE)
    ops = tuple(replace(op, takes=(array,), gives=(array,)) for op in recording.workload)
    recording = replace(recording, workload=Workload(ops))
    state = State(recording, dict(programs_behind(recording, machine, str(path))), machine, calibration_for(machine).for_kernels())
    change(state, ["fuse", "all"])
    assert sum(float(op.cost.known("hbm")) for op in state.ops) == 3 * LARGE


@every(("opcode", "written"), [("exponential", 0), ("tanh", LARGE)])
def test_a_cheap_value_is_computed_again_rather_than_stored_for_a_kernel_that_cannot_join(opcode: str, written: int) -> None:
    """As the exponentials of a softmax whose rows are summed in two steps: the last kernel reads what they are made of."""
    root = "  ROOT %third = bf16[4096,4096]{1,0} fusion(%first, %second), kind=kLoop, calls=%div_body"
    after = """  %again = f32[4096]{0} sort(%second), dimensions={0}, to_apply=%add
  ROOT %third = bf16[4096,4096]{1,0} fusion(%first, %again), kind=kLoop, calls=%div_body"""
    (chain,), names = chains(APART.replace(root, after).replace("negate(%p0)", f"{opcode}(%p0)"))
    assert names == [["second", "first"]]
    assert chain.moved == LARGE + written + 4 * 4096


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
    assert 1.5 * 2 * LARGE / 4.9e12 < times["third"] < 0.7 * sum(op.before_s or 0.0 for op in report.ops)  # it holds rows for their sum
    assert not any("no two kernels" in note for note in report.input.notes)
    path.write_text(PRODUCT_BETWEEN.replace("AXIS", "0"))
    assert any("no two kernels" in note for note in what_if(str(path), "fuse all", "h200").input.notes)


POSITIONS = program_text("what_if_chains/positions.hlo")


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
    return Op(name=name, label=Label(does=label), module="apart", cost=cost, time_s=2e-5, phase=phase, operation=Streamed(kind="fusion"))


def test_where_no_layer_is_named_what_occurs_once_is_not_recomputed() -> None:
    ops = (streamed("a", "layer"), streamed("b", "layer"), streamed("c", "loss"), streamed("d", "layer", "backward"))
    state = state_of(ops, {})
    change(state, ["remat", "on"])
    assert [one.runs_with.name for one in state.added] == ["a", "b"]


ONE_LAYER = program_text("what_if_chains/one_layer.hlo")


def test_a_program_of_one_layer_recomputes_all_before_the_result_that_its_head_takes() -> None:
    made = replace(streamed("a", "x"), module="step")
    ops = [replace(made, name=name, label=Label(does=name)) for name in ("up", "act", "down", "norm", "head", "loss")]
    for place, width in ((0, 64), (2, 65), (4, 66)):
        ops[place] = replace(ops[place], operation=Product(m=64, k=64, n=width), label=Label(does="dot", sizes=f"{width}"))
    state = state_of((*ops, replace(made, name="back", phase="backward")), {"step": ONE_LAYER})
    change(state, ["remat", "on"])
    assert [one.runs_with.name for one in state.added] == ["up", "act"]


def test_a_chain_that_stores_nothing_for_gradients_is_one_kernel_the_first_time() -> None:
    names = ("first", "second", "third")
    ops = (*(streamed(name, name) for name in names), streamed("other", "other", "backward"))
    state = state_of(ops, {"apart": APART.replace("AXIS", "1")})
    change(state, ["remat", "on"])
    (added,) = state.added
    assert added.runs_with.name == "third"
    assert added.time_s == pytest.approx(1.4 * 2e-5)  # the bytes of one of them instead of three


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


CAPACITY = program_text("what_if_chains/capacity.hlo").replace("SUM", SUM)


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


def test_storing_what_a_loop_recomputes_may_take_as_long_as_that() -> None:
    # Four layers in a loop on an H200 took as long with jax.checkpoint as without.
    report = what_if(str(Path(__file__).parent / "data" / "h200" / "jax_remat.xplane.pb.gz"), "remat off")
    (step,) = [point for point in report.points if point.scope == "average" and point.infeed_outfeed]
    assert step.expected is not None
    assert step.expected.low_s < (step.before_s or 0.0) < step.expected.high_s
    assert any(op.category == "stored" for op in report.ops)
    assert any(op.time_s == 0 and op.before_s for op in report.ops)


def test_leaving_recomputation_out_may_save_as_much_more_as_it_may_take_longer() -> None:
    again = Avoidable(kind="recomputation", instead=NOTHING, why="")
    ops = (streamed("first", "layer0", "forward"), replace(streamed("second", "layer0", "backward"), avoidable=(again,)))
    repeated, spared = (state_of(ops, {}) for _ in range(2))
    change(repeated, ["remat", "on"])
    change(spared, ["remat", "off"])
    (added,) = repeated.added
    low = spared.changed()[1].low_s
    assert added.time_s
    assert added.bounds[1] - 1 == pytest.approx(-low / (ops[1].time_s or 0.0))
    assert added.bounds[1] >= 1.27  # a Llama in 6 layers with Adam, 8 x 1024 tokens, on an H200: 14.9 ms longer, not 11.7 ms


def test_a_chain_that_stores_values_again_is_several_kernels_the_first_time() -> None:
    reason = Avoidable(kind="recomputation", instead=NOTHING, why="")
    ops = tuple(replace(streamed(name, name, "backward"), avoidable=(reason,)) for name in ("first", "second", "third"))
    state = state_of(ops, {"apart": APART.replace("AXIS", "1")})
    change(state, ["remat", "off"])
    times = [new.time_s for _, new in sorted(state.changed().items())]
    assert times == pytest.approx([0.0, 0.0, 6e-5 - 1.4 * 2e-5])  # what they take less one kernel for all of them


JOINED = program_text("what_if_chains/joined.hlo")


def test_weights_that_a_kernel_joins_are_weights_for_a_batch_of_one() -> None:
    module = parse(JOINED.encode(), "joined")
    place = module.entry_computation.root
    found = Review(Pricer(module, "gpu", Network.of(None, "gpu"))).product(module.entry, place)
    one = Product(m=32, k=8, n=1, batch=1, left="bf16", right="bf16", out="bf16", compute="bf16")
    assert Data(module, {0}).operation(place, one, found, 4) == replace(one, n=4)


QKV = program_text("what_if_chains/qkv.hlo")


@pytest.mark.parametrize(("times", "added"), [("1/2", []), ("1/8", ["multiply", "sum", "sum"])])
def test_of_one_row_xla_multiplies_small_weights_element_by_element_and_adds_up(times: str, added: list[str], tmp_path: Path) -> None:
    path = tmp_path / "step.hlo.txt"
    path.write_text(QKV)
    recording, machine = measured_source(str(path), "h200")
    state = State(recording, dict(programs_behind(recording, machine, str(path))), machine, calibration_for(machine).for_kernels())
    change(state, ["scale", f"x[0]=x{times}"])
    assert [one.word for one in state.added] == added
    queries, last = (next(op.operation for op in state.ops if op.name == name) for name in ("y", "z"))
    assert isinstance(queries, Product)
    if added:  # 16.8 million elements stay a product, 4.2 and 5.2 million do not
        assert {queries.m, queries.n} == {1, 4096}
        assert isinstance(last, Streamed)
        assert [one.operation for one in state.added[1:]] == [RowWise(rows=1024, columns=depth) for depth in (4096, 5120)]
    else:
        assert isinstance(last, Product)


# Chains in profiles of an H200: gigabytes and microseconds of parts with special functions, of others, and of a norm.
@every(
    ("functions", "plain", "norm", "moved", "measured_us"),
    [
        ([(1.611, 588)], [(2.416, 552), (2.013, 502)], (1.611, 401), 2.819, 865),
        ([(1.074, 380), (1.074, 373), (1.074, 321)], [(1.611, 371), (1.611, 371)], (1.074, 267), 1.611, 1111),
        ([(0.268, 96)], [(0.403, 96), (0.268, 81), (0.268, 81)], (0.268, 70), 0.403, 157),
    ],
)
def test_special_functions_of_a_fused_chain_overlap_in_part_with_its_traffic(
    functions: list[tuple[float, float]],
    plain: list[tuple[float, float]],
    norm: tuple[float, float],
    moved: float,
    measured_us: float,
) -> None:
    def part(size: tuple[float, float], called: float = 0.0, category: str = "loop fusion") -> Op:
        cost = Cost.of({"hbm": size[0] * 1e9, "vector/transcendental": called})
        return Op(name="part", cost=cost, time_s=size[1] * 1e-6, category=category)

    ops = (*(part(one, 1e8) for one in functions), *map(part, plain), part(norm, 0.0, "custom fusion"))
    seconds = fused_s(state_of(ops, {}), list(enumerate(ops)), moved * 1e9)
    assert seconds == pytest.approx(measured_us * 1e-6, rel=0.13)


BF16 = Array("bf16[16,2048,4096]", 2 << 27)  # what the programs below hand to each other, on an H200


def program(name: str, micros: float, operations: float, functions: int = 0, *, rows: bool = False, applied: int = 0) -> Op:
    """A program by its operations and special functions for each element, and the bytes of what it applies to every row."""
    elements = BF16.bytes / 2
    amounts = {"hbm": 2 * BF16.bytes + applied, "vector/bf16": operations * elements, "vector/transcendental": functions * elements}
    category = "custom fusion" if rows else "loop fusion"
    return Op(name=name, module=name, cost=Cost.of(amounts), time_s=micros * 1e-6, category=category, takes=(BF16,), gives=(BF16,))


NORM = program("norm", 139.0, 5, rows=True)
GELU = program("gelu", 186.1, 8, 1)
DROPOUT = program("dropout", 160.7, 0, applied=4096)  # by a mask
ADD = program("add", 160.6, 2)
SHIFT = program("shift", 160.5, 2)


@every(
    ("parts", "micros"),
    [
        ((NORM, GELU, DROPOUT, ADD), 262.8),
        ((program("norm+gelu", 178.9, 13, 1, rows=True), program("dropout+add", 160.7, 2, applied=4096)), 262.8),
        ((NORM, GELU), 179.3),
        ((GELU, DROPOUT, ADD), 219.3),
        ((DROPOUT, ADD), 160.7),
        ((SHIFT, program("softmax", 152.1, 3, 1, rows=True), program("double", 160.7, 1)), 141.1),
    ],
)
def test_a_fused_chain_takes_as_long_as_its_instructions_and_traffic_measured(parts: tuple[Op, ...], micros: float) -> None:
    """Each alone hides its instructions behind its traffic, one kernel does not: from two parts as from four (XLA on H200)."""
    machine = load("h200")
    state = State(Recording(format="xspace", workload=Workload(parts)), {}, machine, calibration_for(machine).for_kernels())
    change(state, ["fuse", "all"])
    (found,) = (one for one in state.changed().values() if one.time_s)
    assert found.time_s == pytest.approx(micros * 1e-6, rel=0.15)
    assert found.low_s < micros * 1e-6 < found.high_s


def test_what_is_applied_to_every_row_is_counted_once() -> None:
    # 2^27 elements, 5 + 8 operations of each at 86 a clock and one function at 6; with a mask one element more at 8.6.
    elements = 2**27
    assert instructions([NORM, GELU]) == pytest.approx(elements * (13 / 86 + 1 / 6))
    assert instructions([NORM, GELU, DROPOUT, DROPOUT]) == pytest.approx(elements * (13 / 86 + 1 / 6 + 1 / 8.6))
