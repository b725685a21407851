"""Which instructions of a computation become one kernel: producers placed with their consumers, last instruction first.

Every instruction is decided once, when all its users are. It starts as a kernel of its own, and joins others only where that moves no
more bytes: with one kernel that takes it, with several that become one, repeated in each where repeating reads less than storing, or
written by the first of them for the others to read. The rules themselves are described in `compiler_model`.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct, field

from ..ir.module import Computation, Instruction
from ..price.bodies import updated
from .recompute_cost import Cuts
from .rules import (
    EPILOGUE,
    PRODUCTS,
    PROLOGUE,
    UPDATES,
    VIEWS,
    Rules,
    folds,
    is_widening,
    keeps_rows,
    major,
    reduced_dims,
    row_bytes,
    rows_of,
    traits_of,
    turns,
)

Kind = Literal["loop", "reduce", "row", "product", "update"]
Fit = Literal["loop", "reduce", "row", "product", ""]

_MOST_LOOKS = 4096  # kernels looked at for a path between two; beyond it one is taken to exist
_NEEDS_MEMORY = UPDATES | {"gather"}  # may need an operand in memory
_MOVED_TOGETHER = frozenset(("gather", "concatenate", "pad"))  # work on a product's result that is no part of its kernel
_SHARED = ("loop", "reduce", "row")  # kernels that iterate over elements, and may take others' results along


class Group(Struct, eq=False):
    """Instructions that share a kernel while it is being put together.

    ``space`` is how many elements it iterates over, ``rows`` how many rows its reductions of minor dimensions have, ``lines`` the
    dimensions and axes of other reductions. ``prologue`` are members that a product reads through, ``inputs`` values from outside;
    ``needs_memory`` says that a member may need an operand in memory; ``copied`` whose copy it is in another of equal layers.
    """

    kind: Kind
    space: int
    members: set[int] = field(default_factory=set)
    outputs: set[int] = field(default_factory=set)
    inputs: set[int] = field(default_factory=set)
    prologue: set[int] = field(default_factory=set)
    rows: int | None = None
    lines: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    repeated: int = 0
    needs_memory: bool = False
    copied: "Copied | None" = None


class Copied(Struct, frozen=True):
    """That a kernel does the same as another some instructions further on, but for those before ``start``, which both read."""

    group: Group
    by: int
    start: int


Node = Group | int  # a kernel, or an instruction outside of kernels


def in_order(group: Group) -> tuple[int, int]:
    """The order of kernels: by their last results."""
    return max(group.outputs), min(group.outputs)


def grouped(computation: Computation, rules: Rules) -> "Grouping":
    """All instructions of a computation in their kernels."""
    grouping = Grouping(computation, rules)
    for index in reversed(range(len(computation))):
        if not grouping.fixed[index]:
            grouping.place(index)
    grouping.join_siblings()
    grouping.narrow_results()
    return grouping


class Grouping:
    """The state of the search over one computation."""

    def __init__(self, computation: Computation, rules: Rules) -> None:
        self.computation = computation
        self.rules = rules
        self.instructions = computation.instructions
        self.traits = traits_of(computation)
        self.fixed = [one.is_fixed for one in self.traits]
        self.users: list[list[int]] = [[] for _ in computation]
        self.after: dict[int, list[int]] = {}  # those that a control dependency orders after it
        for index, instruction in enumerate(computation.instructions):
            operands = instruction.operands
            for operand in operands if len(operands) == 1 else dict.fromkeys(operands):
                self.users[operand].append(index)
            for before in instruction.control:
                self.after.setdefault(before, []).append(index)
                self.fixed[before] = self.fixed[index] = True
        self.homes: list[list[Group]] = [[] for _ in computation]
        self.cuts = Cuts(computation, self.traits, self.fixed)
        self.rows: dict[int, int | None] = {}  # of each reduction

    @property
    def groups(self) -> tuple[Group, ...]:
        found = dict.fromkeys(group for home in self.homes for group in home)
        return tuple(sorted(found, key=in_order))

    def place(self, index: int) -> None:
        """Assigns one instruction, whose users are assigned already, to kernels."""
        instruction = self.instructions[index]
        if (group := self._only_taker(index)) is not None:
            self._add(group, index)
            return
        fits, outside = self._takers(index)
        takers = [group for group, fit in fits.items() if fit]
        if instruction.opcode in VIEWS or (self.cuts.least[index] == 0 and self.traits[index].is_cheap):
            self._repeat(index, takers)
            if outside or not takers:
                self._start(index)
            return
        if outside or len(takers) > 1:
            # A kernel that would only rename a value needs it in memory as the others do.
            renaming = [group for group in takers if all(self.instructions[member].opcode in VIEWS for member in group.members)]
            takers = [group for group in takers if group not in renaming]
            outside = outside or bool(renaming)
        if instruction.opcode in PRODUCTS and (outside or len(takers) > 1):
            takers = []
        if not takers:
            self._start(index)
        elif not outside and len(takers) == 1:
            self._join(takers[0], index, fits[takers[0]])
        elif not outside and (together := self._united(index, takers)) is not None:
            self._join(together, index)
        elif not outside and self._repeats_well(index, takers):
            self._repeat(index, takers)
        else:
            self._store(index, takers)

    def _only_taker(self, index: int) -> Group | None:
        """The kernel that takes a value in as it is: the only one that uses it, and one that takes any loop. So it is of most values."""
        users = self.users[index]
        if not users or index == self.computation.root or not self.traits[index].is_loop:
            return None
        homes = self.homes[users[0]]
        if len(homes) != 1 or homes[0].kind not in _SHARED or homes[0].needs_memory:
            return None
        if any(self.homes[user] != homes for user in users[1:]) or not self._has_room(homes[0], index):
            return None
        return homes[0]

    def _takers(self, index: int) -> tuple[dict[Group, Fit], bool]:
        """How each kernel of an instruction's users can fuse it, and whether its value is also needed in memory."""
        found: dict[Group, Fit] = {}
        outside = index == self.computation.root
        for user in self.users[index]:
            outside = outside or not self.homes[user]
            for group in self.homes[user]:
                if group not in found:
                    found[group] = self._fit(group, index)
        return found, outside or not all(found.values())

    def _store(self, index: int, takers: list[Group]) -> None:
        """Writes a value to memory: by a kernel that needs it and iterates over all of it, else by one of its own."""
        for group in takers:
            if self._can_write(group, index):
                self._join(group, index)
                group.outputs.add(index)
                return
        if self.traits[index].is_cheap:
            # Reading what it is made from may be less than reading it: a broadcast, a wider format.
            self._repeat(index, [group for group in takers if self._reads(group, index) <= self.cuts.size(index)])
        self._start(index)

    def _start(self, index: int) -> None:
        """A kernel that begins with its result."""
        instruction = self.instructions[index]
        group = Group("loop", instruction.shape.elements)
        group.outputs.add(index)
        if instruction.opcode in PRODUCTS:
            group.kind = "product"
        elif instruction.opcode in UPDATES:
            group.kind = "update"
        elif instruction.opcode == "reduce":
            group.kind = "reduce"
            self._reduces(group, index)
        self._add(group, index)

    def _rows(self, index: int) -> int | None:
        """How many rows a reduction of the minor dimensions has."""
        if index not in self.rows:
            self.rows[index] = rows_of(self.computation, self.instructions[index])
        return self.rows[index]

    def _reduces(self, group: Group, index: int) -> None:
        reduce = self.instructions[index]
        dims = reduced_dims(self.computation, reduce)
        rows = self._rows(index)
        group.space = max(group.space, self.instructions[reduce.operands[0]].shape.elements)
        if rows is not None:
            group.rows = rows
        else:
            group.lines = (dims, reduce.dimensions)

    def _add(self, group: Group, index: int) -> None:
        members, inputs, instruction = group.members, group.inputs, self.instructions[index]
        members.add(index)
        inputs.discard(index)
        for operand in instruction.operands:
            if operand not in members and (self.cuts.least[operand] or self.fixed[operand]):
                inputs.add(operand)
        group.needs_memory |= instruction.opcode in _NEEDS_MEMORY
        self.homes[index].append(group)

    def _new_inputs(self, group: Group, index: int) -> set[int]:
        members, least, fixed = group.members, self.cuts.least, self.fixed
        return {operand for operand in self.instructions[index].operands if operand not in members and (least[operand] or fixed[operand])}

    def _join(self, group: Group, index: int, fit: Fit | None = None) -> None:
        instruction = self.instructions[index]
        if fit is None:  # of others than these nothing depends on it
            fit = self._fit(group, index) if instruction.opcode == "reduce" or instruction.opcode in PRODUCTS else "loop"
        if fit in ("row", "reduce"):
            self._reduces(group, index)
            group.kind = "row" if fit == "row" or group.kind == "row" else "reduce"
        elif fit == "product":
            group.kind = "product"
        if group.kind == "product" and self._is_prologue(group, self._users_in(group, index)):
            group.prologue.add(index)
        self._add(group, index)

    def _repeat(self, index: int, takers: list[Group]) -> None:
        for group in takers:
            # Views and values made from nothing cost nothing to repeat.
            group.repeated += len(takers) > 1 and self.cuts.least[index] > 0 and self.instructions[index].opcode not in VIEWS
            self._join(group, index)

    def _is_prologue(self, group: Group, users: list[int]) -> bool:
        """Whether a product reads a value that these members of its kernel take."""
        return any(user in group.prologue or self.instructions[user].opcode in PRODUCTS for user in users)

    def _users_in(self, group: Group, index: int) -> list[int]:
        """The members of a kernel that take a value; one that thousands use, such as a constant, is looked for in the members instead."""
        users, members = self.users[index], group.members
        if len(users) > len(members):
            return [member for member in members if index in self.instructions[member].operands]
        return [user for user in users if user in members]

    def _has_room(self, group: Group, index: int) -> bool:
        """Whether a kernel with one more instruction has no more operands and repeated work than one may have."""
        if group.repeated >= self.rules.most_repeated:
            return False
        held = len(group.inputs) + len(group.outputs)
        if held + len(self.instructions[index].operands) <= self.rules.most_operands:
            return True
        added = len(self._new_inputs(group, index) - group.inputs)
        return not added or added + held <= self.rules.most_operands

    def _fit(self, group: Group, index: int) -> Fit:
        """As what an instruction can join a kernel that uses its value; nothing when it cannot."""
        instruction = self.instructions[index]
        if not self._has_room(group, index):
            return ""
        users = self._users_in(group, index) if group.needs_memory or group.kind == "product" else []
        for user in users:
            if self.instructions[user].opcode in _NEEDS_MEMORY and index in self._in_memory(self.instructions[user]):
                return ""
        if group.kind == "product" and self._is_prologue(group, users):
            return "loop" if self._loads(group, index) else ""
        if instruction.opcode in PRODUCTS:
            return "product" if self._is_epilogue(group, index) else ""
        if instruction.opcode == "reduce":
            return self._reduction_fit(group, index)
        if not self.traits[index].is_loop:
            return ""
        if group.kind == "product" and (instruction.opcode == "gather" or len(self._extras(group, index)) > self.rules.most_extras):
            return ""
        return "loop"

    def _loads(self, group: Group, index: int) -> bool:
        """Whether a product can do this on the way from memory to its operand: a library only reads matrices in either order."""
        instruction = self.instructions[index]
        if self.rules.loads == "any" or instruction.opcode in VIEWS:
            return instruction.opcode in PROLOGUE
        if self.rules.widens and is_widening(self.computation, index):
            return True
        return instruction.opcode == "transpose" and all(
            folds(self.computation, self.instructions[user], index) for user in self._users_in(group, index)
        )

    def _in_memory(self, user: Instruction) -> tuple[int, ...]:
        """The operands that an instruction needs in memory: arrays that it changes, the table of a gather that takes elements again."""
        if user.opcode == "gather":
            table = user.operands[:1]
            return table if user.shape.elements > self.instructions[table[0]].shape.elements else ()
        return updated(user)

    def _reached(self, group: Group, index: int) -> set[int]:
        """The members of a kernel that depend on a value."""
        seen = set(self._users_in(group, index))
        waiting = list(seen)
        while waiting:
            for user in self._users_in(group, waiting.pop()):
                if user not in seen:
                    seen.add(user)
                    waiting.append(user)
        return seen

    def _reduction_fit(self, group: Group, index: int) -> Fit:
        """A reduction before its use: row by row on chip, or as the last step before elementwise work on its own result."""
        computation, reduce = self.computation, self.instructions[index]
        if group.kind not in _SHARED or not reduce.shape.is_array:
            return ""
        reached = [self.instructions[member] for member in self._reached(group, index)]
        rows = self._rows(index)
        if (
            rows is not None
            and 0 < row_bytes(computation, reduce, rows) <= self.rules.row_bytes
            and group.lines is None
            and group.rows in (None, rows)
            and (len(group.outputs) == 1 or self.rules.results == "any")
            and all(major(self.instructions[output].shape.dims, rows) is not None for output in group.outputs)
            and all(keeps_rows(computation, member, rows) for member in reached)
        ):
            return "row"
        size = reduce.shape.elements
        alike = group.rows in (None, rows) and group.lines in (None, (reduced_dims(computation, reduce), reduce.dimensions))
        if group.kind == "loop" or (group.kind == "reduce" and alike and (group.rows is None) == (rows is None)):
            on_result = all(one.shape.elements == size and one.opcode in EPILOGUE and one.opcode != "transpose" for one in reached)
            if on_result and all(computation[output].shape.elements == size for output in group.outputs):
                return "reduce"
        return ""

    def _is_epilogue(self, group: Group, index: int) -> bool:
        """Whether a kernel is elementwise work on a product that the product's own kernel can do before it stores."""
        if group.kind != "loop" or len(group.outputs) != 1:
            return False
        reached = self._reached(group, index)
        if not group.outputs <= reached:
            return False
        size = self.instructions[index].shape.elements
        for one in map(self.instructions.__getitem__, reached):
            if one.shape.elements != size or not self._stores(index, one):
                return False
        if not _MOVED_TOGETHER.isdisjoint([self.instructions[member].opcode for member in group.members]):
            return False
        return len(self._extras(group, index)) <= self.rules.most_extras

    def _stores(self, product: int, one: Instruction) -> bool:
        """Whether a product can do this to its result: views and turns of the matrix need no more than other numbers in its call."""
        turned = one.opcode == "transpose" and one.operands[0] == product and turns(self.computation, one)
        return one.opcode in VIEWS or turned or self.rules.store(one.opcode)

    def _extras(self, group: Group, index: int) -> set[int]:
        """The arrays as large as its result that a product's kernel would read after the product, with one more member."""
        inside = group.members | {index}
        late = {one for one in inside if one not in group.prologue and self.instructions[one].opcode not in PRODUCTS}
        read = {operand for one in late for operand in self.instructions[one].operands} - inside
        return {operand for operand in read if self.cuts.least[operand] and self.instructions[operand].shape.elements >= group.space}

    def _reads(self, group: Group, index: int) -> int:
        """Bytes that a kernel reads in addition when it computes a value itself."""
        held = group.members | group.inputs - {index}
        return self.cuts.effort(index) + sum(self.cuts.needed(index, operand) for operand in set(self.instructions[index].operands) - held)

    def _repeats_well(self, index: int, takers: list[Group]) -> bool:
        """Whether computing a value in each kernel that needs it moves no more bytes than storing it once."""
        size = self.cuts.size(index)
        if not self.traits[index].is_repeatable:
            return size <= self.rules.small_bytes and self.traits[index].is_loop
        again = sum(self._reads(group, index) for group in takers)
        stored = self.cuts.remade(index) + size * (1 + len(takers))
        leaves = self.cuts.leaves[index]
        if again > stored or leaves is None:
            return False
        # All that it is made from may be read again, or be stored at the narrowest place on the way; or the value itself is, and
        # everything on the way joins the kernel that stores it.
        whole = sum(leaves.values())
        all_again = sum(self.cuts.effort(index) + self._reads_leaves(group, index) for group in takers)
        halfway = again + whole + self.cuts.least[index]
        written = any(self._can_write(group, index) for group in takers)
        return min(all_again, halfway) <= whole + self.cuts.effort(index) + size * (len(takers) + (not written))

    def _reads_leaves(self, group: Group, index: int) -> int:
        """Bytes that a kernel reads in addition when it computes a value from what is in memory."""
        wanted: dict[int, int] = {}
        for operand in set(self.instructions[index].operands) - group.members - group.inputs:
            wanted |= {leaf: size for leaf, size in (self.cuts.leaves[operand] or {}).items() if leaf not in group.inputs}
        return sum(wanted.values())

    def _united(self, index: int, takers: list[Group]) -> Group | None:
        """The kernels that use a value merged into one, if they iterate over the same elements and none depends on another."""
        first = takers[0]
        if self.instructions[index].shape.elements != first.space and self.instructions[index].opcode != "reduce":
            return None
        for position, group in enumerate(takers):
            if any(not self._alike(group, other) or self._waits(group, other) for other in takers[:position]):
                return None
        crowd = set(self.instructions[index].operands).union(*(group.inputs | group.outputs for group in takers))
        if len(crowd) > self.rules.most_operands:
            return None
        for other in takers[1:]:
            self._unite(first, other)
        return first

    def _alike(self, one: Group, other: Group) -> bool:
        """Whether two kernels iterate over as many elements, and reduce the same dimensions if both reduce."""
        if one.kind not in _SHARED or other.kind not in _SHARED or one.space != other.space or not self._may_store(one, other):
            return False
        if any(self.instructions[output].shape.is_tuple for output in one.outputs | other.outputs):
            return False
        reducing = [group for group in (one, other) if group.kind != "loop"]
        if len(reducing) == 2 and (one.rows, one.lines) != (other.rows, other.lines):
            return False
        rows = next((group.rows for group in reducing if group.kind == "row"), None)
        outputs = one.outputs | other.outputs
        return rows is None or all(major(self.instructions[output].shape.dims, rows) is not None for output in outputs)

    def _may_store(self, *groups: Group) -> bool:
        """Whether these kernels, as one, may have several results."""
        return self.rules.results == "any" or (self.rules.results == "not rows" and all(group.kind != "row" for group in groups))

    def _unite(self, one: Group, other: Group) -> None:
        one.kind = max(one.kind, other.kind, key=_SHARED.index)
        one.rows = one.rows if one.rows is not None else other.rows
        one.lines = one.lines or other.lines
        one.members |= other.members
        one.outputs |= other.outputs
        one.inputs = (one.inputs | other.inputs) - one.members
        one.repeated += other.repeated
        one.needs_memory |= other.needs_memory
        for member in other.members:
            self.homes[member] = list(dict.fromkeys(one if home is other else home for home in self.homes[member]))

    def _can_write(self, group: Group, index: int) -> bool:
        """Whether a kernel can store a value that it computes on the way, without depending on a reader of that value."""
        shape = self.instructions[index].shape
        if group.kind not in _SHARED or not self._may_store(group):
            return False
        if any(self.instructions[output].shape.is_tuple for output in group.outputs):
            return False
        per_row = group.kind == "row" and group.rows is not None and major(shape.dims, group.rows) is not None
        if shape.elements != group.space and not (per_row or self._fit(group, index) == "reduce"):
            return False
        if group.kind == "row" and not per_row:
            return False
        readers = [node for user in self.users[index] for node in self._nodes(user) if node is not group]
        return not self._leads(readers, group)

    def _nodes(self, index: int) -> list[Node]:
        return [*self.homes[index]] or [index]

    def _next(self, node: Node) -> Iterator[Node]:
        for index in node.outputs if isinstance(node, Group) else (node,):
            for user in (*self.users[index], *self.after.get(index, ())):
                yield from (found for found in self._nodes(user) if found is not node)

    def _waits(self, one: Group, other: Group) -> bool:
        return self._leads(list(self._next(one)), other) or self._leads(list(self._next(other)), one)

    def _leads(self, nodes: list[Node], target: Group) -> bool:
        """Whether the target needs any of these, directly or through others."""
        last = max(target.members)
        seen: set[Node] = set()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node is target:
                return True
            first = min(node.outputs) if isinstance(node, Group) else node
            if node in seen or first > last:
                continue
            if len(seen) >= _MOST_LOOKS:
                return True
            seen.add(node)
            waiting += self._next(node)
        return False

    def join_siblings(self) -> None:
        """Makes one kernel of those that read the same array all through, where none waits for another."""
        for value, users in enumerate(self.users):
            if not users or (len(users) == 1 and len(self.homes[users[0]]) < 2):
                continue
            shape = self.instructions[value].shape
            elements = shape.elements if shape.is_bounded else 0
            homes = [home for user in users for home in self.homes[user] if home.space == elements and home.kind in _SHARED]
            kept: list[Group] = []
            for group in dict.fromkeys([home for home in homes if value in home.inputs]) if len(homes) > 1 else ():
                for earlier in kept:
                    crowd = len(earlier.inputs | group.inputs | earlier.outputs | group.outputs)
                    if crowd <= self.rules.most_operands and self._alike(earlier, group) and not self._waits(earlier, group):
                        self._unite(earlier, group)
                        break
                else:
                    kept.append(group)

    def narrow_results(self) -> None:
        """Stores a value in the narrower format in which alone it is read: the conversion belongs to the kernel that stores."""
        converted = {operand for one in self.instructions if one.opcode == "convert" for operand in one.operands}
        found = bool(converted)
        while found:
            found = False
            for group in self.groups:
                for value in sorted(group.outputs & converted):
                    found |= self._narrow(group, value)

    def _narrow(self, group: Group, value: int) -> bool:
        outside = [user for user in self.users[value] if any(home is not group for home in self._nodes(user))]
        if len(outside) != 1 or value == self.computation.root or not self.homes[outside[0]]:
            return False
        convert = outside[0]
        if (
            self.instructions[convert].opcode != "convert"
            or self.cuts.size(convert) >= self.cuts.size(value)
            or group in self.homes[convert]
        ):
            return False
        if group.kind == "update" or (group.kind == "product" and not self.rules.store("convert")):
            return False
        for home in self.homes[convert]:
            home.members.discard(convert)
            home.inputs.discard(value)
            home.outputs.discard(convert)
            home.prologue.discard(convert)
            home.inputs |= {convert} if any(convert in self.instructions[member].operands for member in home.members) else set()
        self.homes[convert] = []
        self._add(group, convert)
        group.outputs = group.outputs - {value} | {convert}
        return True
