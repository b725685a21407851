"""The graph of compiled programs: fused bodies written out, tuples taken apart, loops with what they carry."""

from program_texts import program_text
from roofline.graph import NO_KERNEL, Graph, Operator
from roofline.hlo.ir.module import HloModule
from roofline.hlo.lower import lowered
from roofline.hlo.price.collectives import Network
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.read import parse
from roofline.rules.unused_results.sorts import sorted_parts

FUSED = program_text("lower_graph/fused.hlo")

LOOP = program_text("lower_graph/loop.hlo")

SPLIT = program_text("lower_graph/split.hlo")


def _module(text: str) -> HloModule:
    return parse(text.encode(), "program.hlo")


def _graph(text: str) -> Graph:
    return lowered(Pricer(_module(text), "gpu", Network.of(None, "gpu"))).graph


def test_the_body_of_a_fusion_is_written_out_in_its_kernel() -> None:
    graph = _graph(FUSED)
    assert [node.operator for node in graph.nodes] == [
        Operator.TRANSPOSE,
        Operator.DOT,
        Operator.CAST,
        Operator.CAST,
        Operator.ADD,
    ]
    assert len({node.kernel for node in graph.nodes[:3]}) == 1
    (product,) = graph.of(Operator.DOT)
    assert product.takes[0] == graph.arguments[0]
    assert graph.origin(product.takes[1]) == graph.arguments[1]
    assert (product.sizes.rows, product.sizes.depth, product.sizes.columns) == (64, 32, 16)


def test_parts_of_tuples_are_the_arrays_that_kernels_write() -> None:
    graph = _graph(FUSED)
    product, narrow, again, add = graph.nodes[1:]
    assert again.takes == product.gives
    assert add.takes == (*narrow.gives, *again.gives)
    assert graph.written(product.kernel) == [*product.gives, *narrow.gives]
    assert graph.results == set(add.gives)


def test_axes_are_followed_through_what_renames_an_array() -> None:
    graph = _graph(FUSED)
    (product,) = graph.of(Operator.DOT)
    assert [graph.source_axis(product.takes[1], axis) for axis in (0, 1)] == [1, 0]


def test_what_a_loop_does_not_change_is_one_array_inside_and_outside() -> None:
    graph = _graph(LOOP)
    (product,), (loop,) = graph.of(Operator.DOT), graph.regions
    assert product.takes == (loop.carried[1], graph.arguments[1])
    assert loop.trips == 5
    assert loop.handed_on[1] == product.gives[0]
    assert loop.initial[1] == graph.arguments[0]
    assert graph.results == {loop.final[1]}
    assert graph.region_of.get(product.gives[0]) is loop
    assert graph.region_of.get(graph.arguments[1]) is None


def test_a_split_depth_is_one_product() -> None:
    (product,) = _graph(SPLIT).of(Operator.DOT)
    assert (product.sizes.batch, product.sizes.rows, product.sizes.depth, product.sizes.columns) == (1, 64, 4 * 128, 16)


def test_views_launch_no_kernel() -> None:
    graph = _graph(LOOP)
    assert all(node.kernel == NO_KERNEL for node in graph.of(Operator.FILL, Operator.LOOP))


WORKSPACE = """HloModule sorted
ENTRY %main (keys: f32[8,2097152]) -> f32[8,1] {
  %keys = f32[8,2097152]{1,0} parameter(0)
  %sort = (f32[8,2097152]{1,0}, s8[1048576]{0}) custom-call(%keys), custom_call_target="__cub$DeviceRadixSort"
  %sorted = f32[8,2097152]{1,0} get-tuple-element(%sort), index=0
  ROOT %quantile = f32[8,1]{1,0} slice(%sorted), slice={[0:8], [9999:10000]}
}
"""


def test_the_workspace_of_a_sort_is_no_sorted_result() -> None:
    graph = _graph(WORKSPACE)
    (sort,) = graph.of(Operator.SORT)
    ((kernel, evidence),) = sorted_parts(graph)
    assert (kernel, evidence.facts["row"], evidence.facts["used"]) == (sort.kernel, 2097152, 1)
