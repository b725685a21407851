"""How often loops run: noted by the compiler, read from the program, or unknown."""

from hypothesis import given
from hypothesis import strategies as st

from priced import amounts, frozen, price
from roofline.hlo.ir.module import HloModule
from roofline.hlo.price.loops import Loops
from roofline.hlo.price.program import program
from roofline.hlo.price.types import Site
from roofline.hlo.read import parse

LOOP = """HloModule loops

%body {{
  %t = (s32[], f32[8]{{0}}, s32[]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[8]{{0}} get-tuple-element(%t), index=1
  %n = s32[] get-tuple-element(%t), index=2
  %step = s32[] constant({step})
  %next = s32[] {operation}(%i, %step)
  %y = f32[8]{{0}} add(%x, %x)
  ROOT %r = (s32[], f32[8]{{0}}, s32[]) tuple(%next, %y, %n)
}}

%condition {{
  %u = (s32[], f32[8]{{0}}, s32[]) parameter(0)
  %j = s32[] get-tuple-element(%u), index=0
  %m = s32[] get-tuple-element(%u), index=2
  ROOT %c = pred[] compare({compared}), direction={direction}
}}

ENTRY %main {{
  %a = f32[8]{{0}} parameter(0)
  %first = s32[] constant({first})
  %bound = s32[] constant({bound})
  %init = (s32[], f32[8]{{0}}, s32[]) tuple(%first, %a, %bound)
  ROOT %w = (s32[], f32[8]{{0}}, s32[]) while(%init), condition=%condition, body=%body{config}
}}
"""


USUAL = {"first": 0, "bound": 10, "step": 1, "direction": "LT", "operation": "add", "compared": "%j, %m", "config": ""}


def loop(**parts: object) -> HloModule:
    return parse(LOOP.format(**{**USUAL, **parts}))


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
    module = parse(LOOP.replace("constant({bound})", "parameter(1)").format(**USUAL))
    workload = program(module)
    assert workload.cost["vector/fp32"] is None
    assert workload.cost.known("vector/fp32") == 8  # one step
    assert all("the trip count of w is known only at run time" in op.notes[-1] for op in workload)
    # Who knows can say.
    assert program(module, trips={"w": 7}).cost["vector/fp32"] == 56


def test_a_bound_carried_through_an_outer_loop_is_found() -> None:
    text = """HloModule nested

%inner_body {
  %t = (s32[], s32[]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %n = s32[] get-tuple-element(%t), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  ROOT %r = (s32[], s32[]) tuple(%next, %n)
}

%inner_condition {
  %u = (s32[], s32[]) parameter(0)
  %j = s32[] get-tuple-element(%u), index=0
  %m = s32[] get-tuple-element(%u), index=1
  ROOT %c = pred[] compare(%j, %m), direction=LT
}

%outer_body {
  %v = (s32[], s32[]) parameter(0)
  %k = s32[] get-tuple-element(%v), index=0
  %n2 = s32[] get-tuple-element(%v), index=1
  %zero = s32[] constant(0)
  %start = (s32[], s32[]) tuple(%zero, %n2)
  %w2 = (s32[], s32[]) while(%start), condition=%inner_condition, body=%inner_body
  %one2 = s32[] constant(1)
  %k2 = s32[] add(%k, %one2)
  ROOT %r2 = (s32[], s32[]) tuple(%k2, %n2)
}

%outer_condition {
  %u3 = (s32[], s32[]) parameter(0)
  %j3 = s32[] get-tuple-element(%u3), index=0
  %limit = s32[] constant(5)
  ROOT %c3 = pred[] compare(%j3, %limit), direction=LT
}

ENTRY %main {
  %z = s32[] constant(0)
  %seven = s32[] constant(7)
  %init = (s32[], s32[]) tuple(%z, %seven)
  ROOT %w = (s32[], s32[]) while(%init), condition=%outer_condition, body=%outer_body
}
"""
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
