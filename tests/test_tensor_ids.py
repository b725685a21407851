"""Ids of tensors in traces: graphs of captured programs have exact edges, and rules tell of them what they tell of functions."""

import gzip
import json
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from recorded_calls import PROGRAMS, Program
from recorded_traces import FOLDER, OBSERVED, OBSERVED_FOLDER, OBSERVER, TRACE, TRAINED, observed, trace_of
from roofline.graph import Graph, Operator
from roofline.resource import HBM
from roofline.rules.order import RULES
from roofline.rules.unfused_chain.kernels import unfused_kernels
from roofline.sources.torch_trace import rows
from roofline.sources.torch_trace.recording import read_part
from test_rules import BY_SIZE, KINDS, REPEATED, TOLD
from test_torch_findings import LISTS
from torch_writer import TorchTrace


def graph_in(trace: bytes | Path) -> tuple[Graph, tuple[str, ...]]:
    """The graph of a trace, and the notes."""
    graphs: list[Graph] = []
    with pytest.MonkeyPatch.context() as patch:
        lowered = rows.graph_of
        patch.setattr(rows, "graph_of", lambda *given: graphs.append(lowered(*given)) or graphs[-1])
        part = read_part(trace) if isinstance(trace, Path) else read_part("trace.json", data=trace)
    return graphs[0], part.notes


def data_of(name: str) -> bytes:
    return gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes())


def told(graph: Graph) -> Counter[tuple[str, str]]:
    reasons = {(kernel, reason.kind, reason.group) for rule in RULES for kernel, reason in rule(graph) if reason.kind in KINDS}
    return Counter((kind, group) for _, kind, group in reasons)


# What differs from the function: a trace does not have the kernel of positions, which takes no tensor. On a CPU the scatter into numbers
# of 16 bits copies these to 32 bits and back, and only the copies are work; nothing takes the sum over windows, of which the trace tells
# another size. A trace says that memory is left, not which view of it.
ROWS, UNUSED, PADDED = ("one-hot-product", ""), ("unused-results", ""), ("padding", "")
ON_CPU = {
    "one_hot": {ROWS: 4},
    "one_hot_square": {ROWS: 4},
    "one_hot_trained": {ROWS: 5},
    "one_hot_added_up": {ROWS: 4},
    "few_classes": {ROWS: 4},
    "one_hot_scattered": {},
    "rows_used": {},
    "last_updated": {("unused-results", "gradients"): 2},  # a trace tells what comes after the last gradient that is used
    "images_repeated": {REPEATED: 2},  # nothing takes the activation
    "every_sixteenth": {},  # the divisor is a tensor there
    "table_trained": {},  # the gradient of the table is made by operators inside another
    "table_trained_by_half": {},
    "small_table_trained": {},
    "table_trained_as_output_too": {},
    # On a CPU the scores are copied, and filled in place.
    "scores_masked": {("stored-attention", ""): 5, ("masked-attention", ""): 2},
    "scores_masked_trained": {("stored-attention", ""): 12, ("masked-attention", ""): 6},
    "patches_trained": {("repeated-operand", "patches"): 3, ("layout-copies", ""): 2},
    # The tokens of all experts are a copy of expanded ones; their gradients are not added up, and of `where` the number format is unknown.
    "all_experts": {("dense-experts", "8"): 2, ("repeated-operand", "stored"): 2},
    "all_experts_trained": {("dense-experts", "8"): 6, ("unused-results", ""): 2},
    "wide_experts": {("layout-copies", ""): 1},
    "most_experts": {("repeated-operand", "stored"): 2},
    # On a CPU a mean is a sum, a division in place and copies, and an inverse is written in place by routines of LAPACK.
    "summed_rows": {},
    "summed_rows_trained": {},
    "inverse_of_columns": {},
    "inverse_of_vector": {},
    # It has no tf32, and multiplies fp32 as fast as bf16.
    "inverse_of_matrix": {},
    "inverse_returned": {},
    "inverse_with_diagonal": {},
    "solved_for_matrix": {},
    "layer_in_fp32": {},
    "widened_product": {},
    "complex_convolution": {("wide-format", "complex"): 3},  # nothing takes the real part of the last transform's result
    # Padding is a fill and a copy of the data into it; zeros take no tensor.
    # Copies into gradients are writes.
    "linear_attention_trained": {("product-order", ""): 6},
    "scores_written_trained": {("stored-attention", ""): 10},
    "masked_causally": {("masked-attention", "built"): 3},
    "contrasted": {},
    "padded_tokens": {PADDED: 5},
    "padded_tokens_trained": {PADDED: 12, UNUSED: 1},
    "padded_columns": {PADDED: 1},
    "padded_by_writing": {},
    "diagonal_matrix": {},  # it is written into zeros
    "tiny_factors": {},  # in place, by a routine of LAPACK
    "micro_batches": {("low-batch", "loop"): 31, ("low-batch", "one by one"): 40},  # of one kind, the first counts for an op
}
CAPTURED = [name for name in PROGRAMS if name != "solved_for_identity"]  # of a matrix without elements, which cannot be run


@every("name", CAPTURED)
def test_a_captured_program_is_told_what_the_function_is(name: str) -> None:
    graph, _ = graph_in(data_of(name))
    assert all(array.sure for array in graph.arrays)
    assert told(graph) == ON_CPU.get(name, TOLD.get(name, {}))


# By program, what is told of gradients, and of how many kernels.
ZEROS, GRADIENTS = ("unused-results", "zeros"), ("unused-results", "gradients")
OF_GRADIENTS: dict[str, dict[tuple[str, str], int]] = {
    "gradients_dropped": {},
    "gradients_filled": {ZEROS: 4},  # two gradients, each filled and added to
    "gradients_filled_and_accumulated": {ZEROS: 4},  # the second pass has to add
    "gradients_frozen": {GRADIENTS: 3},  # a gradient through the activation, the product with it, and the addition to the last one
    # The same while the second weight is updated, as the first weight's gradients are dropped; and while the first one is, a product
    # and an addition for the second.
    "gradients_zeroed": {GRADIENTS: 5},
}


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("name", TRAINED)
def test_gradients_are_told_that_no_optimizer_uses(name: str, has_ids: bool) -> None:
    graph, _ = graph_in(data_of(name) if has_ids else changed(name, roofline_tensors=None))
    assert any(array.sure for array in graph.arrays) == has_ids
    found = Counter((reason.kind, reason.group) for rule in RULES for _, reason in rule(graph))
    assert {key: found[key] for key in (ZEROS, GRADIENTS) if found[key]} == OF_GRADIENTS[name]


def changed(name: str, **values: Any) -> bytes:
    return json.dumps({**json.loads(data_of(name)), **values}).encode()


def test_without_ids_arrays_are_matched_by_size() -> None:
    trace = json.loads(data_of("products_beside"))
    del trace["roofline_tensors"]
    graph, notes = graph_in(json.dumps(trace).encode())
    assert not any(array.sure for array in graph.arrays)
    assert told(graph) == BY_SIZE["products_beside"]  # a false finding
    assert notes == ()


@every("value", [7, "ids", [], {}, {"ops": 3, "left": []}, {"ops": [[1, [2], [3]]], "left": []}, {"ops": [[1, [2.5], [], []]], "left": []}])
def test_odd_ids_cost_a_note(value: Any) -> None:
    graph, notes = graph_in(changed("products_beside", roofline_tensors=value))
    assert not any(array.sure for array in graph.arrays)
    assert len(notes) == 1
    assert "trace.json: its ids of tensors are not valid" in notes[0]
    assert "what ops read is matched by size" in notes[0]


@every("name", OBSERVED)
def test_an_execution_trace_beside_a_trace_gives_the_same_edges(name: str) -> None:
    graph, _ = graph_in(OBSERVED_FOLDER / name / TRACE)
    captured, _ = graph_in(data_of(name))
    assert [(node.operator, node.kernel) for node in graph.nodes if node.kernel >= 0] == [
        (node.operator, node.kernel) for node in captured.nodes if node.kernel >= 0
    ]
    assert all(array.sure for array in graph.arrays)
    assert told(graph) == ON_CPU.get(name, TOLD.get(name, {}))


def beside(folder: Path, text: bytes, name: str = "products_beside") -> tuple[Graph, tuple[str, ...]]:
    """The graph of a trace beside which the observer's file has this text."""
    (folder / TRACE).write_bytes((OBSERVED_FOLDER / name / TRACE).read_bytes())
    (folder / OBSERVER).write_bytes(text)
    return graph_in(folder / TRACE)


@pytest.mark.parametrize("text", [b"", b"{}", b"\x1f\x8b", b'{"schema": "1", "nodes": [{"id": "x"}]}', b"[" * 100_000])
def test_an_execution_trace_that_cannot_be_read_costs_a_note(text: bytes, tmp_path: Path) -> None:
    graph, notes = beside(tmp_path, text)
    assert not any(array.sure for array in graph.arrays)
    assert len([note for note in notes if f"{OBSERVER}: not a valid execution trace" in note]) == 1


def test_the_execution_trace_of_another_process_is_left_out(tmp_path: Path) -> None:
    execution = json.loads(gzip.decompress((OBSERVED_FOLDER / "products_beside" / OBSERVER).read_bytes()))
    graph, notes = beside(tmp_path, json.dumps({**execution, "pid": execution["pid"] + 1}).encode())
    assert not any(array.sure for array in graph.arrays)
    assert notes == ()


@given(data=st.data())
def test_any_values_of_an_execution_trace_give_a_graph(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    execution = json.loads(gzip.decompress((OBSERVED_FOLDER / "one_hot_trained" / OBSERVER).read_bytes()))
    odd = st.recursive(st.none() | st.integers() | st.text(max_size=9), lambda part: st.lists(part, max_size=3), max_leaves=6)
    for node in execution["nodes"]:
        if data.draw(st.booleans()):
            values = node[data.draw(st.sampled_from(("inputs", "outputs")))]
            values[data.draw(st.sampled_from(sorted(values)))] = data.draw(st.lists(odd, max_size=3))
    beside(tmp_path_factory.mktemp("run"), json.dumps(execution).encode(), "one_hot_trained")


NUMBERS = st.integers(-1, 2**62 - 1) | st.integers(-1, 9)


@given(data=st.data())
def test_any_numbers_give_a_graph(data: st.DataObject) -> None:
    trace = json.loads(data_of("one_hot_trained"))
    for op in trace["roofline_tensors"]["ops"]:
        if data.draw(st.booleans()):
            place = data.draw(st.integers(0, 3))
            op[place] = data.draw(NUMBERS if not place else st.lists(NUMBERS, max_size=6))
    _, notes = graph_in(json.dumps(trace).encode())
    assert not any("failed" in note for note in notes)


def test_lists_that_a_trace_leaves_out_have_the_sizes_of_what_is_at_their_places() -> None:
    # Two weights p with gradients g, moments m and v, and v's roots r, each a memory. One kernel reads g, m, v and p, and writes m, v and
    # p: 7 lists of 15, of which lerp reads and writes 3 anyway. The price of addcmul has the gradients twice.
    shapes = ((4096, 1024), (2048, 1024))
    p, g, m, v, r = ((2 * place, 2 * place + 1) for place in range(5))
    operators = (("lerp_", (*m, *g)), ("mul_", v), ("addcmul_", (*v, *g, *g)), ("sqrt", v), ("addcdiv_", (*p, *m, *r)))
    trace, ops = TorchTrace(), [[3, [40, 40, 41, 41], [], [42, 1024]]]
    trace.op("aten::mm", 0, 1, [(16, 16), (16, 16)], dtype="float", external_id=3)
    trace.run("gemm", launched=0.5, start=10, dur=9)
    for number, shape in enumerate(shapes):
        trace.op("torch::autograd::AccumulateGrad", 2 + number, 1, [shape], dtype="float", external_id=10 + number)
        ops.append([10 + number, [g[number], g[number]], [], []])
    trace.annotation("Optimizer.step#Adam.step", 5, 100)
    for number, (name, tensors) in enumerate(operators):
        functor = LISTS[f"aten::_foreach_{name}"]
        trace.op(f"aten::_foreach_{name}", 10 * number + 10, 5, values=[""], external_id=20 + number)
        kernel = f"multi_tensor_apply_kernel<TensorListMetadata<1>, {functor}>"
        trace.run(kernel, launched=10 * number + 11, start=100 * number + 50, dur=90, grid=(96, 1, 1))
        ids = [memory for tensor in tensors for memory in (tensor, tensor)]
        given = [] if name.endswith("_") else [r[0], 4 * prod(shapes[0]), r[1], 4 * prod(shapes[1])]
        ops.append([20 + number, ids, [0, 1] if name.endswith("_") else [], given])
    trace.head["roofline_tensors"] = {"ops": ops, "left": [*p, *m, *v]}
    graph, notes = graph_in(trace.text())
    assert (notes, all(array.sure for array in graph.arrays)) == ((), True)
    left = [float(reason.instead.known(HBM)) for _, reason in unfused_kernels(graph) if reason.group == "optimizer"]
    assert sum(left) == (7 - 3 + 1) * 4 * sum(map(prod, shapes))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["one_hot_trained", "gathered_and_joined", "one_hot_written_in_part"])
def test_recorded_traces_are_those_of_pytorch(name: str) -> None:
    pytest.importorskip("torch")
    (graph, _), (before, _) = graph_in(json.dumps(trace_of(PROGRAMS[name])).encode()), graph_in(data_of(name))
    assert [(node.operator, node.takes, node.gives) for node in graph.nodes] == [
        (node.operator, node.takes, node.gives) for node in before.nodes
    ]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_memory_that_is_used_again_is_another_array() -> None:
    pytest.importorskip("torch")

    def program(torch: Any, first: Any) -> Any:
        results, addresses = [], set()
        for _ in range(20):
            rows = torch.relu(first)
            addresses.add(rows.data_ptr())
            results.append((rows @ first).sum())
            del rows
        assert len(addresses) < 20
        return results

    graph, _ = graph_in(json.dumps(trace_of(Program(program, ((512, 512), "float32")))).encode())
    relus = [graph.maker[product.takes[0]] for product in graph.of(Operator.DOT)]
    assert len({relu.kernel for relu in relus}) == len(relus) == 20
    assert all(relu.kernel == product.kernel - 1 for relu, product in zip(relus, graph.of(Operator.DOT), strict=True))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_what_is_written_through_a_view_is_read_from_the_whole() -> None:
    pytest.importorskip("torch")

    def program(torch: Any, first: Any) -> Any:
        whole = torch.relu(first)
        left, right = whole.chunk(2, -1)
        right.mul_(2.0)
        part = whole[8:16]
        part.copy_(first[:8])
        return whole @ first, left.contiguous()

    graph, _ = graph_in(json.dumps(trace_of(Program(program, ((64, 64), "float32")))).encode())
    (product,) = graph.of(Operator.DOT)
    update = graph.maker[product.takes[0]]
    assert update.operator == Operator.UPDATE
    assert [graph.maker[part].operator for part in update.takes] == [Operator.ELEMENTWISE, Operator.MULTIPLY, Operator.COPY]
    (left,) = (node for node in graph.of(Operator.COPY) if node.kernel > product.kernel)
    assert graph.maker[left.takes[0]].operator == Operator.UPDATE  # which half it is, the profiler does not say


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_execution_traces_are_those_of_pytorch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    trace, execution = observed(PROGRAMS["one_hot_trained"])
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    (tmp_path / "pytorch_et.json").write_text(json.dumps(execution))
    (graph, _), (before, _) = graph_in(tmp_path / "trace.json"), graph_in(OBSERVED_FOLDER / "one_hot_trained" / TRACE)
    assert [(node.operator, node.takes, node.gives) for node in graph.nodes] == [
        (node.operator, node.takes, node.gives) for node in before.nodes
    ]
