"""Chains of kernels on graphs: what one kernel would not read and not write."""

import pytest
from msgspec.structs import replace

from every import every
from recorded_calls import read
from roofline.analysis.evidence import with_evidence
from roofline.cost import Cost
from roofline.dtypes import dtype
from roofline.graph import Array, Axes, Graph, Kernel, Node, Operator, Phase
from roofline.resource import HBM
from roofline.rule_failures import RuleFailures
from roofline.rules.unfused_chain.kernels import unfused_kernels
from roofline.torch.lower import graph_of
from roofline.torch.workload import ops_of
from roofline.torch_prices import price
from roofline.workload import Recording, Workload

LARGE = Array((4096, 2048), dtype("bf16"))
SIZE = LARGE.bytes


class Program:
    """A graph to which kernels are added one by one, each of which reads and writes whole arrays."""

    def __init__(self, *, sure: bool = True) -> None:
        self.graph, self.whole = Graph(), replace(LARGE, sure=sure)

    def add(self, operator: Operator, *takes: int, gives: Array | None = None, phase: Phase = Phase.FORWARD, fuses: bool = True) -> int:
        given, kernel = self.graph.array(gives or self.whole), len(self.graph.kernels)
        moved = sum(self.graph.arrays[array].bytes for array in (*takes, given))
        self.graph.kernels[kernel] = Kernel(Cost.of({HBM: moved}), fuses=fuses)
        params = Axes((0, 1), Operator.MAXIMUM) if operator == Operator.REDUCE else None
        self.graph.append(Node(operator, takes, (given,), params, kernel, phase))
        return given

    def argument(self) -> int:
        return self.graph.array(self.whole)

    @property
    def left(self) -> dict[int, float]:
        """What each kernel of a chain would move, in large arrays."""
        return {kernel: float(reason.instead.known(HBM)) / SIZE for kernel, reason in unfused_kernels(self.graph)}


def test_a_kernel_of_two_reads_the_first_and_writes_the_last_array() -> None:
    program = Program()
    program.add(Operator.MULTIPLY, program.add(Operator.EXPONENTIAL, program.argument()))
    assert program.left == {0: 1, 1: 1}


def test_one_kernel_reads_an_argument_once() -> None:
    program = Program()
    argument = program.argument()
    program.add(Operator.MULTIPLY, program.add(Operator.EXPONENTIAL, argument), argument)
    assert program.left == {0: 1, 1: 1}


@every(("between", "left"), [(Phase.BACKWARD, {2: 2, 4: 2}), (Phase.FORWARD, {})])
def test_gradients_that_several_passes_add_up_are_stored_between_them(between: Phase, left: dict[int, float]) -> None:
    # Each reads two arrays and writes one: one that passes between them is neither written nor read in one kernel.
    program = Program()

    def product(phase: Phase) -> int:
        return program.add(Operator.CONVOLUTION, program.argument(), program.argument(), phase=phase, fuses=False)

    total = program.add(Operator.ADD, product(Phase.BACKWARD), product(Phase.BACKWARD), phase=Phase.BACKWARD)
    product(between)
    program.add(Operator.ADD, total, program.argument(), phase=Phase.BACKWARD)
    assert program.left == left


def test_kernels_of_arrays_of_equal_size_are_no_chain() -> None:
    program = Program()
    program.add(Operator.EXPONENTIAL, program.argument())
    program.add(Operator.MULTIPLY, program.argument())
    assert program.left == {}


def test_what_is_needed_elsewhere_is_written() -> None:
    program = Program()
    first = program.add(Operator.EXPONENTIAL, program.argument())
    program.add(Operator.MULTIPLY, first)
    program.graph.results.add(first)
    assert program.left == {1: 1}


def test_a_kernel_that_must_run_in_between_parts_a_chain() -> None:
    program = Program()
    first = program.add(Operator.EXPONENTIAL, program.argument())
    order = program.add(Operator.SORT, first, fuses=False)
    program.add(Operator.GATHER, first, order)
    assert program.left == {}


def test_a_sort_beside_a_chain_does_not_part_it_where_edges_are_exact() -> None:
    def beside(*, sure: bool) -> dict[int, float]:
        program = Program(sure=sure)
        first = program.add(Operator.EXPONENTIAL, program.argument())
        program.add(Operator.SORT, program.argument(), fuses=False)
        program.add(Operator.MULTIPLY, first)
        return program.left

    assert beside(sure=True) == {0: 1, 2: 1}
    assert beside(sure=False) == {}, "it may as well take what the sort made"


def test_a_number_for_all_of_an_array_comes_in_another_kernel() -> None:
    program = Program()
    first = program.add(Operator.EXPONENTIAL, program.argument())
    largest = program.add(Operator.REDUCE, first, gives=Array((), dtype("bf16")))
    program.add(Operator.DIVIDE, first, largest)
    assert program.left == {1: pytest.approx(0, abs=1e-6)}, "the division reads what was written for it"


def test_the_backward_pass_computes_again_what_it_needs() -> None:
    program = Program()
    first = program.add(Operator.EXPONENTIAL, program.argument())
    program.add(Operator.MULTIPLY, first)
    program.add(Operator.MULTIPLY, first, phase=Phase.BACKWARD)
    assert program.left == {0: 1, 1: 1}


@every(("sure", "written"), [(False, 3), (True, 2)])
def test_a_sum_that_a_chain_begins_with_is_a_residual_unless_its_users_are_known(sure: bool, written: int) -> None:
    program = Program(sure=sure)
    total = program.add(Operator.ADD, program.argument(), program.argument())
    program.add(Operator.NORM, total)
    program.add(Operator.SORT, program.argument(), phase=Phase.BACKWARD, fuses=False)
    assert program.left.get(0, 3) == written


def test_a_recorded_function_is_told_its_chains() -> None:
    ops, graphs = ops_of(*read("floor_of_scaled"), None, RuleFailures("this function"))
    told = with_evidence(Recording(workload=Workload(ops), format="torch", graphs=graphs))
    left = {op.name: reason.instead.known(HBM) for op in told.workload for reason in op.avoidable if reason.kind == "unfused-chain"}
    # Of 4096 x 2048 in bf16 the quotients are neither written nor read: the product is read, and sums of columns are written.
    assert left == {"div": 4096 * 2048 * 2, "sum": 2048 * 2}


def test_scores_that_attention_would_keep_on_chip_are_no_chain() -> None:
    ops, graphs = ops_of(*read("scores_written"), None, RuleFailures("this function"))
    told = with_evidence(Recording(workload=Workload(ops), format="torch", graphs=graphs))
    assert {reason.kind for op in told.workload for reason in op.avoidable} == {"stored-attention"}


def test_rows_that_are_gathered_and_added_up_are_not_stored() -> None:
    # Each row of 100,000 edges is written once and read once by each of both kernels after it; the sums of 5,000 rows are in memory anyway.
    ops, graphs = ops_of(*read("messages"), None, RuleFailures("this function"))
    workload = with_evidence(Recording(workload=Workload(ops), format="torch", graphs=graphs)).workload
    rows = 100_000 * 256 * 4
    spared = {op.name: float(op.cost.known(HBM) - reason.instead.known(HBM)) for op in workload for reason in op.avoidable}
    assert spared == {"index": rows, "mul": 2 * rows, "index_add_": rows}
    ops, graphs = ops_of(*read("sums_returned_and_read"), None, RuleFailures("this function"))
    workload = with_evidence(Recording(workload=Workload(ops), format="torch", graphs=graphs)).workload
    assert not any(op.avoidable for op in workload), "what reads the sums comes after them"


def test_an_optimizer_on_lists_reads_and_writes_each_list_once() -> None:
    # The first step of Adam for a table and weights: one kernel reads the weights and their gradients, and writes the weights and both
    # moments, which are zeros before. The price of addcmul has the gradients twice.
    (recorded, kept), elements = read("table_trained"), 64 * (262_144 + 64)
    graph = graph_of(recorded, [price(seen.call) for seen in recorded], kept)
    left = [float(reason.instead.known(HBM)) for _, reason in unfused_kernels(graph) if reason.group == "optimizer"]
    assert sum(left) == (5 + 1) * 4 * elements
