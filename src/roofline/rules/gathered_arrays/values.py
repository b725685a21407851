"""Computed arrays that are divided between devices and gathered whole, and tables that are gathered to look up rows of them.

A gather of rows before a product whose weights are divided over the same devices is the other half of dividing that product: it does not
count.
"""

from collections.abc import Iterator

from ...cost import NOTHING
from ...graph import Array, Graph, Operator, Phase
from ...graph.facts.exchanges import Reason, Why, argument_of, exchanges, product_axes
from ...workload import Avoidable, Fact

KIND, TABLE = "gathered-arrays", "table"


def gathered_values(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that gather whole arrays."""
    if graph.devices < 2:
        return
    for kernel, why in graph.fact(exchanges).items():
        if _are_positions(graph.arrays[why.array]) or _is_of_divided_product(graph, why):
            continue
        if why.reason in (Reason.VALUE, Reason.TABLE):
            group = TABLE if why.reason == Reason.TABLE else ""
            facts: dict[str, Fact] = {
                "array": graph.names.get(why.argument, "") if why.argument is not None else "",
                "bytes": graph.arrays[why.array].bytes,
            }
            yield kernel, Avoidable(kind=KIND, instead=NOTHING, facts=facts, group=group)


def _is_of_divided_product(graph: Graph, why: Why) -> bool:
    """Whether rows are gathered for a product that is divided over the same devices: by its weights, or in a gradient of weights by those
    of other products.
    """
    product = why.use
    if product is None or product.operator != Operator.DOT:
        return False
    has_weights = any(argument_of(graph, array) is not None for array in product.takes[:2])
    products = [product] if has_weights or product.phase != Phase.BACKWARD else graph.of(Operator.DOT)
    return not product_axes(graph, products).isdisjoint(why.exchange.along or ())


def _are_positions(array: Array) -> bool:
    """Whether an array is of whole numbers, such as words: their gather is the price of a table whose columns are divided."""
    return array.dtype is not None and "int" in array.dtype.name
