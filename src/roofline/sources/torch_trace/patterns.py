"""What could be spared of the ops of one device: by themselves, and by the order in which they ran."""

from collections.abc import Callable, Sequence
from itertools import islice

from ...cost import NOTHING
from ...torch_prices import Call
from ...torch_prices.avoidable import RECOMPUTED, avoidable
from ...workload import Avoidable
from .all_experts import all_experts
from .channel_order import channels_first, converted_shares
from .columns import NONE
from .context import Context, Contexts
from .executions import Execution
from .few_rows import few_rows
from .frozen_gradients import unused_gradients
from .one_hot import one_hot_products
from .padded_tensors import padded_tensors
from .pricing import PricedOp, Prices
from .product_order import costly_orders
from .second_passes import again
from .stored_repeats import stored_repeats
from .unfused import spared_bytes, unfused
from .unused_results import unused_results
from .unused_rows import unused_rows
from .weight_casts import operand_casts, weight_cast, weight_shapes
from .written_attention import written_attention

SHOWN = 2  # lines that ask for checkpoints


class Patterns:
    """The patterns that executions of the first steps show, as they ran."""

    def __init__(
        self,
        in_order: Sequence[tuple[Execution, PricedOp]],
        priced: Sequence[int],
        prices: Prices,
        contexts: Contexts,
        time: Callable[[int], int],
    ) -> None:
        """``priced`` are the numbers of all prices; ``time`` is how long an event took."""
        self._contexts = contexts
        asked = ", ".join(line.rpartition("/")[2] for line in islice(contexts.checkpoints, SHOWN))
        why = f"{RECOMPUTED}{f', as a checkpoint asks for in {asked}' if asked else ''}"
        self._again = Avoidable(kind="recomputation", instead=NOTHING, why=why, unneeded="recomputed")
        self._spared = spared_bytes(in_order, self._is_kept)
        self._scores = written_attention(in_order)
        self._forward = {id(priced) for one, priced in in_order if self._is_kept(one)}
        self._turned = converted_shares(in_order, lambda event: str(prices.names[prices.kernel(event)[0]]), time)
        self._weights = weight_shapes(prices.ops[number] for number in priced)
        self._operands = operand_casts(in_order, self._weights)
        is_alone = (prices.world or 1) == 1  # a shard has another shape than its weight
        found = [
            *all_experts(in_order, self._sequence),
            *one_hot_products(in_order, self._sequence),
            *unused_rows(in_order, self._sequence),
            *unused_results(in_order, self._sequence, contexts.differentiated),
            *few_rows(in_order),
            *costly_orders(in_order, self._sequence),
            *stored_repeats(in_order),
            *padded_tensors(in_order),
            *(unused_gradients(in_order, prices.gradients) if is_alone else ()),
        ]
        self._in_place: dict[tuple[int, int], dict[str, Avoidable]] = {}  # of ops in a place of the program, by kind
        for (one, op), reason in found:
            self._in_place.setdefault((id(op), id(one.context)), {})[reason.kind] = reason

    def _is_kept(self, one: Execution) -> bool:
        """Whether a backward pass may need what an execution made."""
        return one.op != NONE and self._contexts.phase(one.context) == "forward"

    def _sequence(self, one: Execution) -> int:
        return self._contexts.sequence(one.op)

    def avoidable(self, priced: PricedOp, context: Context) -> tuple[Avoidable, ...]:
        """What could be spared of an op in a place of the program."""
        return (
            *((again(context.again, backward=context.backward),) if context.again is not None else ()),
            *((self._again,) if context.recomputed and id(priced) in self._forward else ()),
            *self._in_place.get((id(priced), id(context)), {}).values(),
            *(() if _is_forced(priced, context) else avoidable(Call(priced.name, args=priced.args), priced.priced)),
            *weight_cast(priced, self._weights, self._operands),
            *channels_first(priced, self._turned.get(id(priced), 0.0), converting=bool(self._turned)),
            *(self._scores.get(id(priced)) or (() if _is_forced(priced, context) else unfused(priced, self._spared.get(id(priced), 0.0)))),
        )


def _is_forced(priced: PricedOp, context: Context) -> bool:
    """Whether an op copies for another, whose layout the program does not choose."""
    return context.fixed_layout and priced.priced.category == "copy"
