"""Triton's intermediate representation, read from its text: the operations of a kernel with their operands, loops and lines of source."""

import re
from collections.abc import Callable, Iterator

from msgspec import Struct

from ...errors import SourceError

_ASSIGNED = re.compile(r"(%[\w$.-]+)(?::(\d+))? = ")
_NAME = re.compile(r'"?([a-z_]+\.[\w.]+)"?')
_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_LOCATION = re.compile(r"\s*loc\((#loc\d*|\".*?\":\d+:\d+|unknown|.*)\)\s*$")
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)\s*$")
_PLACE = re.compile(r'"([^"]*)":(\d+):\d+')
_LOOP = re.compile(r"scf\.for (?:unsigned )?(%[\w$.-]+) = (\S+) to (\S+) step (\S+)(?: iter_args\((.*?)\) -> )?")
_TENSOR = re.compile(r"tensor<((?:\d+x)*)(!tt\.ptr<[^<>]*(?:<[^<>]*>)?[^<>]*>|[a-z]\w*)[^>]*>")
_BITS = re.compile(r"(\d+)")
_LABEL = re.compile(r"\^(\w+)(?:\((.*)\))?:")
_TARGET = re.compile(r"\^(\w+)(?:\(([^:)]*)[^)]*\))?")
BLOCK = "cf.block"


class Type(Struct, frozen=True):
    """A value's type: the shape of a tensor, empty for a scalar, its element, and whether it points to that."""

    shape: tuple[int, ...]
    element: str
    is_pointer: bool

    @property
    def bytes(self) -> int:
        """Of one element."""
        if self.element.startswith("f8"):
            return 1
        bits = _BITS.search(self.element)
        return max(1, int(bits[1]) // 8) if bits else 1

    @property
    def elements(self) -> int:
        total = 1
        for size in self.shape:
            total *= size
        return total


class Operation(Struct, frozen=True, kw_only=True):
    """An operation: its results and operands by name, the text of its attributes, its type, the line of source, and what is inside it.

    Of a loop, ``operands`` are its bounds, step and first values of what it carries; ``carried`` their names inside. A block of a function
    with early returns (`BLOCK`) has its label as text; ``carried`` are the values that branches give it.
    """

    name: str
    results: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    text: str = ""
    type: Type = Type((), "", False)
    line: int = 0
    file: str = ""
    carried: tuple[str, ...] = ()
    body: tuple["Operation", ...] = ()
    otherwise: tuple["Operation", ...] = ()

    def targets(self) -> list[tuple[str, list[str]]]:
        """The labels that a branch leads to, with the values that it gives them."""
        return [(label, _VALUE.findall(values)) for label, values in _TARGET.findall(self.text)]

    def everything(self) -> Iterator["Operation"]:
        """Itself and what is inside it."""
        yield self
        for inside in (*self.body, *self.otherwise):
            yield from inside.everything()


class Kernel(Struct, frozen=True):
    """A kernel: the names of its arguments in order, with their types, and its operations."""

    arguments: tuple[tuple[str, Type], ...]
    operations: tuple[Operation, ...]

    def everything(self) -> Iterator[Operation]:
        for operation in self.operations:
            yield from operation.everything()


def type_of(text: str) -> Type:
    """A type from its text.

    >>> type_of("tensor<128x64x!tt.ptr<bf16>>")
    Type(shape=(128, 64), element='bf16', is_pointer=True)
    """
    tensor = _TENSOR.search(text)
    shape, element = (tensor[1], tensor[2]) if tensor else ("", text.strip())
    pointer = element.startswith("!tt.ptr<")
    element = element.removeprefix("!tt.ptr<").partition(">")[0].partition(",")[0] if pointer else element
    return Type(tuple(int(size) for size in shape.split("x") if size), element, pointer)


class _Reader:
    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.at = 0
        self.aliases = {found[1]: found[2] for line in self.lines if (found := _ALIAS.match(line))}

    def place(self, text: str) -> tuple[str, int]:
        """The file and line that a location names; of an inlined function, where it is called from."""
        for _ in range(20):
            if found := re.search(r"callsite\((.*) at (.*)\)", text):
                text = found[2]
            elif found := _PLACE.search(text):
                return found[1], int(found[2])
            elif found := re.search(r"#loc\d*", text):
                text = self.aliases.get(found[0], "")
            else:
                break
        return "", 0

    def block(self) -> tuple[list[Operation], str]:
        """The operations up to the brace that ends a block, and the text of the line with that brace."""
        found: list[Operation] = []
        blocks: list[tuple[str, tuple[str, ...], list[Operation]]] = []
        while self.at < len(self.lines):
            line = self.lines[self.at].strip()
            self.at += 1
            if line.startswith("}"):
                break
            if label := _LABEL.match(line):
                blocks.append((label[1], tuple(re.findall(r"(%[\w$.-]+): ", label[2] or "")), []))
            elif line and not line.startswith(("//", "#", "module", "tt.func")):
                (blocks[-1][2] if blocks else found).append(self.operation(line))
        else:
            line = ""
        apart = [Operation(name=BLOCK, text=label, carried=values, body=tuple(body)) for label, values, body in blocks]
        return found + apart, line

    def operation(self, line: str) -> Operation:
        assigned = _ASSIGNED.match(line)
        results: tuple[str, ...] = ()
        if assigned:
            results = tuple(f"{assigned[1]}#{k}" for k in range(int(assigned[2]))) if assigned[2] else (assigned[1],)
            line = line[assigned.end() :]
        named = _NAME.match(line)
        if named is None:
            raise SourceError(f"Triton's IR has an operation that is not understood: {line[:80]}")
        opens = line.rstrip().endswith(("{", "({"))
        located = _LOCATION.search(line)
        plain = line[: located.start()] if located else line
        body: list[Operation] = []
        otherwise: list[Operation] = []
        if opens:
            body, end = self.block()
            if end.startswith(("} else", "} do")):
                otherwise, end = self.block()
            closing = _LOCATION.search(end)
            located = closing or located
            plain += end.lstrip("}) ").partition(" loc(")[0]
        file, number = self.place(located[1]) if located else ("", 0)
        loop = _LOOP.match(plain)
        carried: tuple[str, ...] = ()
        if loop:
            pairs = re.findall(r"(%[\w$.-]+) = (\S+?)(?:,|$)", loop[5] or "")
            carried = (loop[1], *(inside for inside, _ in pairs))
            operands = (loop[2], loop[3], loop[4], *(value for _, value in pairs))
        else:
            before = plain.partition("({")[0] if opens else plain
            head, _, _ = before.partition(" : ") if named[1] != "arith.constant" else (before, "", "")
            operands = tuple(_VALUE.findall(head))
        typed = plain.rpartition("->")[2] if "->" in plain and not loop else plain.rpartition(" : ")[2]
        return Operation(
            name=named[1], results=results, operands=operands, text=plain, type=type_of(typed), line=number, file=file,
            carried=carried, body=tuple(body), otherwise=tuple(otherwise),
        )  # fmt: skip


def located(text: str) -> Callable[[str], tuple[str, int]]:
    """What gives the file and line of a row of this IR."""
    reader = _Reader(text)

    def place(row: str) -> tuple[str, int]:
        found = _LOCATION.search(row)
        return reader.place(found[1]) if found else ("", 0)

    return place


def read_ir(text: str) -> Kernel:
    """The public function of a module in TTIR."""
    reader = _Reader(text)
    while reader.at < len(reader.lines):
        line = reader.lines[reader.at].strip()
        reader.at += 1
        if line.startswith("tt.func public"):
            arguments = re.findall(r"(%[\w$.-]+): (!tt\.\w+<[^>]*>|\w+)", line.partition("(")[2])
            operations, _ = reader.block()
            return Kernel(tuple((name, type_of(kind)) for name, kind in arguments), tuple(operations))
    raise SourceError("Triton's IR has no kernel")
