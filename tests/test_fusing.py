"""Chains of operations under any grouping into kernels."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.cost import Cost
from roofline.dtypes import dtype
from roofline.errors import FormulaError, MachineError, UsageError
from roofline.fusing import Fusion, best, every_fusion, fuse, groupings
from roofline.fusing.op_chain import Chain, Stage, StageSpec, Tensor, chain
from roofline.machine import Capacity, Machine
from roofline.placement import Corrections
from roofline.resource import Resource
from roofline.units import show
from toys import toy

V7X = Machine.of("v7x", {"matrix/bf16": "2307 TFLOP/s", "hbm": "7.2 TB/s"})
ELEMENTS = 268_435_456  # 32 x 2048 x 4096


def tail(residual: bool = False) -> Chain:
    """The elementwise tail of a transformer block: 10 + 8 + 1 + 1 FLOP per element."""
    return chain(
        (32, 2048, 4096),
        "bf16",
        [
            StageSpec("layernorm", 10, reduces=True),
            StageSpec("gelu", 8),
            StageSpec("dropout", 1),
            StageSpec("add", 1, extra_inputs=("residual",) if residual else ()),
        ],
    )


@every(
    ("groups", "moved", "intensity", "rate", "speedup"),
    [
        ((1, 1, 1, 1), "4.29 GB", 1.25, "9 TFLOP/s", 1.0),
        ((2, 2), "2.15 GB", 2.5, "18 TFLOP/s", 2.0),
        ((4,), "1.07 GB", 5.0, "36 TFLOP/s", 4.0),
    ],
)
def test_each_fusion_halves_the_traffic_of_the_tail(
    groups: tuple[int, ...], moved: str, intensity: float, rate: str, speedup: float
) -> None:
    # Each kernel reads one tensor and writes one: 2 x 2 B x 268,435,456 = 1.07 GB a kernel, and 20 FLOP an element in all.
    fusion = fuse(tail(), groups, V7X)
    assert fusion.flops == 20 * ELEMENTS
    assert fusion.bytes == len(groups) * 4 * ELEMENTS
    assert show(float(fusion.bytes), "B", 3) == moved
    assert (fusion.intensity, fusion.speedup, fusion.bound) == (intensity, speedup, "hbm")
    assert show(fusion.attainable, "FLOP/s") == rate


def test_the_guides_print_the_three_intensities_with_one_digit() -> None:
    assert [f"{fuse(tail(), groups, V7X).intensity:.1f}" for groups in ((1, 1, 1, 1), (2, 2), (4,))] == ["1.2", "2.5", "5.0"]


@every(("groups", "moved"), [((1, 1, 1, 1), "4.83 GB"), ((2, 2), "2.68 GB"), ((4,), "1.61 GB")])
def test_the_residual_adds_a_tensor_to_every_grouping(groups: tuple[int, ...], moved: str) -> None:
    # The add reads a second tensor of 0.537 GB, which no fusion can save.
    assert show(float(fuse(tail(residual=True), groups, V7X).bytes), "B", 3) == moved


def test_a_group_named_by_its_stages_is_the_same_as_one_by_size() -> None:
    named = fuse(tail(), [["layernorm", "gelu"], ["dropout", "add"]], V7X)
    assert named == fuse(tail(), (2, 2), V7X)
    assert named.groups == (("layernorm", "gelu"), ("dropout", "add"))


def test_each_kernel_says_what_crosses_memory() -> None:
    first, second = fuse(tail(residual=True), (2, 2), V7X).kernels
    assert (first.reads, first.writes) == (("x",), ("gelu.out",))
    assert (second.reads, second.writes) == (("gelu.out", "residual"), ("add.out",))
    # 18 FLOP over one read and one write of 2 bytes each.
    assert (first.flops, first.intensity) == (18 * ELEMENTS, 4.5)
    assert first.floor_s == pytest.approx(4 * ELEMENTS / 7.2e12)


def test_a_value_used_outside_its_group_is_still_written() -> None:
    # add reads a.out, made two stages earlier: fused with b, a's result must reach memory for the second kernel.
    specs = [StageSpec("a", 1), StageSpec("b", 1), StageSpec("add", 1, extra_inputs=("a.out",))]
    first, second = fuse(chain((8,), "fp32", specs), (2, 1), toy()).kernels
    assert first.writes == ("a.out", "b.out")
    assert second.reads == ("b.out", "a.out")
    (whole,) = fuse(chain((8,), "fp32", specs), (3,), toy()).kernels
    assert (whole.reads, whole.writes) == (("x",), ("add.out",))


def test_a_kept_value_is_written_by_any_grouping() -> None:
    # A backward pass needs gelu's input: the fused kernel writes two tensors.
    saved = chain((8,), "fp32", [StageSpec("norm", 1), StageSpec("gelu", 1)], keep=["norm.out"])
    assert fuse(saved, (2,), toy()).kernels[0].writes == ("norm.out", "gelu.out")


def test_the_chains_own_input_is_read_once_by_a_kernel_that_needs_it_twice() -> None:
    residual = chain((8,), "fp32", [StageSpec("norm", 1), StageSpec("add", 1, extra_inputs=("x",))])
    assert fuse(residual, (2,), toy()).bytes == 2 * 8 * 4
    assert fuse(residual, (1, 1), toy()).bytes == 5 * 8 * 4


def test_parameters_have_a_shape_of_their_own() -> None:
    scale = Tensor("scale", (4096,), dtype("bf16"))
    scaled = chain((64, 4096), "bf16", [StageSpec("scale", 1, extra_inputs=(scale,))])
    assert fuse(scaled, (1,), toy()).bytes == 2 * (2 * 64 * 4096 + 4096)


def test_a_row_that_does_not_fit_leaves_its_reduction_alone() -> None:
    # A row of 4096 bf16 is 8192 B. With 8 kB it must be a kernel of its own; what surrounds it still fuses.
    specs = [StageSpec("scale", 1), StageSpec("bias", 1), StageSpec("softmax", 5, reduces=True), StageSpec("drop", 1), StageSpec("cast", 1)]
    rows = chain((64, 4096), "bf16", specs)
    assert best(rows, V7X, on_chip_bytes=8192).groups == (("scale", "bias", "softmax", "drop", "cast"),)
    tight = best(rows, V7X, on_chip_bytes=8000)
    assert tight.groups == (("scale", "bias"), ("softmax",), ("drop", "cast"))
    assert tight.legal


def test_an_illegal_grouping_is_priced_and_says_why() -> None:
    fusion = fuse(tail(), (4,), V7X, on_chip_bytes=8000)
    assert not fusion.legal
    assert fusion.illegal == ("layernorm reduces a row of 8.192 kB, but only 8 kB fit on chip: it needs its own kernel",)
    assert fuse(tail(), (1, 3), V7X, on_chip_bytes=8000).legal


def test_a_reduction_whose_row_fits_may_start_a_group_or_follow_in_one() -> None:
    specs = [StageSpec("add", 1), StageSpec("norm", 8, reduces=True), StageSpec("gelu", 8)]
    rows = chain((64, 4096), "bf16", specs)
    for groups in ((1, 2), (2, 1), (3,)):
        assert fuse(rows, groups, V7X, on_chip_bytes=8192).legal


def test_the_on_chip_memory_of_one_core_is_the_default() -> None:
    # 16 kB over two cores: a row of 8192 B just does not fit in 8000.
    chip = Machine.of("chip", {"hbm": 10}, capacities=(Capacity(level=Resource("vmem"), bytes=16_000),), cores=2)
    assert best(tail(), chip).groups[0] == ("layernorm",)
    assert best(tail(), chip).notes == ()


def test_a_memory_in_pieces_is_said_to_be_that_of_the_whole_chip() -> None:
    gpu = Machine.of("gpu", {"hbm": 10}, capacities=(Capacity(level=Resource("l1"), bytes=33_000_000),))
    fusion = best(tail(), gpu)
    assert fusion.legal
    assert fusion.notes == ("l1 of gpu is 33 MB in total, but a row must fit in one core: set on_chip_bytes",)


def test_an_unknown_on_chip_memory_is_said_to_be_unknown() -> None:
    assert best(tail(), V7X).notes == ("on-chip memory of v7x is unknown: assuming every reduced row fits (set it with on_chip_bytes)",)


def test_launches_make_small_kernels_cost_a_launch_each() -> None:
    # 16 elements move 64 B: nothing beside 2 µs a launch, so four kernels take four of them.
    small = chain((16,), "bf16", [StageSpec(name, 1) for name in "abcd"])
    launched = Corrections(launches=1)
    assert fuse(small, (1, 1, 1, 1), V7X, corrections=launched).time_s == pytest.approx(8e-6)
    assert best(small, V7X, corrections=launched).speedup == pytest.approx(4.0)


def test_of_groupings_that_take_the_same_time_the_fewest_kernels_win() -> None:
    # So much work that every grouping is compute bound: the time is the same, to the last fraction.
    heavy = chain((7, 3), "fp32", [StageSpec(name, 1000 + index) for index, name in enumerate("abcde")])
    fusion = best(heavy, toy())
    assert fusion.groups == (("a", "b", "c", "d", "e"),)
    assert fusion.speedup == pytest.approx(1.0)


def test_every_grouping_of_four_stages_is_listed_once() -> None:
    found = list(groupings(tail()))
    assert (len(found), len(set(found))) == (8, 8)
    assert found[0] == (("layernorm",), ("gelu",), ("dropout",), ("add",))
    assert found[-1] == (("layernorm", "gelu", "dropout", "add"),)
    assert [fusion.groups for fusion in every_fusion(tail(), V7X)] == found


def test_a_long_chain_is_solved_but_not_listed() -> None:
    long = chain((64, 128), "bf16", [StageSpec("step", 1, reduces=index % 7 == 3) for index in range(60)])
    fusion = best(long, V7X, on_chip_bytes=100)
    assert [len(group) for group in fusion.groups][:3] == [3, 1, 6]
    with pytest.raises(UsageError, match=r"60 stages have 2\^59 groupings"):
        every_fusion(long, V7X)


def test_a_name_used_twice_is_numbered() -> None:
    assert [stage.name for stage in chain((8,), "bf16", [StageSpec("add", 1), StageSpec("add", 1)]).stages] == ["add", "add.2"]


def test_transcendentals_are_work_but_not_flop() -> None:
    fusion = fuse(chain((8,), "fp32", [StageSpec("exp", 0, 1)]), (1,), toy())
    assert (fusion.flops, fusion.cost["vector/transcendental"]) == (0, 8)
    # 8 of them at the vector rate of 20 take 0.4 s; 64 B at 10 B/s take 6.4.
    assert fusion.floor_s == pytest.approx(6.4)


def test_work_may_be_billed_to_another_unit() -> None:
    assert fuse(chain((8,), "bf16", [StageSpec("a", 3)], compute="matrix/bf16"), (1,), toy()).cost["matrix/bf16"] == 24


@every("groups", [(), (4, 1), (0, 4), (3,), [["gelu", "layernorm"], ["dropout", "add"]], [["layernorm", "add"]]])
def test_groups_that_do_not_cover_the_chain_in_order_are_refused(groups: object) -> None:
    with pytest.raises(UsageError, match="give contiguous groups in order"):
        fuse(tail(), groups, V7X)  # type: ignore[arg-type]


@every(
    ("tensors", "stages", "words"),
    [
        ("x", [], "at least one stage"),
        ("xy", [("a", "x", "y"), ("a", "y", "x")], "two stages are named 'a'"),
        ("xx", [("a", "x", "x")], "two tensors are named 'x'"),
        ("x", [("a", "x", "y")], "uses unknown tensor 'y'"),
        ("xyz", [("a", "z", "y"), ("b", "x", "z")], "reads 'z' before a stage writes it"),
        ("xy", [("a", "x", "y"), ("b", "x", "y")], "both write 'y'"),
    ],
)
def test_a_chain_that_makes_no_sense_is_refused(tensors: str, stages: list[tuple[str, str, str]], words: str) -> None:
    with pytest.raises(FormulaError) as error:
        Chain(
            tensors=tuple(Tensor(name, (4,), dtype("bf16")) for name in tensors),
            stages=tuple(Stage(name=name, reads=tuple(reads), writes=tuple(writes)) for name, reads, writes in stages),
        )
    assert words in str(error.value)


def test_other_nonsense_is_refused_too() -> None:
    with pytest.raises(FormulaError, match="cannot keep unknown tensor 'y"):
        chain((4,), "bf16", [StageSpec("a", 1)], keep=["y.out"])
    with pytest.raises(FormulaError, match="has a negative size"):
        chain((-4,), "bf16", [StageSpec("a", 1)])
    with pytest.raises(FormulaError, match="has two shapes"):
        chain((4,), "bf16", [StageSpec("a", 1, extra_inputs=(Tensor("x", (2,), dtype("bf16")),))])
    with pytest.raises(UsageError, match="on-chip memory of -1 B"):
        best(tail(), V7X, on_chip_bytes=-1)
    with pytest.raises(MachineError, match="bare has no known rate"):
        best(tail(), Machine.of("bare", {"ici": 1}))


@st.composite
def chains(draw: st.DrawFn, longest: int = 7) -> Chain:
    """Short chains with heavy and light stages, reductions and values used again later."""
    specs: list[StageSpec] = []
    for index in range(draw(st.integers(1, longest))):
        earlier = ["x", "outside", *(f"{spec.name}.out" for spec in specs)]
        extras = draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True))
        flops = draw(st.sampled_from([0, 1, 7, 1000]))
        specs.append(StageSpec(f"s{index}", flops, extra_inputs=tuple(extras), reduces=draw(st.booleans())))
    return chain((3, draw(st.sampled_from([5, 50]))), "fp32", specs)


def brute_force(one: Chain, room: float, corrections: Corrections) -> Fusion:
    legal = [fusion for fusion in every_fusion(one, toy(), on_chip_bytes=room, corrections=corrections) if fusion.legal]
    return min(legal, key=lambda fusion: fusion.time_s)


@given(chains(), st.sampled_from([10.0, 100.0, 1000.0]), st.sampled_from([0, 1]), st.sampled_from([0.0, 0.5, 1.0]))
def test_the_best_grouping_is_never_slower_than_any_legal_one(one: Chain, room: float, launches: int, overlap: float) -> None:
    corrections = Corrections(launches=launches, overlap=overlap)
    found = best(one, toy(), on_chip_bytes=room, corrections=corrections)
    assert found.legal
    assert found.time_s <= brute_force(one, room, corrections).time_s * (1 + 1e-12)


@given(chains(), st.data())
def test_fusing_two_neighbours_never_raises_traffic_or_time(one: Chain, data: st.DataObject) -> None:
    groups = data.draw(st.sampled_from(list(groupings(one))))
    apart = fuse(one, groups, toy())
    for first, second in pairwise(range(len(groups))):
        together = fuse(one, (*groups[:first], groups[first] + groups[second], *groups[second + 1 :]), toy())
        assert together.bytes <= apart.bytes
        assert together.flops == apart.flops
        assert together.floor_s <= apart.floor_s * (1 + 1e-12)


@given(chains(), st.floats(1, 100))
def test_a_faster_memory_never_raises_the_best_time(one: Chain, factor: float) -> None:
    slow, fast = (best(one, toy().override({"hbm": 10 * scale}), on_chip_bytes=100) for scale in (1, factor))
    assert fast.time_s <= slow.time_s * (1 + 1e-12)


def test_a_stage_may_carry_any_cost() -> None:
    # A product feeding an activation: the epilogue saves a write and a read of the product's result.
    tensors = tuple(Tensor(name, shape, dtype("bf16")) for name, shape in (("a", (4, 8)), ("b", (8, 4)), ("c", (4, 4)), ("d", (4, 4))))
    stages = (
        Stage(name="product", reads=("a", "b"), writes=("c",), work=Cost.of({"matrix/bf16": 2 * 4 * 8 * 4})),
        Stage(name="relu", reads=("c",), writes=("d",)),
    )
    made = Chain(tensors=tensors, stages=stages)
    assert fuse(made, (1, 1), toy()).bytes - fuse(made, (2,), toy()).bytes == 2 * 32
