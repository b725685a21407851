"""The kernels of a computation while they are being built, and which instructions can be fused into each.

The rules are described in `compiler_model`; `grouping` applies them.
"""

from itertools import chain
from typing import Literal

from msgspec import Struct, field

from ..ir.module import Computation, Instruction
from ..ir.opcodes import PRODUCTS, UPDATES, VIEWS
from ..price.bodies import updated
from .recompute_cost import RecomputeCosts
from .rules import (
    EPILOGUE,
    PROLOGUE,
    Rules,
    folds,
    is_widening,
    keeps_rows,
    major,
    reduced_dims,
    row_bytes,
    rows_of,
    swaps_operands,
    traits_of,
)

Kind = Literal["loop", "reduce", "row", "product", "update"]
Fit = Literal["loop", "reduce", "row", "product", ""]

_MOST_VISITED = 4096  # kernels visited in search of a dependency; after that one is assumed
NEEDS_MEMORY = UPDATES | {"gather"}  # opcodes that may need an operand in memory
_NOT_IN_EPILOGUE = frozenset(("gather", "concatenate", "pad"))  # opcodes that a product's kernel cannot apply to its result
ELEMENT_KINDS = ("loop", "reduce", "row")  # kernels that iterate over elements: they can be merged


class Group(Struct, eq=False):
    """A kernel while it is being built: instructions that are fused.

    ``space`` is the number of elements it iterates over, ``rows`` the number of rows of its reductions over minor dimensions, ``reduced``
    the operand's dimensions and the axes of its other reductions. ``prologue`` are the members between a product and its operands in
    memory, ``inputs`` the values from outside, ``repeated`` counts members that other kernels compute too, ``needs_memory`` is true if a
    member may need an operand in memory, and ``copied`` says which kernel of an equal layer this one was copied from.
    """

    kind: Kind
    space: int
    members: set[int] = field(default_factory=set)
    outputs: set[int] = field(default_factory=set)
    inputs: set[int] = field(default_factory=set)
    prologue: set[int] = field(default_factory=set)
    rows: int | None = None
    reduced: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    repeated: int = 0
    needs_memory: bool = False
    copied: "Copied | None" = None


class Copied(Struct, frozen=True):
    """A kernel copied from ``group`` of an earlier layer: its members are ``by`` instructions later, but for values before ``start``, which
    both layers read.
    """

    group: Group
    by: int
    start: int


Node = Group | int  # a kernel, or an instruction outside of kernels


def in_order(group: Group) -> tuple[int, int]:
    """The sort key of kernels: by their last results."""
    return max(group.outputs), min(group.outputs)


class Groups:
    """The kernels of one computation so far, and questions about them.

    A search for a dependency skips kernels that store their first result after the target, unless it is to be ``exact``: only a kernel
    with results far apart in the program can lead back from there.
    """

    def __init__(self, computation: Computation, rules: Rules, *, exact: bool = False) -> None:
        self.computation = computation
        self.rules, self.exact = rules, exact
        self.instructions = computation.instructions
        self.traits = traits_of(computation)
        self.fixed = [traits.is_fixed for traits in self.traits]
        self.users: list[list[int]] = [[] for _ in computation]
        self.after: dict[int, list[int]] = {}  # instruction -> those that a control dependency orders after it
        for index, instruction in enumerate(computation.instructions):
            operands = instruction.operands
            for operand in operands if len(operands) == 1 else dict.fromkeys(operands):
                self.users[operand].append(index)
            for before in instruction.control:
                self.after.setdefault(before, []).append(index)
                self.fixed[before] = self.fixed[index] = True
        self.kernels: list[list[Group]] = [[] for _ in computation]  # of each instruction; several where it is repeated
        self.recompute = RecomputeCosts(computation, self.traits, self.fixed)
        self.rows: dict[int, int | None] = {}  # reduction -> its rows

    @property
    def groups(self) -> tuple[Group, ...]:
        distinct = dict.fromkeys(chain(*self.kernels))
        return tuple(sorted(distinct, key=in_order))

    def _only_kernel(self, index: int) -> Group | None:
        """The kernel that a value is fused into without comparing costs: its only user, if that takes any elementwise work. Most values
        have one.
        """
        users = self.users[index]
        if not users or index == self.computation.root or not self.traits[index].is_loop:
            return None
        kernels = self.kernels[users[0]]
        if len(kernels) != 1 or kernels[0].kind not in ELEMENT_KINDS or kernels[0].needs_memory:
            return None
        if any(self.kernels[user] != kernels for user in users[1:]) or not self._within_limits(kernels[0], index):
            return None
        return kernels[0]

    def _takers(self, index: int) -> tuple[dict[Group, Fit], bool]:
        """How each kernel of an instruction's users can fuse it, and whether its value is also needed in memory."""
        takers: dict[Group, Fit] = {}
        outside = index == self.computation.root
        for user in self.users[index]:
            outside = outside or not self.kernels[user]
            for group in self.kernels[user]:
                if group not in takers:
                    takers[group] = self._fit(group, index)
        return takers, outside or not all(takers.values())

    def _rows(self, index: int) -> int | None:
        """How many rows a reduction of the minor dimensions has."""
        if index not in self.rows:
            self.rows[index] = rows_of(self.computation, self.instructions[index])
        return self.rows[index]

    def _new_inputs(self, group: Group, index: int) -> set[int]:
        """The operands of an instruction that a kernel does not compute itself."""
        members, least, fixed = group.members, self.recompute.least, self.fixed
        return {operand for operand in self.instructions[index].operands if operand not in members and (least[operand] or fixed[operand])}

    def _users_in(self, group: Group, index: int) -> list[int]:
        """The members of a kernel that use a value. A constant may have thousands of users: then the members' operands are searched."""
        users, members = self.users[index], group.members
        if len(users) > len(members):
            return [member for member in members if index in self.instructions[member].operands]
        return [user for user in users if user in members]

    def _is_prologue(self, group: Group, users: list[int]) -> bool:
        """Whether a product reads a value that these members of its kernel take."""
        return any(user in group.prologue or self.instructions[user].opcode in PRODUCTS for user in users)

    def _within_limits(self, group: Group, index: int) -> bool:
        """Whether a kernel with one more instruction stays within the limits on operands and repeated work."""
        if group.repeated >= self.rules.most_repeated:
            return False
        arrays = len(group.inputs) + len(group.outputs)
        if arrays + len(self.instructions[index].operands) <= self.rules.most_operands:
            return True
        added = len(self._new_inputs(group, index) - group.inputs)
        return not added or added + arrays <= self.rules.most_operands

    def _fit(self, group: Group, index: int) -> Fit:
        """How an instruction can be fused into a kernel that uses its value; empty if it cannot."""
        instruction = self.instructions[index]
        if not self._within_limits(group, index):
            return ""
        users = self._users_in(group, index) if group.needs_memory or group.kind == "product" else []
        for user in users:
            if self.instructions[user].opcode in NEEDS_MEMORY and index in self._in_memory(self.instructions[user]):
                return ""
        if group.kind == "product" and self._is_prologue(group, users):
            return "loop" if self._can_load(group, index) else ""
        if instruction.opcode in PRODUCTS:
            return "product" if self._is_epilogue(group, index) else ""
        if instruction.opcode == "reduce":
            return self._reduction_fit(group, index)
        if not self.traits[index].is_loop:
            return ""
        if group.kind == "product" and (instruction.opcode == "gather" or len(self._large_inputs(group, index)) > self.rules.most_extras):
            return ""
        return "loop"

    def _can_load(self, group: Group, index: int) -> bool:
        """Whether a product can apply an instruction to an operand as it loads it. A library can only read the matrix transposed."""
        instruction = self.instructions[index]
        if self.rules.loads == "any" or instruction.opcode in VIEWS:
            return instruction.opcode in PROLOGUE
        if self.rules.widens and is_widening(self.computation, index):
            return True
        return instruction.opcode == "transpose" and all(
            folds(self.computation, self.instructions[user], index) for user in self._users_in(group, index)
        )

    def _in_memory(self, user: Instruction) -> tuple[int, ...]:
        """The operands that an instruction needs in memory: arrays that it updates, and the table of a gather that reads elements twice."""
        if user.opcode == "gather":
            table = user.operands[:1]
            return table if user.shape.elements > self.instructions[table[0]].shape.elements else ()
        return updated(user)

    def _reached(self, group: Group, index: int) -> set[int]:
        """The members of a kernel that depend on a value."""
        seen = set(self._users_in(group, index))
        pending = list(seen)
        while pending:
            for user in self._users_in(group, pending.pop()):
                if user not in seen:
                    seen.add(user)
                    pending.append(user)
        return seen

    def _reduction_fit(self, group: Group, index: int) -> Fit:
        """How a reduction can be fused into a kernel that uses it: row by row on chip, or before elementwise work on its result."""
        computation, reduce = self.computation, self.instructions[index]
        if group.kind not in ELEMENT_KINDS or not reduce.shape.is_array:
            return ""
        reached = [self.instructions[member] for member in self._reached(group, index)]
        rows = self._rows(index)
        if (
            rows is not None
            and 0 < row_bytes(computation, reduce, rows) <= self.rules.row_bytes
            and group.reduced is None
            and group.rows in (None, rows)
            and (len(group.outputs) == 1 or self.rules.results == "any")
            and all(major(self.instructions[output].shape.dims, rows) is not None for output in group.outputs)
            and all(keeps_rows(computation, member, rows) for member in reached)
        ):
            return "row"
        size = reduce.shape.elements
        alike = group.rows in (None, rows) and group.reduced in (None, (reduced_dims(computation, reduce), reduce.dimensions))
        if group.kind == "loop" or (group.kind == "reduce" and alike and (group.rows is None) == (rows is None)):
            on_result = all(
                instruction.shape.elements == size and instruction.opcode in EPILOGUE and instruction.opcode != "transpose"
                for instruction in reached
            )
            if on_result and all(computation[output].shape.elements == size for output in group.outputs):
                return "reduce"
        return ""

    def _is_epilogue(self, group: Group, index: int) -> bool:
        """Whether a kernel is elementwise work that the product's kernel can apply to its result before storing it."""
        if group.kind != "loop" or len(group.outputs) != 1:
            return False
        reached = self._reached(group, index)
        if not group.outputs <= reached:
            return False
        size = self.instructions[index].shape.elements
        for instruction in map(self.instructions.__getitem__, reached):
            if instruction.shape.elements != size or not self._can_store(index, instruction):
                return False
        if not _NOT_IN_EPILOGUE.isdisjoint([self.instructions[member].opcode for member in group.members]):
            return False
        return len(self._large_inputs(group, index)) <= self.rules.most_extras

    def _can_store(self, product: int, instruction: Instruction) -> bool:
        """Whether a product can apply an instruction to its result; for views and transpositions its call takes other strides."""
        transposed = (
            instruction.opcode == "transpose" and instruction.operands[0] == product and swaps_operands(self.computation, instruction)
        )
        return instruction.opcode in VIEWS or transposed or self.rules.store(instruction.opcode)

    def _large_inputs(self, group: Group, index: int) -> set[int]:
        """The arrays at least as large as its result that a product's epilogue would read, with one more member."""
        inside = group.members | {index}
        late = {place for place in inside if place not in group.prologue and self.instructions[place].opcode not in PRODUCTS}
        read = {operand for place in late for operand in self.instructions[place].operands} - inside
        return {operand for operand in read if self.recompute.least[operand] and self.instructions[operand].shape.elements >= group.space}

    def _reads(self, group: Group, index: int) -> int:
        """Additional bytes that a kernel reads if it computes a value itself."""
        reads = group.members | group.inputs - {index}
        return self.recompute.effort(index) + sum(
            self.recompute.needed(index, operand) for operand in set(self.instructions[index].operands) - reads
        )

    def _reads_leaves(self, group: Group, index: int) -> int:
        """Additional bytes that a kernel reads if it computes a value from the arrays in memory that the value is made from."""
        wanted: dict[int, int] = {}
        for operand in set(self.instructions[index].operands) - group.members - group.inputs:
            wanted |= {leaf: size for leaf, size in (self.recompute.leaves[operand] or {}).items() if leaf not in group.inputs}
        return sum(wanted.values())

    def _is_cheaper_repeated(self, index: int, takers: list[Group]) -> bool:
        """Whether computing a value in each kernel that needs it moves no more bytes than storing it once."""
        size = self.recompute.size(index)
        if not self.traits[index].is_repeatable:
            return size <= self.rules.small_bytes and self.traits[index].is_loop
        again = sum(self._reads(group, index) for group in takers)
        stored = self.recompute.remade(index) + size * (1 + len(takers))
        leaves = self.recompute.leaves[index]
        if again > stored or leaves is None:
            return False
        # Two ways to repeat it: read all that it is made from again, or store the smallest intermediate value. The alternative is to store
        # the value itself, with everything before it in the kernel that stores it.
        whole = sum(leaves.values())
        all_again = sum(self.recompute.effort(index) + self._reads_leaves(group, index) for group in takers)
        halfway = again + whole + self.recompute.least[index]
        written = any(self._can_write(group, index) for group in takers)
        return min(all_again, halfway) <= whole + self.recompute.effort(index) + size * (len(takers) + (not written))

    def _can_merge(self, kernel: Group, other: Group) -> bool:
        """Whether two kernels iterate over equally many elements, and reduce the same dimensions if both reduce."""
        if (
            kernel.kind not in ELEMENT_KINDS
            or other.kind not in ELEMENT_KINDS
            or kernel.space != other.space
            or not self._may_have_several_results(kernel, other)
        ):
            return False
        if any(self.instructions[output].shape.is_tuple for output in kernel.outputs | other.outputs):
            return False
        reducing = [group for group in (kernel, other) if group.kind != "loop"]
        if len(reducing) == 2 and (kernel.rows, kernel.reduced) != (other.rows, other.reduced):
            return False
        rows = next((group.rows for group in reducing if group.kind == "row"), None)
        outputs = kernel.outputs | other.outputs
        return rows is None or all(major(self.instructions[output].shape.dims, rows) is not None for output in outputs)

    def _may_have_several_results(self, *groups: Group) -> bool:
        """Whether a kernel merged from these may have several results."""
        return self.rules.results == "any" or (self.rules.results == "not rows" and all(group.kind != "row" for group in groups))

    def _can_write(self, group: Group, index: int) -> bool:
        """Whether a kernel can also store a value that it computes. It must not depend on another reader of that value."""
        shape = self.instructions[index].shape
        if group.kind not in ELEMENT_KINDS or not self._may_have_several_results(group):
            return False
        if any(self.instructions[output].shape.is_tuple for output in group.outputs):
            return False
        per_row = group.kind == "row" and group.rows is not None and major(shape.dims, group.rows) is not None
        if shape.elements != group.space and not (per_row or self._fit(group, index) == "reduce"):
            return False
        if group.kind == "row" and not per_row:
            return False
        readers = [node for user in self.users[index] for node in self._nodes(user) if node is not group]
        return not self._reaches(readers, group)

    def _nodes(self, index: int) -> list[Node]:
        """The kernels of an instruction, or the instruction itself if it is in none."""
        return [*self.kernels[index]] or [index]

    def _next(self, node: Node) -> list[Node]:
        """What uses the results of a node, or is ordered after it."""
        next: list[Node] = []
        for index in node.outputs if isinstance(node, Group) else (node,):
            for user in self.users[index]:
                next += self.kernels[user] or (user,)
            for user in self.after.get(index, ()) if self.after else ():
                next += self.kernels[user] or (user,)
        return [other for other in next if other is not node]

    def _depend(self, group: Group, other: Group) -> bool:
        """Whether one of two kernels depends on the other."""
        return self._reaches(self._next(group), other) or self._reaches(self._next(other), group)

    def _reaches(self, nodes: list[Node], target: Group) -> bool:
        """Whether the target depends on any of these nodes, directly or through others."""
        last = max(target.members)
        seen: set[Node] = set()
        pending = list(nodes)
        while pending:
            node = pending.pop()
            if node is target:
                return True
            if node in seen or (not self.exact and (min(node.outputs) if isinstance(node, Group) else node) > last):
                continue
            if len(seen) >= _MOST_VISITED:
                return True
            seen.add(node)
            pending += self._next(node)
        return False
