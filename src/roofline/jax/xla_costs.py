"""XLA's own cost analysis of a compiled program, instruction by instruction, to compare with ours.

XLA reports one sum for a program. For the cost of one instruction, the program's protobuf is reduced to that instruction: its operands
become parameters, and the computations it calls are kept. Field numbers are those of HloModuleProto, HloComputationProto and
HloInstructionProto in XLA's public hlo.proto.
"""

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from msgspec import Struct

from ..hlo.read.wire import BYTES, VARINT, fields, unpack
from . import require_jax

_MODULE_NAME, _ENTRY_NAME, _COMPUTATIONS, _PROGRAM_SHAPE, _ENTRY_ID, _STACK_FRAMES = 1, 2, 3, 4, 6, 17
_NAME, _INSTRUCTIONS, _SHAPE_OF_COMPUTATION, _ID_OF_COMPUTATION, _ROOT = 1, 2, 4, 5, 6
_OPCODE, _SHAPE, _PARAMETER_NUMBER, _ID, _OPERANDS, _CONTROL = 2, 3, 9, 35, 36, 37
_PARAMETERS, _RESULT, _PARAMETER_NAMES = 1, 2, 3
_COSTLESS = (b"parameter", b"constant", b"tuple", b"get-tuple-element", b"bitcast")


class XlaCost(Struct, frozen=True):
    """XLA's costs of one instruction; ``None`` if it reports none."""

    name: str
    opcode: str
    flops: float | None
    transcendentals: float | None
    bytes: float | None


def instruction_costs(compiled: Any) -> tuple[XlaCost, ...]:
    """XLA's cost analysis of every instruction of a compiled JAX function's entry computation, except those without cost."""
    jax = require_jax()
    xla_client: Any = import_module("jax._src.lib").xla_client
    module = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    client = jax.devices()[0].client
    costs = []
    for name, opcode, alone in instructions_alone(module):
        said = xla_client._xla.hlo_module_cost_analysis(client, xla_client.XlaComputation(alone).get_hlo_module())
        costs.append(XlaCost(name, opcode, said.get("flops"), said.get("transcendentals"), said.get("bytes accessed")))
    return tuple(costs)


def instructions_alone(module: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Name, opcode and a module of its own for each instruction of the entry computation, except those without cost."""
    entry_id = _number(module, _ENTRY_ID)
    computations = [module[start:end] for number, _, start, end in fields(module) if number == _COMPUTATIONS]
    entry = next(part for part in computations if _number(part, _ID_OF_COMPUTATION) == entry_id)
    others = [part for part in computations if part is not entry]
    instructions = [entry[start:end] for number, _, start, end in fields(entry) if number == _INSTRUCTIONS]
    shapes = {_number(one, _ID): _bytes(one, _SHAPE) for one in instructions}
    for one in instructions:
        if _bytes(one, _OPCODE) in _COSTLESS:
            continue
        operands = _operands(one)
        distinct = list(dict.fromkeys(operands))
        parameters = [_parameter(place, operand, shapes[operand]) for place, operand in enumerate(distinct)]
        program_shape = b"".join(_field(_PARAMETERS, shapes[operand]) for operand in distinct) + _field(_RESULT, _bytes(one, _SHAPE))
        program_shape += b"".join(_field(_PARAMETER_NAMES, _parameter_name(place)) for place in range(len(distinct)))
        body = _field(_NAME, b"entry") + b"".join(_field(_INSTRUCTIONS, part) for part in (*parameters, _without(one, (_CONTROL,))))
        body += _field(_SHAPE_OF_COMPUTATION, program_shape) + _key(_ID_OF_COMPUTATION, entry_id) + _key(_ROOT, _number(one, _ID))
        whole = _field(_MODULE_NAME, b"alone") + _field(_ENTRY_NAME, b"entry") + _key(_ENTRY_ID, entry_id)
        whole += _field(_STACK_FRAMES, _bytes(module, _STACK_FRAMES)) + _field(_PROGRAM_SHAPE, program_shape)
        whole += b"".join(_field(_COMPUTATIONS, part) for part in (*others, body))
        yield _bytes(one, _NAME).decode(), _bytes(one, _OPCODE).decode(), whole


def _parameter(place: int, number: int, shape: bytes) -> bytes:
    named = _field(_NAME, _parameter_name(place)) + _field(_OPCODE, b"parameter") + _field(_SHAPE, shape)
    return named + _key(_PARAMETER_NUMBER, place) + _key(_ID, number)


def _parameter_name(place: int) -> bytes:
    return f"parameter_{place}".encode()


def _operands(instruction: bytes) -> tuple[int, ...]:
    """The ids of the operands."""
    (operands,) = unpack(f"{_OPERANDS}i*", instruction)
    return operands  # type: ignore[no-any-return]


def _without(message: bytes, dropped: Iterable[int]) -> bytes:
    """A message without some of its fields."""
    kept = b""
    for number, kind, held, end in fields(message):
        if number not in dropped:
            kept += _field(number, message[held:end]) if kind == BYTES else _key(number, held)
    return kept


def _number(message: bytes, wanted: int) -> int:
    return next((value for number, kind, value, _ in fields(message) if number == wanted and kind == VARINT), 0)


def _bytes(message: bytes, wanted: int) -> bytes:
    return next((message[start:end] for number, kind, start, end in fields(message) if number == wanted and kind == BYTES), b"")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(data)) + data


def _key(number: int, value: int) -> bytes:
    return _varint(number << 3 | VARINT) + _varint(value)
