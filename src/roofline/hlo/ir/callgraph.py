"""The call graph: the order in which computations can be priced, callees first."""

from itertools import chain

from ...errors import SourceError
from .malformed import Malformed
from .module import Computation, HloModule

MAX_DEPTH = 40  # calls within calls; compilers stay below ten


def callees_first(module: HloModule) -> tuple[int, ...]:
    """All computations, each after those it calls; a circle, or a chain deeper than `MAX_DEPTH`, is a `SourceError`."""
    called_by = [callees(computation) for computation in module.computations]
    order: list[int] = []
    depth: dict[int, int] = {}
    for root in range(len(module.computations)):
        if not called_by[root] and root not in depth:  # nearly all computations are bodies of fusions, which call nothing
            depth[root] = 1
            order.append(root)
            continue
        path: dict[int, None] = {root: None}
        stack = [(root, iter(called_by[root]))] if root not in depth else []
        while stack:
            number, rest = stack[-1]
            called = next(rest, None)
            if called is None:
                stack.pop()
                del path[number]
                depth[number] = 1 + max((depth[below] for below in called_by[number]), default=0)
                order.append(number)
                if depth[number] > MAX_DEPTH:
                    name = module.computations[number].name
                    raise SourceError(f"{module.name}: {name}: calls nested deeper than {MAX_DEPTH}; is the file damaged?")
            elif called in path:
                raise SourceError(f"{module.name}: {module.computations[called].name} calls itself; is the file damaged?")
            elif called not in depth:
                path[called] = None
                stack.append((called, iter(called_by[called])))
    return tuple(order)


def callees(computation: Computation) -> tuple[int, ...]:
    """The computations it calls, each once."""
    calls = chain.from_iterable([instruction.calls for instruction in computation.instructions if instruction.calls])
    return tuple(dict.fromkeys(call.computation for call in calls))


def in_order(computation: Computation) -> tuple[int, ...]:
    """Its instructions, each after its operands; programs that were scheduled are in such an order already."""
    if is_ordered(computation):
        return tuple(range(len(computation)))
    order: list[int] = []
    done: set[int] = set()
    open_: set[int] = set()
    for start in range(len(computation)):
        stack = [start]
        while stack:
            index = stack[-1]
            waiting = [operand for operand in computation[index].operands if operand not in done]
            if index in done or not waiting:
                stack.pop()
                open_.discard(index)
                if index not in done:
                    done.add(index)
                    order.append(index)
            elif any(operand in open_ for operand in waiting) or index in waiting:
                raise Malformed(f"{computation.name}: {computation[index].name} depends on its own result")
            else:
                open_.add(index)
                stack += waiting
    return tuple(order)


def is_ordered(computation: Computation) -> bool:
    """Whether each instruction is after its operands."""
    for index, instruction in enumerate(computation.instructions):  # a loop: a program has many, and most have one operand or two
        for operand in instruction.operands:
            if operand >= index:
                return False
    return True
