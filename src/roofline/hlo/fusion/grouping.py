"""Which instructions of a computation become one kernel: producers placed with their consumers, last instruction first.

Every instruction is placed once, after all its users. It starts a kernel of its own unless joining others moves no more bytes: it is fused
into the one kernel that uses it, or into several that are merged into one; it is repeated in each where that reads less than storing its
value; or the first of them stores the value for the others.
"""

from ..ir.module import Computation
from ..ir.opcodes import PRODUCTS, UPDATES, VIEWS
from .groups import ELEMENT_KINDS, NEEDS_MEMORY, Fit, Group, Groups
from .rules import Rules, reduced_dims


def grouped(computation: Computation, rules: Rules, *, exact: bool = False) -> "Grouping":
    """All instructions of a computation in their kernels; dependencies are searched for faster if not ``exact``."""
    grouping = Grouping(computation, rules, exact=exact)
    for index in reversed(range(len(computation))):
        if not grouping.fixed[index]:
            grouping.place(index)
    grouping.merge_siblings()
    grouping.narrow_results()
    return grouping


class Grouping(Groups):
    """The search for the kernels of one computation."""

    def place(self, index: int) -> None:
        """Assigns one instruction, whose users are assigned already, to kernels."""
        instruction = self.instructions[index]
        if (group := self._only_kernel(index)) is not None:
            self._add(group, index)
            return
        fits, outside = self._takers(index)
        takers = [group for group, fit in fits.items() if fit]
        if instruction.opcode in VIEWS or (self.recompute.least[index] == 0 and self.traits[index].is_cheap):
            self._repeat(index, takers)
            if outside or not takers:
                self._start(index)
            return
        if outside or len(takers) > 1:
            # A kernel of nothing but views of a value needs the value in memory.
            views = [group for group in takers if all(self.instructions[member].opcode in VIEWS for member in group.members)]
            takers = [group for group in takers if group not in views]
            outside = outside or bool(views)
        if instruction.opcode in PRODUCTS and (outside or len(takers) > 1):
            takers = []
        if not takers:
            self._start(index)
        elif not outside and len(takers) == 1:
            self._join(takers[0], index, fits[takers[0]])
        elif not outside and (merged := self._merged(index, takers)) is not None:
            self._join(merged, index)
        elif not outside and self._is_cheaper_repeated(index, takers):
            self._repeat(index, takers)
        else:
            self._store(index, takers)

    def _store(self, index: int, takers: list[Group]) -> None:
        """Stores a value in memory: from a kernel that uses it and iterates over all of it, else from a kernel of its own."""
        for group in takers:
            if self._can_write(group, index):
                self._join(group, index)
                group.outputs.add(index)
                return
        if self.traits[index].is_cheap:
            # Its operands may be smaller than the value: of a broadcast, or of a conversion to a wider format.
            self._repeat(index, [group for group in takers if self._reads(group, index) <= self.recompute.size(index)])
        self._start(index)

    def _start(self, index: int) -> None:
        """Starts a new kernel, with an instruction as its result."""
        instruction = self.instructions[index]
        group = Group("loop", instruction.shape.elements)
        group.outputs.add(index)
        if instruction.opcode in PRODUCTS:
            group.kind = "product"
        elif instruction.opcode in UPDATES:
            group.kind = "update"
        elif instruction.opcode == "reduce":
            group.kind = "reduce"
            self._set_reduction(group, index)
        self._add(group, index)

    def _set_reduction(self, group: Group, index: int) -> None:
        """Records which dimensions a kernel reduces."""
        reduce = self.instructions[index]
        dims = reduced_dims(self.computation, reduce)
        rows = self._rows(index)
        group.space = max(group.space, self.instructions[reduce.operands[0]].shape.elements)
        if rows is not None:
            group.rows = rows
        else:
            group.reduced = (dims, reduce.dimensions)

    def _add(self, group: Group, index: int) -> None:
        """Makes an instruction a member of a kernel."""
        members, inputs, instruction = group.members, group.inputs, self.instructions[index]
        members.add(index)
        inputs.discard(index)
        for operand in instruction.operands:
            if operand not in members and (self.recompute.least[operand] or self.fixed[operand]):
                inputs.add(operand)
        group.needs_memory |= instruction.opcode in NEEDS_MEMORY
        self.kernels[index].append(group)

    def _join(self, group: Group, index: int, fit: Fit | None = None) -> None:
        """Fuses an instruction into a kernel that uses it."""
        instruction = self.instructions[index]
        if fit is None:  # only reductions and products can fit in more than one way
            fit = self._fit(group, index) if instruction.opcode == "reduce" or instruction.opcode in PRODUCTS else "loop"
        if fit in ("row", "reduce"):
            self._set_reduction(group, index)
            group.kind = "row" if fit == "row" or group.kind == "row" else "reduce"
        elif fit == "product":
            group.kind = "product"
        if group.kind == "product" and self._is_prologue(group, self._users_in(group, index)):
            group.prologue.add(index)
        self._add(group, index)

    def _repeat(self, index: int, takers: list[Group]) -> None:
        """Fuses an instruction into each of several kernels."""
        for group in takers:
            # Views and values made from nothing cost nothing to repeat.
            group.repeated += len(takers) > 1 and self.recompute.least[index] > 0 and self.instructions[index].opcode not in VIEWS
            self._join(group, index)

    def _merged(self, index: int, takers: list[Group]) -> Group | None:
        """The kernels that use a value merged into one, if they iterate over the same elements and none depends on another."""
        first = takers[0]
        if self.instructions[index].shape.elements != first.space and self.instructions[index].opcode != "reduce":
            return None
        for position, group in enumerate(takers):
            if any(not self._can_merge(group, other) or self._depend(group, other) for other in takers[:position]):
                return None
        arrays = set(self.instructions[index].operands).union(*(group.inputs | group.outputs for group in takers))
        if len(arrays) > self.rules.most_operands:
            return None
        for other in takers[1:]:
            self._merge(first, other)
        return first

    def _merge(self, group: Group, other: Group) -> None:
        """Moves the members of one kernel into another, the first."""
        group.kind = max(group.kind, other.kind, key=ELEMENT_KINDS.index)
        group.rows = group.rows if group.rows is not None else other.rows
        group.reduced = group.reduced or other.reduced
        group.members |= other.members
        group.outputs |= other.outputs
        group.inputs = (group.inputs | other.inputs) - group.members
        group.repeated += other.repeated
        group.needs_memory |= other.needs_memory
        for member in other.members:
            self.kernels[member] = list(dict.fromkeys(group if kernel is other else kernel for kernel in self.kernels[member]))

    def merge_siblings(self) -> None:
        """Merges kernels that iterate over the same input array, where none depends on another."""
        for value, users in enumerate(self.users):
            if not users or (len(users) == 1 and len(self.kernels[users[0]]) < 2):
                continue
            shape = self.instructions[value].shape
            elements = shape.elements if shape.is_bounded else 0
            kernels = [
                kernel for user in users for kernel in self.kernels[user] if kernel.space == elements and kernel.kind in ELEMENT_KINDS
            ]
            kept: list[Group] = []
            for group in dict.fromkeys([kernel for kernel in kernels if value in kernel.inputs]) if len(kernels) > 1 else ():
                for earlier in kept:
                    arrays = len(earlier.inputs | group.inputs | earlier.outputs | group.outputs)
                    if arrays <= self.rules.most_operands and self._can_merge(earlier, group) and not self._depend(earlier, group):
                        self._merge(earlier, group)
                        break
                else:
                    kept.append(group)

    def narrow_results(self) -> None:
        """Moves the conversion of a stored value into the kernel that stores it, if only a narrower format of it is read."""
        converted = {operand for instruction in self.instructions if instruction.opcode == "convert" for operand in instruction.operands}
        changed = bool(converted)
        while changed:
            changed = False
            for group in self.groups:
                for value in sorted(group.outputs & converted):
                    changed |= self._narrow(group, value)

    def _narrow(self, group: Group, value: int) -> bool:
        """Moves the conversion of one stored value into its kernel; whether it could."""
        outside = [user for user in self.users[value] if any(kernel is not group for kernel in self._nodes(user))]
        if len(outside) != 1 or value == self.computation.root or not self.kernels[outside[0]]:
            return False
        convert = outside[0]
        if (
            self.instructions[convert].opcode != "convert"
            or self.recompute.size(convert) >= self.recompute.size(value)
            or group in self.kernels[convert]
        ):
            return False
        if group.kind == "update" or (group.kind == "product" and not self.rules.store("convert")):
            return False
        for kernel in self.kernels[convert]:
            kernel.members.discard(convert)
            kernel.inputs.discard(value)
            kernel.outputs.discard(convert)
            kernel.prologue.discard(convert)
            kernel.inputs |= {convert} if any(convert in self.instructions[member].operands for member in kernel.members) else set()
        self.kernels[convert] = []
        self._add(group, convert)
        group.outputs = group.outputs - {value} | {convert}
        return True
