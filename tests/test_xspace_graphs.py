"""Nodes of CUDA graphs find their instructions, or say that they are not sure."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from every import every
from roofline.hlo.price.collectives import Network
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.read.proto import parse_proto
from roofline.sources import read
from roofline.sources.xspace.commands import BRANCHES_AT_ONCE, CASE_SETTER, LOOP_SETTER, commands, slots, stem
from roofline.sources.xspace.graphs import Graph, RanNode, Resolved, resolve
from roofline.sources.xspace.modules import Place, Program
from roofline.workload import Op
from xspace_profiles import MICROSECOND, Instruction, by_name, gpu, hlo, host, kernel, launch, programs, recorded
from xspace_writer import Event

DATA = Path(__file__).parent / "data" / "h200"
X = Instruction("x", "parameter")
US = MICROSECOND


def fusion(name: str) -> Instruction:
    return Instruction(name, "fusion", ("x",))


def library(name: str) -> Instruction:
    return Instruction(name, "custom-call", ("x",), target="__cublas$lt$matmul")


def program(computations: dict[str, list[Instruction]]) -> Program:
    module = parse_proto(hlo("jit_f", computations))
    return Program(1, module, "gpu", Pricer(module, "gpu", Network()), "1")


def graph(kernels: dict[int, str], commands: int | None = None, scope: int | None = None, label: str = "command_buffer_1") -> Graph:
    """A graph launched once whose nodes ran in this order, a microsecond apart."""
    made = Graph(hash(label) % 1000, label, scope, commands=commands)
    for place, (index, name) in enumerate(kernels.items()):
        made.add(index, RanNode(name, place * US), 1)
    return made


def names(found: Resolved, of: Program) -> dict[int, str]:
    return {index: of.instruction(place).name for index, place in sorted(found.places.items())}


def resolved(of: Program, *graphs: Graph, outside: dict[Place, int] | None = None) -> list[tuple[dict[int, str], list[str]]]:
    found = resolve(of, list(graphs), outside or {})
    return [(names(found[one.id], of), found[one.id].doubts) for one in graphs]


def test_nodes_are_numbered_as_the_schedule_launches_and_children_follow() -> None:
    of = program({"main": [X, fusion("a.1"), library("call.1"), fusion("b.2"), library("call.2"), Instruction("t", "tuple", ("a.1",))]})
    # Indices 1 and 3 own graphs of two and one nodes: 4, 5 and 6.
    ran = graph({0: "a_9", 4: "Memset 0", 5: "gemm", 2: "b_2", 6: "gemm"}, commands=4)
    assert resolved(of, ran) == [({0: "a.1", 2: "b.2", 4: "call.1", 5: "call.1", 6: "call.2"}, [])]


def test_the_done_of_an_asynchronous_operation_launches_nothing() -> None:
    inner = [Instruction("p", "parameter"), Instruction("loop_slice_fusion.3", "fusion", ("p",))]
    start = Instruction("start.1", "async-start", ("x",), ("inner",))
    of = program({"inner": inner, "main": [X, start, Instruction("done.1", "async-done", ("start.1",)), fusion("b.2"), library("call.1")]})
    assert [command.stem for command in commands(of, 1)] == ["loop_slice_fusion", "b", "call"]
    assert resolved(of, graph({3: "memcpy128", 1: "b_2", 4: "gemm"}, commands=3)) == [({1: "b.2", 3: "start.1", 4: "call.1"}, [])]


def test_a_loops_graph_is_its_body() -> None:
    body = [Instruction("p", "parameter"), Instruction("a.1", "fusion", ("p",)), Instruction("b.1", "fusion", ("p",))]
    condition = [Instruction("q", "parameter"), Instruction("less.1", "fusion", ("q",), dtype="pred")]
    of = program({"body": body, "condition": condition, "main": [X, Instruction("while.1", "while", ("x",), ("body", "condition"))]})
    scope = 301  # the second instruction of the third computation
    assert resolved(of, graph({0: "a_1", 1: "b_7"}, commands=2, scope=scope)) == [({0: "a.1", 1: "b.1"}, [])]


def test_several_graphs_take_runs_between_what_runs_outside() -> None:
    of = program(
        {"main": [X, fusion("a.1"), fusion("b.1"), Instruction("fft.1", "fft", ("x",)), fusion("a.2"), fusion("b.2"), fusion("c.2")]}
    )
    outside = {Place(0, 3): 1}
    first, second = graph({0: "a_1", 1: "b_1"}, 2), graph({0: "a_1", 1: "b_1", 2: "c_2"}, 3, label="command_buffer_14")
    assert resolved(of, second, first, outside=outside) == [({0: "a.2", 1: "b.2", 2: "c.2"}, []), ({0: "a.1", 1: "b.1"}, [])]


def test_a_graph_is_found_even_where_every_instruction_also_ran_outside() -> None:
    # The first call of a program runs without graphs.
    of = program({"main": [X, fusion("a.1"), fusion("b.1"), Instruction("fft.1", "fft", ("x",)), fusion("c.2"), fusion("d.2")]})
    outside = {Place(0, position): 1 for position in range(1, 6)}
    assert resolved(of, graph({0: "c_2", 1: "d_2"}, 2), outside=outside) == [({0: "c.2", 1: "d.2"}, [])]


def test_a_sort_is_a_copy_and_several_kernels() -> None:
    inner = [Instruction("p", "parameter"), Instruction("sort.6", "sort", ("p",))]
    sort = Instruction("fusion.64", "fusion", ("x",), ("inner",))
    of = program({"inner": inner, "main": [X, fusion("a.1"), sort, fusion("b.1"), fusion("c.1")]})
    ran = graph({0: "a_1", 1: "memcpy128", 2: "sort_6_1", 3: "sort_6_2", 4: "b_1", 5: "c_1"}, commands=6)
    assert resolved(of, ran) == [({0: "a.1", 1: "fusion.64", 2: "fusion.64", 3: "fusion.64", 4: "b.1", 5: "c.1"}, [])]


def test_equal_kernels_with_one_name_before_a_sort_of_several_are_each_their_own_instruction() -> None:
    inner = [Instruction("p", "parameter"), Instruction("sort.6", "sort", ("p",))]
    sort = Instruction("fusion.64", "fusion", ("x",), ("inner",))
    of = program({"inner": inner, "main": [X, fusion("a.1"), fusion("a"), fusion("b_slice.1"), sort, fusion("c.1")]})
    ran = graph({0: "a_1", 1: "a_1", 2: "b_slice_1", 3: "memcpy32_post", 4: "sort_6_1", 5: "c_1"}, commands=6)
    found = resolve(of, [ran], {})[ran.id]
    assert names(found, of) == {0: "a.1", 1: "a", 2: "b_slice.1", 3: "fusion.64", 4: "fusion.64", 5: "c.1"}
    assert not found.doubts


def test_instructions_that_launched_nothing_are_left_out_where_names_agree() -> None:
    of = program({"main": [X, fusion("a.1"), fusion("b.2"), fusion("a.3"), fusion("c.4"), fusion("a.5")]})
    ran = graph({0: "a_1", 1: "a_1", 2: "c_4", 3: "a_1"}, commands=4)
    found = resolve(of, [ran], {})[ran.id]
    assert names(found, of) == {0: "a.1", 1: "a.3", 2: "c.4", 3: "a.5"}


def test_a_call_with_several_kernels_keeps_them_by_time_and_by_numbers_left_out() -> None:
    of = program({"main": [X, fusion("a.1"), library("call.1"), library("call.2"), fusion("b.1"), library("call.3")]})
    # call.2 owns a graph in a graph: its number 7 never runs, and its three kernels follow.
    ran = graph({0: "a_1", 5: "Memset 0", 6: "gemm", 8: "Memset 0", 9: "dot", 10: "main", 11: "convert", 3: "b_1", 12: "gemm"}, commands=5)
    ((found, doubts),) = resolved(of, ran)
    assert (found, doubts) == (
        {0: "a.1", 3: "b.1", 5: "call.1", 6: "call.1", **dict.fromkeys((8, 9, 10, 11), "call.2"), 12: "call.3"},
        [],
    )


def test_calls_in_a_row_that_nothing_parts_are_a_doubt() -> None:
    of = program({"main": [X, fusion("a.1"), library("call.1"), library("call.2"), fusion("b.1")]})
    ((found, doubts),) = resolved(of, graph({0: "a_1", 4: "one", 5: "two", 6: "three", 3: "b_1"}, commands=4))
    assert set(found.values()) == {"a.1", "b.1", "call.1", "call.2"}
    assert doubts == ["consecutive library calls have more kernels than calls"]


def test_calls_in_a_row_of_two_libraries_are_told_apart_by_their_kernels() -> None:
    of = program({"main": [X, fusion("a.1"), library("call.1"), library("call.2"), fusion("b.1")]})
    attention = {4: "Memset 0", 5: "cudnn::fusion::compute_dot_do_o", 6: "cudnn_sdpa_flash_bprop", 7: "cudnn::fusion::convert_dq_to_16bits"}
    ((found, doubts),) = resolved(of, graph({0: "a_1", **attention, 8: "nvjet_sm90_tss_128x128", 3: "b_1"}, commands=4))
    assert (found, doubts) == ({0: "a.1", 3: "b.1", **dict.fromkeys(attention, "call.1"), 8: "call.2"}, [])


def test_a_copy_after_a_call_of_several_kernels_is_not_one_of_them() -> None:
    of = program({"main": [X, fusion("a.1"), library("call.1"), Instruction("slice.1", "slice", ("x",)), fusion("b.1")]})
    attention = {4: "Memset 0", 5: "cudnn::fusion::compute_dot_do_o", 6: "cudnn_sdpa_flash_bprop", 7: "cudnn::fusion::convert_dq_to_16bits"}
    ((found, doubts),) = resolved(of, graph({0: "a_1", **attention, 8: "memcpy32_post", 3: "b_1"}, commands=4))
    assert (found, doubts) == ({0: "a.1", 3: "b.1", **dict.fromkeys(attention, "call.1"), 8: "slice.1"}, [])


def test_kernels_named_after_their_instructions_are_theirs_in_whatever_order_the_graph_has_them() -> None:
    # Node 1 owns the graph of the call.
    of = program({"main": [X, fusion("a.1"), fusion("b.2"), library("call.1"), fusion("c.3"), fusion("c.4")]})
    ran = graph({0: "b_2", 5: "gemm", 2: "c_3", 3: "a_1", 4: "c_4"}, commands=5)
    assert resolved(of, ran) == [({0: "b.2", 2: "c.3", 3: "a.1", 4: "c.4", 5: "call.1"}, [])]


@given(st.permutations(range(12)))
@example([4, 1, 2, 3, 0, *range(5, 12)])  # of one kind
def test_names_decide_in_every_order(order: list[int]) -> None:
    of = program({"main": [X, *(fusion(f"{'abcd'[number % 4]}.{number}") for number in range(12))]})
    kernels = {index: f"{'abcd'[number % 4]}_{number}" for index, number in enumerate(order)}
    expected = {index: name.replace("_", ".") for index, name in kernels.items()}
    assert resolved(of, graph(kernels, commands=12)) == [(expected, [])]


def test_kernels_out_of_order_that_may_be_those_of_several_instructions_are_a_doubt() -> None:
    of = program({"main": [X, fusion("a.1"), fusion("b.2"), fusion("b.3"), fusion("c.4")]})
    found, doubts = resolved(of, graph({0: "b_9", 1: "b_9", 2: "a_1", 3: "c_4"}, commands=4))[0]
    assert (found[2], found[3], {found[0], found[1]}) == ("a.1", "c.4", {"b.2", "b.3"})
    assert not doubts  # one keeps its place, the other has the only one left
    found, doubts = resolved(of, graph({0: "b_9", 1: "a_1", 2: "c_4", 3: "b_9"}, commands=4))[0]
    assert (found[1], found[2], {found[0], found[3]}) == ("a.1", "c.4", {"b.2", "b.3"})
    assert doubts == ["1 of 4 kernels are not in schedule order and may be those of other instructions"]


def test_a_sort_of_several_kernels_beside_instructions_that_launched_nothing_keeps_the_names_of_others() -> None:
    inner = [Instruction("p", "parameter"), Instruction("sort.6", "sort", ("p",))]
    sort = Instruction("fusion.64", "fusion", ("x",), ("inner",))
    of = program({"inner": inner, "main": [X, fusion("a.1"), sort, fusion("b.1"), fusion("c.1"), fusion("d.1")]})
    ran = graph({0: "a_1", 1: "sort_6_1", 2: "sort_6_2", 3: "b_1", 4: "d_1"}, commands=5)  # c.1 launched nothing
    assert resolved(of, ran) == [({0: "a.1", 1: "fusion.64", 2: "fusion.64", 3: "b.1", 4: "d.1"}, [])]


def test_what_does_not_agree_is_said() -> None:
    of = program({"main": [X, fusion("a.1"), fusion("b.1"), library("call.1"), fusion("c.1")]})
    shifted = graph({0: "c_1", 1: "a_1", 4: "gemm", 3: "a_2"}, commands=4)
    (((_, names_disagree),), ((_, too_many),)) = (
        resolved(of, shifted),
        resolved(of, graph({0: "a_1", 1: "b_1", 5: "z", 3: "c_1"}, commands=9)),
    )
    assert names_disagree == ["1 of 4 kernels do not match their instruction's name"]
    assert too_many[0] == "the host launched 9 commands, the schedule has 4"
    late = graph({0: "a_1", 1: "b_1", 3: "c_1", 4: "gemm"}, commands=4)
    assert resolved(of, late)[0][1] == ["1 of 1 library kernels ran out of schedule order"]


def test_branches_that_look_alike_and_cannot_be_told_are_a_doubt() -> None:
    def branch(name: str) -> list[Instruction]:
        return [
            Instruction("p", "parameter"),
            Instruction(f"a.{name}", "fusion", ("p",)),
            Instruction(f"call.{name}", "custom-call", ("p",), target="t"),
        ]

    main = [
        Instruction("x", "parameter", dims=(), dtype="s32"),
        Instruction("cond.1", "conditional", ("x", "x", "x"), ("one", "two", "three")),
    ]
    of = program({"one": branch("1"), "two": branch("2"), "three": branch("3"), "main": main})
    # Own nodes 0 to 3; the first branch would be 4 and 5, and its call nobody knows how many: 8 is the second's or the third's.
    ((found, doubts),) = resolved(of, graph({0: CASE_SETTER, 8: "a_1", 10: "gemm"}, commands=1))
    assert found[0] == "cond.1"
    assert doubts == ["branches look alike, so the one that ran is unknown"]


@dataclass
class Made:
    """A made-up program, and the graph it leaves."""

    computations: dict[str, list[Instruction]] = field(default_factory=dict)
    kernels: dict[int, str] = field(default_factory=dict)
    truth: dict[int, str] = field(default_factory=dict)
    count: int = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}.{self.count}"


Item = tuple[str, object]
LEAVES = st.one_of(
    st.tuples(st.just("fusion"), st.sampled_from(["fusion", "loop_add_fusion", "gemm_fusion_dot"])),
    st.tuples(st.just("call"), st.integers(0, 2)),
    st.tuples(st.just("copy"), st.none()),
)
ITEMS = st.recursive(
    st.lists(LEAVES, min_size=1, max_size=5),
    lambda inner: st.lists(
        st.one_of(LEAVES, st.tuples(st.just("conditional"), st.lists(inner, min_size=2, max_size=10))), min_size=1, max_size=4
    ),
    max_leaves=30,
)


def build(made: Made, items: list[Item], computation: str, predicates: bool) -> list[tuple[str, str, object]]:
    """Instructions of a computation; returns what each is recorded as: (name, kernel, what it owns)."""
    instructions, recorded = [X], []
    for kind, detail in items:
        if kind == "conditional":
            bodies = [(made.name("branch"), body) for body in detail]
            two = predicates and len(bodies) == 2
            name = made.name("cond")
            inner = [build(made, body, label, predicates) for label, body in bodies]
            instructions.append(Instruction(f"index.{name}", "constant", dims=(), dtype="pred" if two else "s32"))
            labels = tuple(label for label, _ in bodies)
            instructions.append(Instruction(name, "conditional", (f"index.{name}", *("x" for _ in bodies)), labels))
            recorded.append((name, CASE_SETTER, inner[::-1] if two else inner))
        elif kind == "call":
            name = made.name("custom-call")
            instructions.append(library(name))
            recorded.append((name, "", [*("Memset 0" for _ in range(detail)), "nvjet"]))
        else:
            name = made.name(str(detail) if kind == "fusion" else "copy")
            instructions.append(Instruction(name, "fusion" if kind == "fusion" else "copy", ("x",)))
            recorded.append((name, "memcpy32_post" if kind == "copy" else name.replace(".", "_"), None))
    made.computations[computation] = instructions
    return recorded


def number(made: Made, recorded: list[tuple[str, str, object]], begin: int) -> int:
    """Gives nodes their numbers: a graph's own, then those of the graphs they own. Returns the next free one."""
    own: list[tuple[str, str, object]] = []
    for name, kernel_name, owned in recorded:
        if kernel_name != CASE_SETTER:
            own.append((name, kernel_name, owned))
            continue
        for first in range(0, len(owned), BRANCHES_AT_ONCE):
            own.append((name, CASE_SETTER, None))
            own += [(name, "", body) for body in owned[first : first + BRANCHES_AT_ONCE]]
    free = begin + len(own)
    for index, (name, kernel_name, owned) in enumerate(own, start=begin):
        if kernel_name:
            made.kernels[index] = kernel_name
            made.truth[index] = name
        elif owned and isinstance(owned[0], str):
            for kernel_name in owned:
                made.kernels[free], made.truth[free] = kernel_name, name
                free += 1
        else:
            free = number(made, owned, free)
    return free


@given(ITEMS, st.booleans())
def test_whatever_the_program_all_of_a_graph_that_ran_is_attributed_right(items: list[Item], predicates: bool) -> None:
    made = Made()
    recorded = build(made, items, "main", predicates)
    computations = {name: body for name, body in made.computations.items() if name != "main"} | {"main": made.computations["main"]}
    number(made, recorded, 0)
    of = program(computations)
    ran = Graph(1, "command_buffer_1", None, commands=len(recorded))
    for index, name in made.kernels.items():  # in the order they run: children of a call in its place
        ran.add(index, RanNode(name, 0), 1)
    assert len(slots(of, commands(of, of.module.entry))) >= len(recorded)
    found = resolve(of, [ran], {})[1]
    assert names(found, of) == dict(sorted(made.truth.items()))
    assert found.doubts == []


def test_loops_inside_of_a_graph_are_a_body_a_condition_and_a_setter() -> None:
    body = [Instruction("p", "parameter"), Instruction("a.1", "fusion", ("p",)), Instruction("call.1", "custom-call", ("p",), target="t")]
    condition = [Instruction("q", "parameter"), Instruction("less.1", "fusion", ("q",), dtype="pred")]
    main = [X, fusion("b.1"), Instruction("while.1", "while", ("x",), ("body", "condition")), fusion("c.1")]
    of = program({"body": body, "condition": condition, "main": main})
    # Own: b, less, setter, the loop (3), c. The loop's: a, call (6), less, setter; the call's kernel.
    ran = {0: "b_1", 1: "less_1", 2: LOOP_SETTER, 5: "a_1", 9: "gemm", 7: "less_1", 8: LOOP_SETTER, 4: "c_1"}
    expected = {0: "b.1", 1: "less.1", 2: "while.1", 4: "c.1", 5: "a.1", 7: "less.1", 8: "while.1", 9: "call.1"}
    assert resolved(of, graph(ran, commands=3)) == [(expected, [])]


def test_kernels_share_the_stems_of_the_instructions_they_serve() -> None:
    assert stem("fusion_362") == stem("fusion.361") == "fusion"
    assert stem("gemm_fusion_dot.3.kd") == "gemm_fusion_dot"


def means(name: str) -> dict[str, Op]:
    return {op.name: op for op in read(DATA / f"{name}.xplane.pb.gz").workload if op.module.startswith("jit_step")}


@every("name", ["jax_switch", "jax_nested", "jax_graphs", "jax_attention"])
def test_with_graphs_and_without_operations_ran_as_often_and_as_long(name: str) -> None:
    # The same program, captured twice; without graphs events name their instructions themselves. A product may run in a library or not.
    graphs, plain = means(name), means(f"{name}_plain")
    shared = graphs.keys() & plain.keys()
    assert len(shared) >= len(plain) - 1
    for op in shared:
        one, other = graphs[op], plain[op]
        assert (op, one.count, one.cost) == (op, other.count, other.cost)
        # cuDNN clears more of its workspace when it runs without a graph.
        assert one.kernels == other.kernels or op.startswith("dot_product_attention")
        each, reference = (one.time_s or 0) / one.count, (other.time_s or 0) / other.count
        assert each == pytest.approx(reference, rel=0.25, abs=3e-6), op


MLP = {"wide": 2 * 2 * 2048 * 1024 * 4096, "narrow": 2 * 2 * 2048 * 1024 * 512, "middle": 2 * 2 * 2048 * 1024 * 2048}
PRODUCTS = {  # FLOP in products of two matrices, over six steps
    # Each step a wide one before and a narrow one after; three steps two wide, three steps two narrow.
    "jax_cond": (6 + 2 * 3) * MLP["wide"] + (6 + 2 * 3) * MLP["narrow"],
    # Each step one of both; then two wide, two narrow, or one of both, in two steps each.
    "jax_switch": (6 + 4 + 2) * (MLP["wide"] + MLP["narrow"]),
    # Two in the outer loop of three, and in the inner loop of four two more.
    "jax_nested": 6 * 3 * (2 + 4 * 2) * MLP["middle"],
    # Five, and as many as there are even numbers below 2, 3 and 4.
    "jax_cold": (6 * 5 + 2 * (1 + 2 + 2)) * MLP["middle"],
}


@every("name", PRODUCTS)
def test_products_are_exact_however_the_program_branches_and_loops(name: str) -> None:
    recording = read(DATA / f"{name}.xplane.pb.gz")
    assert sum(amount for op in recording.workload for resource, amount in op.cost.amounts if resource.unit == "matrix") == PRODUCTS[name]
    assert (recording.notes, len(recording.steps)) == ((), 6)
    assert recording.coverage.attributed_s == recording.coverage.priced_s == recording.coverage.busy_s


def test_a_loop_inside_of_a_graph_is_attributed_and_said_to_be_short() -> None:
    recording = read(DATA / "jax_loop_in_graph.xplane.pb.gz")
    assert recording.coverage.attributed_s == recording.coverage.busy_s
    (note,) = recording.notes
    assert note.startswith("jit_step, command_buffer_1: the profiler records one iteration of each loop")


def test_a_profile_without_the_hosts_side_still_resolves_its_graphs(tmp_path: Path) -> None:
    module = hlo("jit_f", {"main": [X, Instruction("add.1", "add", ("x", "x")), Instruction("add.2", "add", ("add.1", "x"))]})

    def node(index: int, name: str, start: int, id: int) -> Event:
        stats = {"hlo_op": "command_buffer_1", "program_id": 7, "cuda_graph_node_id": (5 << 32) + index, "correlation_id": id}
        return kernel(name, start, US, **stats)

    events = [node(index, f"add_{index + 1}", (10 * id + 2 * index) * US, id) for id in range(3) for index in range(2)]
    recording = recorded(tmp_path, gpu(events), programs({7: module}))
    assert {name: op.count for name, op in by_name(recording).items()} == {"add.1": 3, "add.2": 3}
    assert recording.notes == ()
    execute = Event("command_buffer::execute", 0, 10 * US, {"num_commands": 5})
    doubted = recorded(
        tmp_path, gpu(events), programs({7: module}), host([execute, launch(0, US, name="cuGraphLaunch (CudaGraph:5)", cuda_graph_id=5)])
    )
    assert doubted.notes == (
        "uncertain match of kernels to ops in jit_f, command_buffer_1: the host launched 5 commands, the schedule has 2",
    )
    assert all("uncertain match" in op.notes[-1] for op in doubted.workload)
