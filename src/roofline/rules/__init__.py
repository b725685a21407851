"""Rules about programs, a folder for each kind of finding and a file for each cause. They receive a `Graph` and nothing else."""

from collections.abc import Callable, Iterator

from ..graph import Graph
from ..workload import Avoidable
from .one_hot_product.lookups import one_hot_products
from .product_order.narrow_last import costly_orders
from .repeated_operand.gathered_rows import gathered_rows
from .repeated_operand.stored import stored_masks, stored_repeats

Rule = Callable[[Graph], Iterator[tuple[int, Avoidable]]]  # kernels, and the work that each could avoid
ON_PROGRAMS: tuple[Rule, ...] = (costly_orders,)  # of XLA too, which has no rule of its own for their faults any more
RULES: tuple[Rule, ...] = (one_hot_products, *ON_PROGRAMS, gathered_rows, stored_repeats, stored_masks)
