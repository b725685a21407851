"""Rules on graphs of recorded calls: what each of some small programs is told, and what programs whose sizes coincide are not."""

from collections import Counter

import pytest
from msgspec.structs import replace

from every import every
from recorded_calls import PROGRAMS, read, record
from roofline.analysis.evidence import with_evidence
from roofline.cost import Cost
from roofline.dtypes import dtype
from roofline.graph import Array, Graph, Kernel, Node, Operator
from roofline.resource import HBM
from roofline.rule_failures import RuleFailures
from roofline.rules.duplicated_work.second_passes import second_passes
from roofline.rules.low_batch.rows_in_parts import rows_in_parts
from roofline.rules.order import RULES
from roofline.rules.product_order.narrow_last import costly_orders
from roofline.rules.product_order.summed import summed_products
from roofline.sources.torch_trace.context import Context
from roofline.sources.torch_trace.executions import Execution
from roofline.sources.torch_trace.lower.graph import graph_of as graph_of_trace
from roofline.sources.torch_trace.lower.recorded import Recorded
from roofline.sources.torch_trace.pricing import PricedOp
from roofline.torch.lower import graph_of
from roofline.torch.recorder import BACKWARD, Seen
from roofline.torch.workload import ops_of
from roofline.torch_prices import Call, Tensor, price
from roofline.workload import Recording, Workload

# Of each program, the kind and group of its findings, and how many calls have them.
ROWS, ORDER, REPEATED = ("one-hot-product", ""), ("product-order", ""), ("repeated-operand", "rows")
BATCH, MERGED, INVERSE = ("product-order", "batch"), ("product-order", "merged"), ("product-order", "inverse")
FEW_ROWS, ONE_BY_ONE, IN_PARTS = ("low-batch", ""), ("low-batch", "one by one"), ("low-batch", "loop")
STORED, MASK, OPERAND = "stored", "mask", "repeated-operand"
SAMPLED = ("unused-results", "sampled")
APPENDED = ("missing-donation", "shifted")
SCORES, MASKED, BUILT = ("stored-attention", ""), ("masked-attention", ""), ("masked-attention", "built")
UNUSED, MATRICES, PATCHES = ("unused-results", ""), "gathered", "patches"
WRITTEN, PAIRS = (OPERAND, ""), (OPERAND, "pairs")
LAYOUT = ("layout-copies", "")
PADDED, ODD, TINY = ("padding", ""), ("odd-sizes", ""), ("odd-sizes", "tiny")
TWICE, AGAIN, EXPERTS = ("duplicated-work", ""), ("recomputation", ""), ("dense-experts", "8")
JOINED, FACTORED = ("layout-copies", "joined"), ("product-order", "factored")
FULL_TABLE = ("dense-gradient", "")
FULL, COMPLEX = ("wide-format", "full fp32"), ("wide-format", "complex")
TOLD = {
    "one_hot": {ROWS: 5},  # the positions, the comparison, two casts and the product
    "one_hot_square": {ROWS: 5},
    "one_hot_trained": {ROWS: 6},  # and the gradient of the table
    "one_hot_added_up": {ROWS: 5},
    "one_hot_scattered": {ROWS: 3},  # zeros, the scatter and the product
    "one_hot_kept": {ROWS: 1},  # the caller needs the rows
    "few_classes": {ROWS: 5},
    "table_trained": {FULL_TABLE: 7, FULL: 3},  # all operators of Adam, whose first moments are zeros
    "table_trained_by_half": {FULL: 3},
    "small_table_trained": {FULL: 3},
    "table_trained_as_output_too": {FULL: 3},
    "linear_attention": {ORDER: 2},
    "linear_attention_trained": {ORDER: 6, LAYOUT: 1},  # two products, and two for the gradients of each
    "linear_attention_scaled": {ORDER: 2},
    "linear_attention_in_place": {ORDER: 2},
    "low_rank": {ORDER: 2},
    "wide_with_bias": {ORDER: 2},
    "wide_with_matrix": {(ORDER[0], "added"): 1},  # (b + x v) w is b w + x (v w)
    "scores_written": {SCORES: 4},  # both products, the scaling and the softmax
    "scores_written_trained": {SCORES: 10, LAYOUT: 1},  # and two products for the gradients of each, of the softmax and of the scaling
    "scores_masked": {SCORES: 4, MASKED: 2},
    "scores_masked_trained": {SCORES: 10, MASKED: 6, LAYOUT: 1},
    "scores_by_distance": {SCORES: 4},
    "masked_causally": {BUILT: 3, LAYOUT: 3},  # the comparison, attention and its gradient, which are copied to the order of the arguments
    "masked_by_keys": {("masked-attention", "keys"): 1},
    "kronecker": {FACTORED: 2},  # what writes it out, and the product
    "outer_product": {FACTORED: 2},
    "separable_filter": {FACTORED: 1, ("layout-copies", "depthwise"): 1},
    "weights_stacked": {JOINED: 1},
    "weights_joined": {JOINED: 1},
    "condition_of_each_token": {REPEATED: 1},
    "prompts_repeated": {REPEATED: 1},
    "images_repeated": {REPEATED: 3},  # the copy, the convolution and the function of its result
    "every_sixteenth": {("unused-results", "condition"): 3},  # the product, the function and the sum
    "summed_rows": {ORDER: 2},
    "summed_rows_scaled": {ORDER: 4},  # and the scaling and the cast in between
    "summed_rows_trained": {ORDER: 4},  # and the gradients of both operands
    "summed_columns": {ORDER: 2},
    "summed_batch": {BATCH: 2},
    "few_rows": {FEW_ROWS: 1},
    "few_rows_trained": {FEW_ROWS: 2},  # and the gradient of the rows
    "few_rows_of_cast_weights": {FEW_ROWS: 2},  # and the cast
    "vector": {FEW_ROWS: 1},
    # Of 8 parts: their products with the second matrix, forward and backward, its gradients, and 7 additions. Of products of two arguments,
    # as the first ones, it does not show which are weights.
    "micro_batches": {IN_PARTS: 8 + 8 + 8 + 7},
    "two_micro_batches": {IN_PARTS: 2 + 2},
    "micro_batches_of_many_rows": {ONE_BY_ONE: 5 * 8},  # which saves nothing where a product takes longer than a launch
    "ensemble": {ONE_BY_ONE: 8},
    "all_experts": {EXPERTS: 2},
    # And the gradients of both operands of each; those of the tokens are added up, and those of the gates used for the chosen experts.
    "all_experts_trained": {EXPERTS: 6, BATCH: 2, UNUSED: 2},
    "wide_experts": {EXPERTS: 1, LAYOUT: 1},  # the experts' weights, for one product
    "soft_experts": {LAYOUT: 1},
    "experts_one_by_one": {EXPERTS: 8, ONE_BY_ONE: 8},
    "experts_one_by_one_trained": {EXPERTS: 24, ONE_BY_ONE: 24},
    "inverse_of_columns": {INVERSE: 1, FULL: 1},
    "inverse_of_vector": {INVERSE: 1, FULL: 1},
    "solved_for_identity": {INVERSE: 1, FULL: 1},
    "widened_product": {("wide-format", ""): 3},  # and both casts
    "cast_weights": {("wide-format", "arguments"): 1},
    "dequantized_weights": {("wide-format", "weights"): 3},  # the cast, the scales and the product
    "dequantized_cache": {("wide-format", "dequantized cache"): 5},
    "in_doubles": {("wide-format", "fp64"): 3},
    "complex_convolution": {COMPLEX: 4},
    "spectrum_turned": {COMPLEX: 1},  # what is computed with an imaginary factor is no spectrum of real numbers
    "layer_in_fp32": {FULL: 1},
    "inverse_of_matrix": {FULL: 1},
    "inverse_returned": {FULL: 1},
    "inverse_with_diagonal": {FULL: 1},
    "solved_for_matrix": {FULL: 1},
    "merged_factors": {MERGED: 3},  # the gradient of the sum, and those of both factors
    "gathered": {REPEATED: 1},
    "gathered_then_changed": {REPEATED: 2},  # and a function of each element, which is the same for equal rows
    "repeated_columns": {REPEATED: 2},  # those of the weights, and the copy of these
    "gathered_trained": {REPEATED: 3},
    "gathered_by_groups": {REPEATED: 1},
    "gathered_and_joined": {REPEATED: 3},
    "repeated_and_joined": {REPEATED: 1},
    "diagonal_matrix": {("one-hot-product", "diagonal"): 1},
    "diagonal_copied": {UNUSED: 1},
    "side_diagonal": {UNUSED: 1},
    "trace_of_product": {UNUSED: 1},
    "repeated_heads": {(OPERAND, STORED): 3},  # both copies and attention
    "repeated_keys": {(OPERAND, STORED): 2},
    "repeated_side_by_side": {(OPERAND, STORED): 2},
    "repeated_mask": {(OPERAND, MASK): 2},
    "rows_used": {UNUSED: 2},  # the product and the elementwise function
    "last_tokens": {UNUSED: 3},  # and both gradients
    "rows_picked": {UNUSED: 1},
    "columns_used": {UNUSED: 1},
    "diagonal_used": {UNUSED: 1},
    "last_of_many_rows": {UNUSED: 1},
    "contrasted": {LAYOUT: 1},
    "padded_tokens": {PADDED: 6},  # the padding, a norm, two products, an activation and attention
    "padded_tokens_trained": {PADDED: 13, UNUSED: 1},  # gradients of weights, and of the others; of the padding none is needed
    "padded_by_joining": {PADDED: 2},
    "padded_by_writing": {PADDED: 1},
    "padded_columns": {PADDED: 2},
    "beams_reordered": {("layout-copies", "reordered"): 1},
    "every_second_row": {("layout-copies", "counted"): 1},
    "last_updated": {("unused-results", "gradients"): 3},  # the gradient through the product and the activation, and the first weights'
    "odd_words": {ODD: 1},
    "odd_channels": {ODD: 1},
    "tiny_rotations": {TINY: 1},
    "tiny_gate": {TINY: 1},
    "tiny_factors": {(ODD[0], "tiny solves"): 1},
    "stencil": {(ODD[0], "stencil"): 1},
    "gathered_matrices": {(OPERAND, MATRICES): 2},
    "sorted_part": {("unused-results", "sorted"): 1},
    "sampled_sorted": {SAMPLED: 6},  # until the draw, but for the sum of each row
    "kept_likeliest": {("unused-results", "masked"): 5},  # until the threshold is where the logits are
    "head_left_out": {UNUSED: 2},  # the product and the activation
    "cache_appended": {APPENDED: 1},
    "cache_appended_twice": {APPENDED: 2},
    "oldest_dropped": {APPENDED: 1},
    "cache_rolled": {APPENDED: 1},
    "position_selected": {("layout-copies", "selected"): 1},
    "gathered_pages": {("layout-copies", "blocks"): 1},
    "gathered_blocks_once": {("layout-copies", "blocks"): 1},
    "patches": {(OPERAND, PATCHES): 2},
    "written_out": {WRITTEN: 2},  # the products and the sum
    "distances": {PAIRS: 3},
    "computed_twice": {TWICE: 2},
    "computed_of_equal_views": {TWICE: 1},
    "checkpointed": {AGAIN: 2},
    "patches_trained": {(OPERAND, PATCHES): 5, LAYOUT: 3},  # also the gradients of both factors, and the sum over windows
}
KINDS = {kind for reasons in TOLD.values() for kind, _ in reasons}

# What a trace of the same program is told instead: it does not say which of two arrays of equal size an operator reads, nor what the caller
# uses, and zeros are made by another operator there.
BY_SIZE = {
    "weights_joined_and_returned": {JOINED: 1},
    "last_updated": {},  # what is left with weights is not recorded
    "every_second_row": {},  # small arrays are matched to no maker
    "kronecker": {},  # it does not tell that a view joins axes
    "images_repeated": {},
    "every_sixteenth": {},
    "repeated_columns": {},  # the copy of an expanded tensor is matched to no maker
    "last_of_many_rows": {},
    "rows_used": {},  # the rows are next to each other, and columns an operand like any other
    "columns_used": {},
    "diagonal_used": {},
    "diagonal_copied": {},  # nothing tells which elements a diagonal has
    "side_diagonal": {},
    "trace_of_product": {},
    "diagonal_matrix": {},
    "repeated_and_joined": {},  # nor that an argument is expanded
    "repeated_side_by_side": {},  # nor how often
    "table_trained": {FULL: 3},  # nor which gradients weights have
    "products_beside": {ORDER: 2},
    "joined_and_summed": {APPENDED: 1},  # the caller may use what was joined
    "gather_beside_product": {REPEATED: 1},
    "gathered_and_joined": {REPEATED: 2},  # nothing tells that the gradient of the weights multiplies joined rows
    "repeat_beside_product": {(OPERAND, STORED): 2},
    "padded_tokens": {PADDED: 5},  # not attention, whose queries are not the rows of a product
    "padded_tokens_trained": {PADDED: 12, UNUSED: 1},
    "padded_by_writing": {},
    "padded_beside_product": {PADDED: 2},
    "beams_reordered": {},  # the trace does not say how many rows were gathered
    "one_hot_square": {},  # as many ids as columns: it may compare ids with ids
    "one_hot_kept": {ROWS: 4},
    "one_hot": {ROWS: 4},  # not the positions, of which the trace does not say that they are compared
    "one_hot_trained": {ROWS: 5},
    "one_hot_added_up": {ROWS: 4},
    "few_classes": {ROWS: 4},
    "one_hot_scattered": {ROWS: 2},
    "scores_returned": {ORDER: 2},
    "scores_with_softmax": {SCORES: 3},
    "repeated_keys_returned": {(OPERAND, STORED): 2},
    "gathered_pages": {},
    "sorted_and_returned": {("unused-results", "sorted"): 1},
    "head_left_out": {},  # what nothing takes has the size of what the loss takes
    "kept_likeliest": {},  # nothing tells that the threshold was written in part
    "gathered_blocks_once": {},
    "gathered_matrices": {},  # the trace does not say how many were gathered
    "summed_and_returned": {ORDER: 2},
    "summed_beside_product": {ORDER: 2},
    "few_rows_trained": {FEW_ROWS: 1},  # those of the second product may be the gradient that was made before
    # A trace without ids does not tell what a top-k or a comparison is for.
    "all_experts": {},
    "all_experts_trained": {BATCH: 2},
    "wide_experts": {LAYOUT: 1},
    "experts_one_by_one": {},
    "experts_one_by_one_trained": {},
    "micro_batches": {},
    "two_micro_batches": {},
    "micro_batches_of_many_rows": {},
    "ensemble": {},  # edges that are not sure do not tell that a product needs no other
    "solved_for_identity": {FULL: 1},  # nothing tells the size of the identity
    "inverse_returned": {INVERSE: 1, FULL: 1},
    "inverse_with_diagonal": {INVERSE: 1, FULL: 1},
    "few_rows_of_cast_weights": {FEW_ROWS: 2, ("wide-format", "arguments"): 1},  # it does not say that the rows are an argument too
    "written_out": {},  # sizes tell what was multiplied, not by what
    "distances": {},
    "dequantized_and_returned": {("wide-format", "weights"): 3},
    "dequantized_cache": {("wide-format", "dequantized cache"): 3},  # the keys or the values, which have one size
    "complex_convolution": {COMPLEX: 3},  # it does not say that the imaginary part is not used
    "computed_twice": {},  # nothing tells that both products have the same factors
    "computed_of_equal_views": {},
    "merged_factors_and_weights": {MERGED: 3},  # this trace has no accumulated gradients
}


def lowered(name: str) -> tuple[list[Seen], Graph]:
    calls, kept = read(name)
    return calls, exact_graph(calls, kept)


def exact_graph(calls: list[Seen], kept: frozenset[int]) -> Graph:
    return graph_of(calls, [price(seen.call) for seen in calls], kept)


def guessed_graph(calls: list[Seen]) -> Graph:
    """The graph of a trace of the calls."""
    contexts = [Context(backward=seen.phase == BACKWARD, recomputed=seen.again, optimizer=seen.updates) for seen in calls]
    executions = [Execution(place, place, 0, 0, context=context) for place, context in enumerate(contexts)]
    ops: dict[object, PricedOp] = {}  # equal calls share one
    for seen in calls:
        ops.setdefault((seen.call.op, seen.call.args), PricedOp(seen.call.op, seen.call.args, price(seen.call)))
    recorded = Recorded(
        ordered=[(execution, ops[seen.call.op, seen.call.args]) for execution, seen in zip(executions, calls, strict=True)],
        accumulated=(),
        has_shards=False,
        sequence=lambda execution: calls[execution.op].sequence,
    )
    return graph_of_trace(recorded)


def reasons_of(graph: Graph) -> Counter[tuple[str, str]]:
    """The kinds and groups that the rules give, and how many kernels have them."""
    reasons = {(kernel, reason.kind, reason.group) for rule in RULES for kernel, reason in rule(graph) if reason.kind in KINDS}
    return Counter((kind, group) for _, kind, group in reasons)


@every("name", PROGRAMS)
def test_a_program_is_told_its_faults_and_no_other(name: str) -> None:
    ops, graphs = ops_of(*read(name), None, RuleFailures("this function"))
    silent = Workload([replace(op, avoidable=()) for op in ops])
    told: Counter[tuple[str, str]] = Counter()
    for op in with_evidence(Recording(workload=silent, format="torch", graphs=graphs)).workload:
        told.update({(reason.kind, reason.group): round(op.count * reason.share) for reason in op.avoidable if reason.kind in KINDS})
    assert told == TOLD.get(name, {})


@every("name", PROGRAMS)
def test_edges_that_are_matched_by_size_serve_the_same_rules(name: str) -> None:
    graph = guessed_graph(read(name)[0])
    assert not any(array.sure for array in graph.arrays)
    assert reasons_of(graph) == BY_SIZE.get(name, TOLD.get(name, {}))


def test_a_trace_forgets_what_an_unknown_kernel_may_have_overwritten() -> None:
    calls, _ = read("linear_attention")
    first, second = calls[0], calls[-1]
    unknown = replace(first, call=Call("mine::kernel"), sequence=-1)
    assert reasons_of(guessed_graph([first, second])) == {ORDER: 2}
    assert not reasons_of(guessed_graph([first, unknown, second]))


@every("op", ["aten::mm", "aten::copy_", "aten::cat", "aten::index", "aten::scatter_", "aten::eq", "aten::bmm"])
@every("args", [(), (Tensor((0, 0)),), (Tensor(()),) * 3, (Tensor((0, 4)), Tensor((4, 0)), 7), ((Tensor((2,)), Tensor(())), -9)])
def test_operators_with_odd_arguments_are_lowered(op: str, args: tuple[object, ...]) -> None:
    calls, _ = read("one_hot")
    odd = replace(calls[0], call=Call(op, None, args))
    graph = guessed_graph([odd, *calls, odd])
    assert reasons_of(graph) == BY_SIZE["one_hot"]
    assert len(graph.kernels) == len(calls) + 2


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@every("name", PROGRAMS)
def test_recorded_calls_are_those_of_pytorch(name: str) -> None:
    pytest.importorskip("torch")
    (calls, kept), (recorded, kept_then) = record(PROGRAMS[name]), read(name)
    graph, before = exact_graph(calls, kept), exact_graph(recorded, kept_then)
    assert [(node.operator, node.takes, node.gives) for node in graph.nodes] == [
        (node.operator, node.takes, node.gives) for node in before.nodes
    ]


def test_the_other_order_costs_what_its_products_do() -> None:
    # (Q Kᵀ) V: 2·16·4096·4096·64 multiplications; Q (Kᵀ V): 16·64·64·(4096 + 4096), 1/64 of them. The scores of 16·4096² numbers are
    # not written and not read.
    _, graph = lowered("linear_attention")
    reasons = [(kernel, reason.instead) for rule in RULES for kernel, reason in rule(graph)]
    for kernel, instead in reasons:
        cost = graph.kernels[kernel].cost
        assert instead.flops == pytest.approx(cost.flops / 64)
        assert instead.known(HBM) == cost.known(HBM) - 2 * 16 * 4096**2


def test_rows_that_are_summed_first_are_multiplied_once() -> None:
    # Of 16·2048 rows 16 are left: 1/2048 of the FLOP. The rows and the weights are read, the results are not written.
    _, graph = lowered("summed_rows")
    (product,), (total,) = graph.of(Operator.DOT), graph.of(Operator.REDUCE)
    reasons = dict(summed_products(graph))
    cost, instead = graph.cost(product), reasons[product.kernel].instead
    assert (instead.flops, instead.known(HBM)) == (cost.flops / 2048, 2 * (16 * 2048 * 1024 + 1024 * 2048))
    assert reasons[total.kernel].instead.known(HBM) == graph.cost(total).known(HBM) / 2048


def test_a_sum_over_the_batch_is_part_of_its_product() -> None:
    # 64 matrices of 1024 x 1024 are neither written nor read, but for one.
    _, graph = lowered("summed_batch")
    (product,) = graph.of(Operator.DOT)
    (instead,) = [reason.instead for kernel, reason in summed_products(graph) if kernel == product.kernel]
    assert instead.known(HBM) == graph.cost(product).known(HBM) - 2 * 63 * 1024**2
    assert instead.flops == graph.cost(product).flops


@every(
    ("again", "sure", "told"),
    [
        ("rows, weights", True, [2, 3]),
        ("other rows, weights", True, []),  # as of the next state
        ("rows, updated weights", True, []),
        ("other rows, weights", False, [2, 3]),  # where edges are not sure, modules and shapes tell
    ],
)
def test_a_pass_repeats_another_if_it_reads_the_same_arrays(again: str, *, sure: bool, told: list[int]) -> None:
    graph = Graph(kernels={kernel: Kernel(Cost.of({HBM: 1})) for kernel in range(4)}, repeated={2: "eval.py:7", 3: "eval.py:7"})
    names = ("rows", "other rows", "weights", "updated weights", "made", "kept", "made again", "kept again")
    number = {name: graph.array(Array((64, 64), dtype("bf16"), sure=sure)) for name in names}
    graph.append(Node(Operator.DOT, (number["rows"], number["weights"]), (number["made"],), kernel=0))
    graph.append(Node(Operator.MAXIMUM, (number["made"],), (number["kept"],), kernel=1))
    graph.append(Node(Operator.DOT, tuple(number[name] for name in again.split(", ")), (number["made again"],), kernel=2))
    graph.append(Node(Operator.MAXIMUM, (number["made again"],), (number["kept again"],), kernel=3))
    assert [kernel for kernel, _ in second_passes(graph)] == told


def test_rows_in_parts_cost_what_they_do_in_one_product() -> None:
    # One product of 512 rows each: with the second matrix, for the gradient of its rows and for its own; no additions.
    _, graph = lowered("micro_batches")
    left = sum(reason.instead.known(HBM) for _, reason in rows_in_parts(graph))
    assert left == 3 * 2 * (2 * 512 * 1024 + 1024**2)


def test_factors_that_were_added_to_weights_are_multiplied_one_by_one() -> None:
    # The gradient G = xᵀ y of 2048² weights sums over 4096 rows; x and y are read twice instead, once for each factor of rank 16.
    _, graph = lowered("merged_factors")
    reasons = dict(costly_orders(graph))
    costs = {kernel: graph.kernels[kernel].cost for kernel in reasons}
    largest = max(costs, key=lambda kernel: costs[kernel].flops)
    both, instead = 4096 * 2048**2 + 2 * 16 * 2048**2, 2 * 16 * 4096 * (2048 + 2048)
    assert sum(reason.instead.flops for reason in reasons.values()) == pytest.approx(2 * both * (instead / both))
    assert reasons[largest].instead.known(HBM) == 2 * 2 * (2 * 4096 * 2048)


def test_a_lookup_reads_and_writes_a_row_for_each_id() -> None:
    _, graph = lowered("one_hot_square")
    (product,) = graph.of(Operator.DOT)
    (instead,) = [reason.instead for rule in RULES for kernel, reason in rule(graph) if kernel == product.kernel]
    assert instead.known(HBM) == 2 * 2 * 4096 * 512  # in bf16; the strides of a square matrix tell that its columns are summed


def test_an_array_is_followed_through_its_other_names_and_back() -> None:
    graph = Graph()
    scores, view, cast, product = (graph.array(Array(shape)) for shape in ((2, 8), (8, 2), (8, 2), (8, 4)))
    graph.append(Node(Operator.VIEW, (scores,), (view,)))
    graph.append(Node(Operator.CAST, (view,), (cast,)))
    graph.append(Node(Operator.DOT, (cast, scores), (product,)))
    assert graph.origin(cast) == scores
    assert [node.operator for node in graph.between(cast)] == [Operator.CAST, Operator.VIEW]
    assert [(node.operator, array) for node, array in graph.uses(scores)] == [(Operator.DOT, cast), (Operator.DOT, scores)]


def test_an_array_that_is_written_in_part_is_made_of_both() -> None:
    _, graph = lowered("one_hot_written_in_part")
    (product,) = graph.of(Operator.DOT)
    update = graph.maker[product.takes[0]]
    assert update.operator == Operator.UPDATE
    assert [graph.arrays[array].shape for array in update.takes] == [(4096, 2048), (4096, 2048)]
