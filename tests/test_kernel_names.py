"""Kernel names in all their spellings, and launches laid along a program."""

import csv
import gzip
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.analysis.counters.kernel_names import align, named, spellings
from roofline.sources.ncu.recording import read_counters

DATA = Path(__file__).parent / "data"


@every(
    ("cupti", "ncu"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int)",
            "void native::vectorized_elementwise_kernel<8, native::CUDAFunctor_add<c10::BFloat16>, std::array<char *, 3>>(int)",
        ),
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>(int, float)",
            "void native::<unnamed>::vectorized_layer_norm_kernel<c10::BFloat16, float, 0>(int, T2)",
        ),
        (
            "void cudnn::fusion::convert_dq_to_16bits<true>(void const*, void*)",
            "void cudnn::convert_dq_to_16bits<(bool)1>(const void *, void *)",
        ),
        ("copy(float const*, float*, unsigned long)", "copy(const float *, float *, unsigned long)"),
    ],
)
def test_two_tools_spell_one_kernel(cupti: str, ncu: str) -> None:
    assert cupti != ncu
    assert spellings(cupti)[1] == spellings(ncu)[1]


def test_a_name_is_taken_apart_from_exact_to_loose() -> None:
    assert spellings("void a::f<3, b::c<d>>(e)") == ("void a::f<3, b::c<d>>(e)", "f<3,c<d>>", "f", "f")
    assert spellings("loop_add_fusion_12.clone.1")[3] == "loop_add_fusion"
    assert spellings("Cijk_Ailk_Bljk.kd")[3] == "Cijk_Ailk_Bljk"
    assert named("_Z8readonlyPK6float4Pfmi") == "readonly"
    assert named("_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_11FillFunctorIfEEEEviT0_") == "vectorized_elementwise_kernel"
    assert named("_Z") == "_Z"


def test_repeated_steps_and_shared_names_are_told_apart_by_order() -> None:
    # Three programs one after the other; "compare" is in all of them, "add" in two. The launches are one run of each.
    program = ["norm", "gelu", "compare", "select", "add", "norm2", "compare", "add", "compare", "all"]
    assert align([(name, None) for name in program], [(name, None) for name in program]) == list(range(10))
    # The second run of the last program alone, then the first one again.
    assert align([(name, None) for name in ("compare", "all", "norm", "gelu", "compare")], [(name, None) for name in program]) == [
        8,
        9,
        0,
        1,
        2,
    ]


def test_a_loop_goes_back_to_its_first_kernel() -> None:
    program = [(name, None) for name in ("in", "a", "b", "out", "a", "c")]
    launches = [(name, None) for name in ("in", "a", "b", "a", "b", "a", "b", "out")]
    assert align(launches, program) == [0, 1, 2, 1, 2, 1, 2, 3]


def test_the_grid_decides_between_launches_of_one_name() -> None:
    program = [("gemm", (1, 1, 1)), ("gemm", (2, 1, 1))]
    assert align([("gemm", (2, 1, 1)), ("gemm", (2, 1, 1)), ("gemm", (1, 1, 1))], program) == [1, 1, 0]
    assert align([("gemm", (9, 9, 9)), ("gemm", None)], program) == [0, 1]  # no such grid, or none known: by order


def test_names_match_as_closely_as_they_can() -> None:
    program = [("fusion_3", None), ("fusion_7", None), ("void x::k<1>(int)", None)]
    assert align([("fusion_7", None)], program) == [1]  # exactly
    assert align([("fusion_9", None), ("fusion_10", None)], program) == [0, 1]  # compiled anew, numbered anew
    assert align([("void k<1>(T1)", None), ("k<2>(int)", None)], program) == [2, 2]
    assert align([("memset", None)], program) == [None]


def test_what_is_not_in_the_program_does_not_break_its_order() -> None:
    program = [("a", None), ("Memset", None), ("b", None), ("a", None), ("c", None)]
    assert align([(name, None) for name in ("a", "helper", "b")], program) == [0, None, 2]


def test_the_kernels_of_a_training_step_fall_into_place() -> None:
    with gzip.open(DATA / "ncu_torch_profile.csv.gz", "rt") as file:
        rows = list(csv.reader(file))[1:]
    profile = [(name, tuple(int(size) for size in grid.split("x"))) for name, grid in rows]
    places = align([(launch.name, launch.grid) for launch in read_counters(DATA / "ncu_torch_eager.csv.gz")[0]], profile)
    # The profile begins in the middle of a backward pass; the counters are the first 200 kernels of a step, without a gap.
    first = places[0]
    assert first is not None
    assert places == list(range(first, first + 200))
    assert spellings(profile[first][0])[2] == "vectorized_gather_kernel"


NAMES = st.sampled_from(["a", "b", "c", "d_1", "d_2"])


@given(launches=st.lists(NAMES, max_size=12), program=st.lists(NAMES, max_size=8))
def test_every_launch_finds_a_kernel_of_its_name_if_there_is_one(launches: list[str], program: list[str]) -> None:
    places = align([(name, None) for name in launches], [(name, None) for name in program])
    assert len(places) == len(launches)
    for name, place in zip(launches, places, strict=True):
        if name in program:
            assert place is not None
            assert program[place] == name
        elif place is not None:
            assert spellings(program[place])[3] == spellings(name)[3]


@given(program=st.lists(NAMES, min_size=1, max_size=8), runs=st.integers(1, 3))
def test_a_program_run_whole_is_followed_kernel_by_kernel(program: list[str], runs: int) -> None:
    unique = [f"{name}{place}x" for place, name in enumerate(program)]
    assert align([(name, None) for name in unique * runs], [(name, None) for name in unique]) == list(range(len(unique))) * runs


@given(st.text(max_size=60))
def test_any_name_has_spellings(name: str) -> None:
    exact, *_, loosest = spellings(name)
    assert exact == name
    assert loosest or not name.strip() or set(name) <= set("<>()void: \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0")
