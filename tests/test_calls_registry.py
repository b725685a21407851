"""Custom calls: the registry, the door for users, and calls that only mark or move."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from call_sites import CAPTURES, calls, price, price_at, site, site_in
from every import every
from priced import amounts, fused
from roofline.cost import NOTHING, Cost
from roofline.errors import UsageError
from roofline.hlo.price.calls import CustomCall, forget_call, known_targets, price_call, register_call, registry
from roofline.hlo.price.calls.registry import BEGINNINGS, LIBRARIES, call
from roofline.ledger import Ledger, read


@pytest.fixture
def mine() -> Iterator[list[str]]:
    """Targets to forget after the test."""
    targets: list[str] = []
    yield targets
    for target in targets:
        forget_call(target)


def test_a_target_nobody_knows_has_no_price() -> None:
    assert price_call(site("f32[4]", "f32[4]", "my_kernel")) is None


def test_every_call_of_the_captured_programs_has_a_price() -> None:
    captured = [
        (path.name, name, found) for path in CAPTURES.glob("*.txt.gz") for name, found in calls(path.name.removesuffix(".txt.gz")).items()
    ]
    assert len(captured) > 10
    for file, name, found in captured:
        assert found.cost.is_known or found.category == "host callback", (file, name, found.notes)


def test_a_target_that_begins_like_a_librarys_is_priced_in_its_file() -> None:
    # Only that file is imported for it, so a function elsewhere would never be found.
    for target in known_targets():
        handler = call.own[target]
        for beginning, file in BEGINNINGS.items():
            if target.startswith(beginning):
                assert handler.__module__ == f"roofline.hlo.price.calls.{file}", target


def test_every_file_that_prices_calls_is_asked() -> None:
    folder = Path(registry.__file__).parent
    files = [path.stem for path in folder.glob("*.py") if "\n@call(" in path.read_text(encoding="utf-8")]
    assert sorted(files) == sorted(LIBRARIES)


def test_registering_a_library_call_twice_is_an_error() -> None:
    assert "__cublas$gemm" in known_targets()
    with pytest.raises(ValueError, match="already has a price"):
        call("__cublas$gemm")(lambda site: None)


def test_a_users_function_sees_shapes_and_configuration_and_names_the_cost(mine: list[str]) -> None:
    seen: list[CustomCall] = []

    def attention(found: CustomCall) -> Cost:
        seen.append(found)
        (rows, depth), (_, columns) = (shape.dims for shape in found.operands)
        return Cost.of({"matrix/bf16": 2 * rows * depth * columns}) + found.traffic

    register_call("my_kernel", attention)
    mine.append("my_kernel")
    found = price("(bf16[8,16], f32[8])", "bf16[8,32]; bf16[32,16]", "my_kernel", '{"tile":{"m":"8"}}')
    assert found.cost["matrix/bf16"] == 2 * 8 * 32 * 16
    # 8·32 + 32·16 + 8·16 elements of 2 bytes, and 8 of 4.
    assert found.cost["hbm"] == 2 * (256 + 512 + 128) + 32
    assert [shape.dtype for shape in seen[0].results] == ["bf16", "f32"]
    assert (seen[0].config, seen[0].raw_config) == ({"tile": {"m": "8"}}, '{"tile":{"m":"8"}}')
    assert (seen[0].target, seen[0].platform) == ("my_kernel", "gpu")


def test_a_ledger_brings_its_name_and_notes(mine: list[str]) -> None:
    register_call(
        "ledgered", lambda found: Ledger("flash", Cost.of({"matrix/bf16": 8}), (read("q", (4,), "bf16"),), ("as its author says",))
    )
    mine.append("ledgered")
    found = price("f32[4]", "f32[4]", "ledgered")
    assert (found.category, found.notes, found.cost["hbm"]) == ("flash", ("as its author says",), 8)


def test_a_prefix_stands_for_all_that_start_so_and_the_longest_wins(mine: list[str]) -> None:
    register_call("acme_*", lambda found: Cost.of({"hbm": 1}))
    register_call("acme_big_*", lambda found: Cost.of({"hbm": 2}))
    register_call("acme_big_one", lambda found: Cost.of({"hbm": 3}))
    mine += ["acme_*", "acme_big_*", "acme_big_one"]
    costs = [price("f32[4]", "", target).cost["hbm"] for target in ("acme_small", "acme_big_two", "acme_big_one")]
    assert costs == [1, 2, 3]


def test_a_users_function_that_knows_nothing_leaves_the_call_unknown(mine: list[str]) -> None:
    register_call("shy", lambda found: None)
    mine.append("shy")
    assert price_call(site("f32[4]", "f32[4]", "shy")) is None


def test_registering_for_a_taken_target_is_refused(mine: list[str]) -> None:
    register_call("once", lambda found: NOTHING)
    mine.append("once")
    for target in ("once", "__cublas$gemm", "lapack_*", ""):
        with pytest.raises(UsageError):
            register_call(target, lambda found: NOTHING)
    with pytest.raises(UsageError, match="you registered no function"):
        forget_call("never")


def test_a_function_that_returns_something_else_is_told_so(mine: list[str]) -> None:
    register_call("wrong", lambda found: 12)  # type: ignore[arg-type,return-value]
    mine.append("wrong")
    with pytest.raises(UsageError, match="returned a int; return a Cost"):
        price("f32[4]", "", "wrong")


@every(
    "target",
    [
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "MoveToHost",
        "AllocateBuffer",
        "ConcatBitcast",
        "GatherScatterIndicesBitpacked",
        "xla.sdy.FuncResultSharding",
    ],
)
def test_marks_for_the_compiler_cost_nothing(target: str) -> None:
    found = price("f32[1024,1024]", "f32[1024,1024]", target)
    assert (found.cost, found.category) == (NOTHING, "annotation")


def test_sorting_and_selecting_move_bytes_and_compare() -> None:
    # 64 rows of 4096 read; 16 values and their places written: 64·16·(4 + 4) bytes.
    found = price("(f32[64,16], s32[64,16])", "f32[64,4096]", "TopK")
    assert (found.cost.flops, found.cost["hbm"]) == (0, 64 * 4096 * 4 + 64 * 16 * 8)
    sort = calls("sorting")["custom-call.6"]
    # A million keys and values of 4 bytes each, in and out; the workspace is not traffic.
    assert (sort.cost.flops, sort.cost["hbm"], sort.category) == (0, 4 * 4 * 1_000_000, "sort")


def test_a_callback_crosses_to_the_host_and_computes_what_nobody_knows() -> None:
    found = calls("callbacks")["pure_callback.1"]
    assert (found.cost["pcie"], found.cost["hbm"], found.cost.flops) == (2 * 64 * 4, 2 * 64 * 4, None)


def test_packed_indices_of_a_gather_leave_its_cost_known() -> None:
    # The logits of 4096 targets, as the TPU compiler picks them: 4 bytes for each, read and written, and two indices of 4 bytes.
    picks = "offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,1}"
    body = f"""  %packed = s32[4096,2]{{1,0}} custom-call(%p1), custom_call_target="GatherScatterIndicesBitpacked"
  ROOT %picked = f32[4096]{{0}} gather(%p0, %packed), {picks}"""
    found = fused(body, "f32[4096]{0}", "f32[4096,32000]{1,0}", "s32[4096,2]{1,0}", kind="kCustom", platform="tpu")
    assert amounts(found.cost) == {"hbm": 4096 * (4 + 4 + 2 * 4)}


def test_an_operand_passed_twice_or_through_bitcasts_is_read_once() -> None:
    text = """HloModule twice
ENTRY main {
  p = f32[8,8]{1,0} parameter(0)
  b = f32[64]{0} bitcast(p)
  c = f32[4,16]{1,0} bitcast(b)
  ROOT call = f32[4]{0} custom-call(p, b, c, p), custom_call_target="TopK"
}
"""
    assert price_at(site_in(text)).cost["hbm"] == 4 * 64 + 4 * 4


def test_threefry_counts_its_integer_operations() -> None:
    # 119 operations make two words: 20 rounds of 5, 5 injections of 3, 2 to start, 2 for the third key word.
    found = price("(u32[100], u32[100])", "u32[]; u32[]; u32[100]; u32[100]", "cu_threefry2x32_ffi")
    assert found.cost["vector/int32"] == 119 * 100


def test_bytes_lie_where_the_arrays_do_on_a_tpu() -> None:
    # Memory space 1 is VMEM, 5 the host's memory behind PCIe.
    found = price("f32[16]{0:S(1)}", "f32[8]{0:S(5)}; f32[4]{0}", "X64Combine", platform="tpu")
    assert (found.cost["pcie"], found.cost["hbm"], found.cost["vmem.write"]) == (32, 16, 64)


def test_a_dimension_without_bound_makes_the_bytes_unknown() -> None:
    assert price("f32[4]", "f32[?]", "TopK").cost["hbm"] is None


def test_the_targets_of_the_docs_are_those_of_the_registry() -> None:
    assert {"__cublas$lt$matmul", "__cudnn$fmhaSoftmax", "tpu_custom_call", "lapack_*"} <= set(known_targets())
