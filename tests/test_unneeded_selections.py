"""What of a program's work could be avoided: positions chosen by a select, sums over a batch, work that few steps use, undone sorts."""

from collections.abc import Callable
from typing import Any

import pytest

from every import every
from evidence import reviewed_program
from program_texts import program_text
from reviewed import of_shape, ops_of
from roofline.hlo.read import parse
from roofline.resource import HBM
from roofline.workload import Avoidable, Op

jax = pytest.importorskip("jax")
jnp = jax.numpy

ROWS, POSITIONS, WIDTH = 16, 4096, 128
CACHE = 2 * ROWS * POSITIONS * WIDTH  # bytes of bf16


def reviewed(program: str, group: str) -> list[tuple[Op, Avoidable]]:
    return [(op, one) for op in reviewed_program(parse(program), "gpu") for one in op.avoidable if one.group == group]


def cached(
    direction: str = "EQ", spread: str = "{0,2}", new: str = f"bf16[{ROWS},{WIDTH}]", returned: str = "%made", more: str = ""
) -> str:
    """A cache, one position per row of which is selected from what is new."""
    cache, width = f"bf16[{ROWS},{POSITIONS},{WIDTH}]", new.count(",") + 1
    layout = "{" + ",".join(map(str, reversed(range(width)))) + "}"
    return f"""HloModule decode
%body (cache.1: {cache}, at.1: s32[{ROWS}], new.1: {new}) -> {cache} {{
  %cache.1 = {cache}{{2,1,0}} parameter(0)
  %at.1 = s32[{ROWS}]{{0}} parameter(1)
  %new.1 = {new}{layout} parameter(2)
  %counter = s32[{ROWS},{POSITIONS}]{{1,0}} iota(), iota_dimension=1
  %here = s32[{ROWS},{POSITIONS}]{{1,0}} broadcast(%at.1), dimensions={{0}}
  %equal = pred[{ROWS},{POSITIONS}]{{1,0}} compare(%counter, %here), direction={direction}
  %mask = {cache.replace("bf16", "pred")}{{2,1,0}} broadcast(%equal), dimensions={{0,1}}
  %spread = {cache}{{2,1,0}} broadcast(%new.1), dimensions={spread}
  ROOT %chosen = {cache}{{2,1,0}} select(%mask, %spread, %cache.1)
}}
ENTRY %main (cache: {cache}, at: s32[{ROWS}], new: {new}) -> ({cache}, {cache}) {{
  %cache = {cache}{{2,1,0}} parameter(0)
  %at = s32[{ROWS}]{{0}} parameter(1)
  %new = {new}{layout} parameter(2)
  %made = {cache}{{2,1,0}} fusion(%cache, %at, %new), kind=kLoop, calls=%body
  %scaled = {cache}{{2,1,0}} add(%made, {"%cache" if more else "%made"})
  ROOT %both = ({cache}{{2,1,0}}, {cache}{{2,1,0}}) tuple({returned}, %scaled)
}}
"""


def test_a_cache_of_which_a_select_changes_one_position_could_be_updated_there() -> None:
    [(op, found)] = reviewed(cached(), "selected")
    # All of the cache is read and written, where one position of 4,096 would do.
    assert op.name == "made"
    assert float(op.cost[HBM] - found.instead[HBM]) == 2 * CACHE * (1 - 1 / POSITIONS)


def test_a_kernel_that_also_adds_up_the_cache_still_reads_it() -> None:
    read = """  %sum = bf16[16,128]{1,0} reduce(%chosen, %none), dimensions={1}, to_apply=%add
  ROOT %two = (bf16[16,4096,128]{2,1,0}, bf16[16,128]{1,0}) tuple(%chosen, %sum)
}
ENTRY"""
    adds = """%add (a: bf16[], b: bf16[]) -> bf16[] {
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %c = bf16[] add(%a, %b)
}
"""
    program = (
        cached()
        .replace("HloModule decode\n", "HloModule decode\n" + adds)
        .replace("  ROOT %chosen", "  %none = bf16[] constant(0)\n  %chosen")
    )
    program = program.replace("}\nENTRY", read, 1).replace(
        "%made = bf16[16,4096,128]{2,1,0} fusion(%cache",
        "%pair = (bf16[16,4096,128]{2,1,0}, bf16[16,128]{1,0}) fusion(%cache",
    )
    program = program.replace("  %scaled", "  %made = bf16[16,4096,128]{2,1,0} get-tuple-element(%pair), index=0\n  %scaled")
    [(op, found)] = reviewed(program, "selected")
    assert op.name == "pair"
    assert float(op.cost[HBM] - found.instead[HBM]) == CACHE * (1 - 1 / POSITIONS)  # it need not write the cache


@every(
    "program",
    [
        cached(direction="LE"),  # all positions up to an index
        cached(spread="{0,1,2}", new=f"bf16[{ROWS},{POSITIONS},{WIDTH}]"),  # another value for each position
        cached(returned="%scaled"),  # the caller gets another array
        cached(more="old"),  # the old values are read afterwards
    ],
)
def test_a_select_that_changes_more_or_keeps_the_old_array_is_no_update(program: str) -> None:
    assert reviewed(program, "selected") == []


def looped(place: int) -> str:
    """A loop that carries two caches, and selects one position of the first."""
    cache, state = f"bf16[{POSITIONS},{WIDTH}]", f"(s32[], bf16[{POSITIONS},{WIDTH}], bf16[{POSITIONS},{WIDTH}])"
    other = "%chosen, %second" if place == 1 else "%second, %chosen"
    return program_text("unneeded_selections/looped.hlo", state=state, cache=cache, POSITIONS=POSITIONS, WIDTH=WIDTH, other=other)


@every(("place", "told"), [(1, True), (2, False)])
def test_in_a_loop_only_the_part_of_the_state_that_the_select_hands_on_is_updated(place: int, told: bool) -> None:
    assert [op.name for op, _ in reviewed(looped(place), "selected")] == (["chosen"] if told else [])


def batched(name: str = "jit(step)/reduce_sum", dimensions: str = "{0}", made: str = "f32[1024,512]", result: str = "%sum") -> str:
    """A product for each of 128 members of a batch, and a sum."""
    other = made if result == "%sum" else "bf16[128,1024,512]"
    return f"""HloModule step
%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}}
%body (each.1: bf16[128,1024,512]) -> {made} {{
  %each.1 = bf16[128,1024,512]{{2,1,0}} parameter(0)
  %wide = f32[128,1024,512]{{2,1,0}} convert(%each.1)
  %zero = f32[] constant(0)
  ROOT %total = {made} reduce(%wide, %zero), dimensions={dimensions}, to_apply=%add, metadata={{op_name="{name}"}}
}}
ENTRY %main (x: bf16[128,64,1024], y: bf16[128,64,512]) -> ({made}, {other}) {{
  %x = bf16[128,64,1024]{{2,1,0}} parameter(0)
  %y = bf16[128,64,512]{{2,1,0}} parameter(1)
  %each = bf16[128,1024,512]{{2,1,0}} dot(%x, %y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{1}},
    rhs_contracting_dims={{1}}, metadata={{op_name="jit(step)/vmap(transpose(jvp()))/dot_general"}}
  %sum = {made} fusion(%each), kind=kInput, calls=%body
  ROOT %results = ({made}, {other}) tuple(%sum, {result})
}}
"""


def test_matrices_of_a_batch_that_are_only_added_up_could_be_one_product() -> None:
    (product, first), (_, second) = reviewed(batched(), "batch")
    written, read, summed = 2 * 128 * 1024 * 512, 2 * 128 * 64 * (1024 + 512), 4 * 1024 * 512
    assert product.cost[HBM] == read + written
    assert first.instead[HBM] == read + written / 128  # as many FLOP, and one matrix instead of 128
    assert first.instead.flops == product.cost.flops
    assert second.instead[HBM] == summed + written / 128


@every(
    "program",
    [
        batched(name="jit(step)/vmap(transpose(jvp()))/dot_general"),  # the compiler split the depth of one product
        batched(name=""),
        batched(dimensions="{1}", made="f32[128,512]"),  # a sum over rows
        batched(dimensions="{0,1}", made="f32[512]"),
        batched(result="%each"),  # each matrix is a result too
    ],
)
def test_products_that_were_split_or_are_needed_for_each_member_stay_batched(program: str) -> None:
    assert reviewed(program, "batch") == []


def penalized(compared: str = "%rest", direction: str = "EQ", other: str = "%zero", linear: str = "multiply(%weighted, %slope)") -> str:
    """A loss, and a penalty of products that a select by the number of the step takes or leaves, with its gradient."""
    return f"""HloModule step
%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}}
ENTRY %main (number: s32[], x: f32[4096,1024], w: f32[1024,1024]) -> (f32[], f32[1024,1024]) {{
  %number = s32[] parameter(0), metadata={{op_name="number"}}
  %x = f32[4096,1024]{{1,0}} parameter(1), metadata={{op_name="x"}}
  %w = f32[1024,1024]{{1,0}} parameter(2), metadata={{op_name="w"}}
  %every = s32[] constant(16)
  %rest = s32[] remainder(%number, %every)
  %none = s32[] constant(0)
  %is = pred[] compare({compared}, %none), direction={direction}
  %zero = f32[] constant(0)
  %one = f32[] constant(1)
  %main = f32[4096,1024]{{1,0}} dot(%x, %w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  %loss = f32[] reduce(%main, %zero), dimensions={{0,1}}, to_apply=%add
  %slope = f32[4096,1024]{{1,0}} dot(%main, %w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  %penalty = f32[] reduce(%slope, %zero), dimensions={{0,1}}, to_apply=%add
  %taken = f32[] select(%is, {"%penalty, " + other if direction == "EQ" else other + ", %penalty"})
  %total = f32[] add(%loss, %taken)
  %weight = f32[] select(%is, {"%one, " + other if direction == "EQ" else other + ", %one"})
  %weighted = f32[4096,1024]{{1,0}} broadcast(%weight), dimensions={{}}
  %back = f32[4096,1024]{{1,0}} {linear}
  %gradient = f32[1024,1024]{{1,0}} dot(%x, %back), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  %new = f32[1024,1024]{{1,0}} subtract(%w, %gradient)
  ROOT %results = (f32[], f32[1024,1024]{{1,0}}) tuple(%total, %new)
}}
"""


@every("direction", ["EQ", "NE"])
def test_what_only_every_16th_step_uses_could_be_conditional_with_its_gradients(direction: str) -> None:
    found = reviewed(penalized(direction=direction), "condition")
    assert {"slope", "penalty", "back", "gradient"} <= {op.name for op, _ in found}
    assert {"main", "loss", "total", "new"}.isdisjoint(op.name for op, _ in found)
    assert all(16 * one.instead[HBM] == op.cost[HBM] for op, one in found if op.cost[HBM])


def test_what_is_not_zero_in_the_other_steps_is_used_in_all() -> None:
    # Plus instead of times: the gradient needs the slope in every step.
    found = {op.name for op, _ in reviewed(penalized(linear="add(%weighted, %slope)"), "condition")}
    assert {"slope", "back", "gradient"}.isdisjoint(found)
    assert "penalty" in found


@every("program", [penalized(compared="%number"), penalized(other="%one", linear="add(%weighted, %slope)")])
def test_a_step_of_unknown_frequency_or_another_value_in_its_place_is_no_waste_of_products(program: str) -> None:
    found = {op.name for op, _ in reviewed(program, "condition")}
    assert {"slope", "gradient"}.isdisjoint(found)


def sampled(axis: int = 1, made: str = "select(%is, %scores, %nones)", also: str = "%kept", keys: str = "%order") -> str:
    """A sort, of which elements below a share are dropped, and a sort by the order of the first."""
    row, places = "f32[64,4096]", "s32[64,4096]"
    return program_text("unneeded_selections/sampled.hlo", row=row, places=places, axis=axis, made=made, keys=keys, also=also)


def test_sorts_that_only_find_which_elements_to_keep_could_be_a_bisection() -> None:
    found = reviewed(sampled(), "masked")
    assert {op.name for op, _ in found} == {"sorted", "is", "chosen", "back"}
    assert all(not one.instead.amounts for _, one in found)
    # 24 passes over the rows, one for each bit of the significand of fp32, in place of all of them.
    assert [one.besides[HBM] for op, one in found if op.name == "sorted"] == [24 * 64 * 4096 * 4]


@every(
    "program",
    [
        sampled(axis=0),  # not the order of a row
        sampled(keys="%other"),  # another order
        sampled(made="select(%is, %scores, %least)"),  # other values of the same ranks
        sampled(also="%scores"),  # the sorted row is a result too
    ],
)
def test_sorts_into_another_order_or_with_sorted_results_are_needed(program: str) -> None:
    assert reviewed(program, "masked") == []


@every(
    "chosen",
    [
        lambda is_due, penalty: jnp.where(is_due, penalty, 0.0),
        lambda is_due, penalty: jnp.where(is_due, 1.0, 0.0) * penalty,
        lambda is_due, penalty: is_due * penalty,
    ],
)
@every("every", [10, 64])
def test_a_penalty_of_few_steps_is_found_before_the_compiler_sees_it(chosen: Callable[[Any, Any], Any], every: int) -> None:
    def step(number: Any, w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.tanh(x @ w).sum() + chosen(number % every == 0, jnp.square(x @ w @ w).sum())

        return jax.value_and_grad(loss)(w)

    shapes = of_shape(1024, 1024, dtype="float32"), of_shape(4096, 1024, dtype="float32")
    ops = ops_of(step, of_shape(dtype="int32"), *shapes)
    products = [op for op in ops if "dot" in op.name]
    waste = [one for op in ops for one in op.avoidable if one.group == "condition"]
    # x @ w and its gradient are the loss's too; (x @ w) @ w, its gradients by both factors and the first one's by w are the penalty's.
    assert (len(products), len(waste)) == (6, 4)
    assert {one.factor for one in waste} == {every}


def test_a_position_that_only_live_rows_update_is_one_position() -> None:
    def decode(cache: Any, new: Any, at: Any, live: Any) -> Any:
        here = (jnp.arange(2048) == at[:, None]) & live[:, None]
        return jnp.where(here[:, :, None], new[:, None], cache)

    shapes = of_shape(16, 2048, 1024), of_shape(16, 1024), of_shape(16, dtype="int32"), of_shape(16, dtype="bool")
    [found] = [one for op in ops_of(decode, *shapes) for one in op.avoidable if one.group == "selected"]
    assert found.kind == "layout-copies"


def test_what_each_device_takes_its_own_part_of_is_used_by_all_of_them() -> None:
    program = program_text("unneeded_selections/what_each_device_takes_its_own_part_of_is_used_by_all_of_them.hlo")
    assert {reason.kind for op in reviewed_program(parse(program), "tpu") for reason in op.avoidable} <= {"layout-copies"}
