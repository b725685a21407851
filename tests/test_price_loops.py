"""How often loops run: noted by the compiler, read from the program, or unknown."""

from hypothesis import given
from hypothesis import strategies as st

from priced import amounts, frozen, price
from program_texts import program_text
from roofline.hlo.ir.module import HloModule
from roofline.hlo.price.loops import Loops
from roofline.hlo.price.program import program
from roofline.hlo.price.types import Site
from roofline.hlo.read import parse

LOOP = "price_loops/loop.hlo"
USUAL = {"first": 0, "bound": 10, "step": 1, "direction": "LT", "operation": "add", "compared": "%j, %m", "config": ""}


def loop(**parts: object) -> HloModule:
    return parse(program_text(LOOP, **{**USUAL, **parts}))


def adds(module: HloModule) -> object:
    """FLOP of the loop's floating-point sum: 8 a step."""
    return program(module).cost["vector/fp32"]


COMPARE = {"LT": int.__lt__, "LE": int.__le__, "GT": int.__gt__, "GE": int.__ge__, "NE": int.__ne__, "EQ": int.__eq__}


@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(-4, 4), st.sampled_from(sorted(COMPARE)), st.booleans())
def test_a_counted_loop_runs_as_often_as_python_runs_it(first: int, bound: int, step: int, direction: str, mirrored: bool) -> None:
    at, runs = first, 0
    while runs < 100 and (COMPARE[direction](bound, at) if mirrored else COMPARE[direction](at, bound)):
        at, runs = at + step, runs + 1
    module = loop(first=first, bound=bound, step=step, direction=direction, compared="%m, %j" if mirrored else "%j, %m")
    # One that never ends has no trip count.
    assert adds(module) == (8 * runs if runs < 100 else None)


def test_the_compilers_note_comes_first() -> None:
    assert adds(loop(config=', backend_config={"known_trip_count":{"n":"42"}}')) == 8 * 42


def test_a_loop_is_run_once_however_often_its_trips_are_asked_for() -> None:
    module = loop(operation="multiply", first=1, step=2, bound=100)
    loops, root = Loops(module), module.entry_computation.root_instruction
    assert loops.trip_count(module.entry, root) == 7, "1, 2, 4, …, 64 are less than 100"
    loops._evaluated = 0
    assert (loops.trip_count(module.entry, root), loops._evaluated) == (7, 0)


def test_a_loop_counts_its_body_and_condition() -> None:
    module = loop(bound=3)
    site = Site(module, module.entry_computation, module.entry_computation.root_instruction)
    # Three steps of two sums: 8 elements read and written, and three numbers; the comparison reads two numbers and writes a byte.
    assert amounts(price(site).cost) == {"vector/fp32": 24, "vector/int32": 3, "hbm": 3 * (64 + 12 + 9)}


def test_a_loop_over_other_whole_numbers_is_run() -> None:
    assert adds(loop(first=1, bound=1000, step=2, operation="multiply")) == 8 * 10  # 2^10 is the first power above 1,000
    assert adds(loop(first=1000, bound=0, step=1, operation="shift-right-logical", direction="GT")) == 8 * 10


def test_a_loop_that_only_the_data_end_is_unknown() -> None:
    module = parse(program_text(LOOP, **USUAL).replace("constant(10)", "parameter(1)"))
    workload = program(module)
    assert workload.cost["vector/fp32"] is None
    assert workload.cost.known("vector/fp32") == 8  # one step
    assert all("the trip count of w is known only at run time" in op.notes[-1] for op in workload)
    # Who knows can say.
    assert program(module, trips={"w": 7}).cost["vector/fp32"] == 56


def test_a_bound_carried_through_an_outer_loop_is_found() -> None:
    text = program_text("price_loops/a_bound_carried_through_an_outer_loop_is_found.hlo")
    # Five times seven inner steps of one sum, and five outer ones.
    assert program(parse(text)).cost["vector/int32"] == 5 * 7 + 5


def test_loops_of_compiled_programs_are_exact() -> None:
    for form in ("before", "after"):
        flops = {name: sum(a for r, a in program(frozen(name, form)).cost.amounts if r.unit == "matrix") for name in EXPECTED}
        assert flops == EXPECTED


EXPECTED = {
    "fixed_loop": 13 * 2 * 24 * 24,
    "scanned_layers": 9 * 2 * 4 * 32 * 32,
    "scanned_layers_gradient": 3 * 9 * 2 * 4 * 32 * 32,
    "nested_loops": 5 * 7 * 2 * 24**3,
    "doubling_loop": 10 * 2 * 24**3,
    "conditional": 2 * 2 * 48**3,
    "switch": 2 * 48**3,
    # 64 steps: scores and mixture of 8 heads over 64 places of 16, and a head of 128 x 256.
    "decode_loop": 64 * (2 * 2 * 8 * 64 * 16 + 2 * 128 * 256),
}


def test_a_conditional_is_priced_at_its_dearest_branch_with_the_cheapest_beside() -> None:
    module = frozen("conditional", "before")
    found = next(
        price(Site(module, computation, instruction))
        for computation in module
        for instruction in computation
        if instruction.opcode == "conditional"
    )
    assert found.cost["matrix/tf32"] == 2 * 2 * 48**3
    # The other branch adds 1 to 48 x 48 elements, after broadcasting it.
    assert found.least is not None
    assert found.least["vector/fp32"] == 48 * 48
    assert found.notes[0].startswith("most expensive of 2 branches; cheapest: 2.304 kFLOP")


def test_a_loop_until_convergence_is_marked_unknown_and_one_step_is_shown() -> None:
    cost = program(frozen("loop_until_convergence")).cost
    assert cost.flops is None
    assert cost.known("matrix/fp32") == 2 * 24**3
