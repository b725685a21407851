"""Compiled XLA programs, from bytes or text: one immutable `HloModule` whichever form they come in.

>>> program = '''HloModule small, entry_computation_layout={(f32[4]{0})->f32[4]{0}}
... ENTRY main {
...   x = f32[4]{0} parameter(0)
...   ROOT y = f32[4]{0} add(x, x), metadata={op_name="jit(f)/add"}
... }'''
>>> module = parse(program)
>>> root = module.entry_computation.root_instruction
>>> root.opcode, root.shape.bytes, root.operands, root.op_name
('add', 16, (0, 0), 'jit(f)/add')
"""

import re
from itertools import chain

from ...errors import SourceError
from ..ir.module import HloModule, only
from .jax_export import module_range
from .mlir import MAGIC

HEAD = 2**16  # bytes from which the form of a program is recognised
_CONTROL = rb"[\x00-\x08\x0e-\x1f]"
_INSTRUCTION = r"(?:ROOT[ \t]+)?%?[\w.\-]+[ \t]*=[ \t]*[a-z]\w*\[[\d, ]*\](?:\{[^}\n]*\})?[ \t]+[a-z][a-z\d\-]*\("
_HLO = re.compile(rf"^[ \t]*(?:HloModule\b|ENTRY\b|{_INSTRUCTION})", re.MULTILINE)  # XLA needs neither a header nor an entry
_MLIR = re.compile(
    r"^[ \t]*(?:module[ \t]*(?:@|attributes\b|\{)|func\.func\b|\"?builtin\.module\b|#loc\d*\s*=|sdy\.mesh\b)|\bstablehlo\.[a-z]",
    re.MULTILINE,
)
# Field 1 of a module is its name, then come its entry's name (2) or its computations (3); wrappers hold it as their field 1.
_MODULE_NAME = rb"[\w.\-$<>@\[\]]+[\x12\x1a]"
_BETWEEN = re.compile(r"^[ \t]*// -----[ \t\r]*$", re.MULTILINE)  # between modules of one file, as MLIR's tests write it


def parse(data: bytes | str, where: str = "program") -> HloModule:
    """The program in a file, in whichever form; ``where`` is its name in errors. Several programs are an error."""
    return only(parse_all(data, where), where)


def parse_all(data: bytes | str, where: str = "program") -> tuple[HloModule, ...]:
    """Every program in a file: HLO text may have several modules, StableHLO several modules and functions that nothing calls."""
    if isinstance(data, str):
        text = data.removeprefix("\ufeff")
    elif (program := _bytecode(data)) is not None:
        from .stablehlo.bytecode import parse_bytecode

        return _with_bodies(parse_bytecode(program, where), where)
    elif re.search(_CONTROL, data[:HEAD]):
        from .proto import parse_proto

        return (parse_proto(data, where),)
    else:
        text = data.decode("utf-8-sig", "backslashreplace")
    if not text.strip():
        raise SourceError(f"{where}: the program is empty")
    if _form_of(text[:HEAD]) == "stablehlo":
        from .stablehlo.text import parse_stablehlos

        return _with_bodies(tuple(chain.from_iterable([parse_stablehlos(part, where) for part in _parts(text)])), where)
    from .text import parse_texts

    return tuple(parse_texts(text, where))


def _with_bodies(modules: tuple[HloModule, ...], where: str) -> tuple[HloModule, ...]:
    if not modules:
        raise SourceError(f"{where}: functions are declared but none has a body")
    return modules


def _bytecode(data: bytes) -> bytes | None:
    """The MLIR bytecode that a file is, or that a file of ``jax.export`` holds."""
    if data.startswith(MAGIC):
        return data
    place = module_range(data)
    return data[slice(*place)] if place is not None else None


def _parts(text: str) -> list[str]:
    """The non-empty modules of a text with separator lines, each after as many empty lines as precede it, so that line numbers stay."""
    cuts = [match.end() for match in _BETWEEN.finditer(text)]
    parts = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        if any(line.strip() and not line.lstrip().startswith("//") for line in text[start:end].splitlines()):
            parts.append("\n" * text.count("\n", 0, start) + text[start:end])
    return parts or [text]


def recognise(head: bytes) -> str:
    """The form of a program from its first bytes: ``hlo text``, ``hlo proto``, ``stablehlo``, ``bytecode``, or empty for other data."""
    if head.startswith(MAGIC) or module_range(head, whole=False) is not None:
        return "bytecode"
    if re.search(_CONTROL, head):
        return "hlo proto" if _looks_like_module(head) else ""
    return _form_of(head.decode("utf-8-sig", "replace"))


def _form_of(text: str) -> str:
    if _HLO.search(text):
        return "hlo text"
    return "stablehlo" if _MLIR.search(text) else ""


def _looks_like_module(head: bytes) -> bool:
    """Whether field 1, or field 1 of field 1, is a module's name."""
    position = 0
    for _ in range(4):
        if head[position : position + 1] != b"\n":
            return False
        position += 1
        length_bytes = 1
        while position + length_bytes <= len(head) and head[position + length_bytes - 1] > 127:
            length_bytes += 1
        position += length_bytes
        if head[position : position + 1] != b"\n":
            return re.match(_MODULE_NAME, head[position:]) is not None
    return False
