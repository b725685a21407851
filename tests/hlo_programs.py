"""Real compiled programs for the tests of `roofline.hlo`, and what it means that two readings of one agree."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

from roofline.hlo.ir.module import HloModule, Instruction
from roofline.hlo.read import parse
from roofline.hlo.read.backend_config import backend_config
from roofline.hlo.read.wire import unpack

DATA = Path(__file__).parent / "data" / "hlo"
SHARED = Path(__file__).parent.parent.parent / "shared" / "data"

# Every attribute that both text and protobuf carry, under its name in text.
ATTRIBUTES = """
lhs_contracting_dims rhs_contracting_dims lhs_batch_dims rhs_batch_dims dimensions window dim_labels slice padding replica_groups
source_target_pairs operand_precision algorithm frontend_attributes sharding direction kind index iota_dimension dynamic_slice_sizes
slice_sizes offset_dims collapsed_slice_dims start_index_map operand_batching_dims start_indices_batching_dims index_vector_dim
update_window_dims inserted_window_dims scatter_dims_to_operand_dims input_batching_dims scatter_indices_batching_dims fft_type fft_length
custom_call_target api_version channel_id use_global_device_ids is_stable lower left_side unit_diagonal transpose_a k largest
operand_layout_constraints output_to_operand_aliasing parameter_number unique_indices indices_are_sorted distribution exponent_bits
mantissa_bits custom_call_has_side_effect feature_group_count batch_group_count
"""


def load(name: str) -> bytes:
    """A file of tests/data/hlo."""
    return gzip.decompress((DATA / f"{name}.gz").read_bytes())


def module(name: str) -> HloModule:
    """A program of tests/data/hlo, read."""
    return parse(load(name), name)


def names(ending: str) -> list[str]:
    """The programs that are there in one form."""
    return sorted(
        path.name.removesuffix(f".{ending}.gz") for path in DATA.glob(f"*.{ending}.gz") if path.name.count(".") == ending.count(".") + 2
    )


def instructions(module: HloModule) -> Iterator[Instruction]:
    for computation in module:
        yield from computation


def differences(text: HloModule, proto: HloModule) -> list[str]:
    """Where the readings of a module's text and of its protobuf disagree; constants' last digits and the order of JSON keys aside."""
    found = [
        f"module: {name}: {mine} != {other}"
        for name in ("name", "is_scheduled", "aliases", "num_partitions", "replica_count")
        if (mine := getattr(text, name)) != (other := getattr(proto, name))
    ]
    if text.entry_computation.name != proto.entry_computation.name:
        found.append("module: entry")
    if dict(text.frontend_attributes) != dict(proto.frontend_attributes):
        found.append("module: frontend_attributes")
    # Text leaves out the computations that async operations wrap.
    hidden = {text.computations[call.computation].name for i in instructions(text) if i.opcode == "async-start" for call in i.calls}
    hidden |= {proto.computations[call.computation].name for i in instructions(proto) if i.opcode == "async-start" for call in i.calls}
    mine, other = ({computation.name: computation for computation in module if computation.name not in hidden} for module in (text, proto))
    found += [f"computation {name} in one only" for name in mine.keys() ^ other.keys()]
    for name in mine.keys() & other.keys():
        a, b = mine[name], other[name]
        if [i.name for i in a] != [i.name for i in b]:
            found.append(f"{name}: order")
            continue
        if (a.root, a.parameters) != (b.root, b.parameters):
            found.append(f"{name}: root, parameters or thread")
        for i, j in zip(a, b, strict=True):
            found += [f"{i.name}: {difference}" for difference in _differences(text, i, proto, j)]
    return found


def _differences(text: HloModule, i: Instruction, proto: HloModule, j: Instruction) -> Iterator[str]:
    for name in ("opcode", "shape", "operands", "control", "op_name"):
        if getattr(i, name) != getattr(j, name):
            yield f"{name}: {getattr(i, name)} != {getattr(j, name)}"
    if text.trace(i) != proto.trace(j):
        yield "trace"
    if i.opcode.startswith("async-"):
        return  # text shows the attributes of the operation inside
    if _called(text, i) != _called(proto, j):
        yield "calls"
    if backend_config(i) != backend_config(j):
        yield "backend_config"
    for name in ATTRIBUTES.split():
        mine, other = _plain(i, name), _plain(j, name)
        if mine != other:
            yield f"{name}: {mine} != {other}"
    literals = i.literal, j.literal
    if None not in literals and not all(_close(x, y, i.shape.dtype) for x, y in zip(*literals, strict=True)):
        yield f"literal: {literals}"


def _called(module: HloModule, instruction: Instruction) -> list[tuple[str, str]]:
    return [(call.role, module.computations[call.computation].name) for call in instruction.calls]


def _plain(instruction: Instruction, name: str) -> object:
    """An attribute, where saying the default and saying nothing are the same."""
    value = instruction.attribute(name)
    if name == "sharding" and isinstance(value, str):
        return re.sub(r" metadata=\{[^{}]*\}|/\*.*?\*/", "", value)
    if value in ((), False) or (name.endswith("_group_count") and value == 1):
        return None
    return value


def _close(x: object, y: object, dtype: str) -> bool:
    if x != x or y != y:
        return x != x and y != y
    # bf16 is printed with 4 digits, f32 with 9: a relative error of a thousandth is far below both, and far above noise.
    return x == y or (dtype[0] in "fbc" and abs(complex(x) - complex(y)) <= abs(complex(y)) / 500)  # type: ignore[arg-type]


def embedded(path: Path) -> Iterator[tuple[str, bytes]]:
    """The HloProtos in a profile: name and bytes, from the stats of the event metadata of the plane ``/host:metadata``.

    XSpace: planes = 1; XPlane: name = 2, event_metadata = 4, a map whose values have name = 2 and stats = 5; XStat: bytes_value = 6.
    """
    for name, entries in unpack("1(2t 4(2b)*)*", path.read_bytes())[0]:
        if name == "/host:metadata":
            for (metadata,) in entries:
                program, stats = unpack("2t 5(6b?)*", metadata)
                yield from ((program, held) for (held,) in stats if held is not None)


# A scan over 4 layers: each trip copies its weights out of the array of all, and multiplies with them.
SCANNED_LAYERS = """
HloModule jit_step, is_scheduled=true

%sliced (p0: bf16[4,4096,8192], p1: s32[]) -> bf16[4096,8192] {
  %p0 = bf16[4,4096,8192]{2,1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %cut = bf16[1,4096,8192]{2,1,0} dynamic-slice(%p0, %p1, %zero, %zero), dynamic_slice_sizes={1,4096,8192}
  ROOT %layer = bf16[4096,8192]{1,0} bitcast(%cut)
}

%halved (p0: bf16[8,8192]) -> bf16[8,4096] {
  %p0 = bf16[8,8192]{1,0} parameter(0)
  %cut = bf16[8,4096]{1,0} slice(%p0), slice={[0:8], [0:4096]}
  ROOT %out = bf16[8,4096]{1,0} negate(%cut)
}

%body (state: (s32[], bf16[8,4096], bf16[4,4096,8192])) -> (s32[], bf16[8,4096], bf16[4,4096,8192]) {
  %state = (s32[], bf16[8,4096]{1,0}, bf16[4,4096,8192]{2,1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = bf16[8,4096]{1,0} get-tuple-element(%state), index=1
  %ws = bf16[4,4096,8192]{2,1,0} get-tuple-element(%state), index=2
  %w = bf16[4096,8192]{1,0} fusion(%ws, %i), kind=kLoop, calls=%sliced
  %y = bf16[8,8192]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %next = bf16[8,4096]{1,0} fusion(%y), kind=kLoop, calls=%halved
  %one = s32[] constant(1)
  %j = s32[] add(%i, %one)
  ROOT %out = (s32[], bf16[8,4096]{1,0}, bf16[4,4096,8192]{2,1,0}) tuple(%j, %next, %ws)
}

%condition (state: (s32[], bf16[8,4096], bf16[4,4096,8192])) -> pred[] {
  %state = (s32[], bf16[8,4096]{1,0}, bf16[4,4096,8192]{2,1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %n = s32[] constant(4)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (x: bf16[8,4096], ws: bf16[4,4096,8192]) -> bf16[8,4096] {
  %x = bf16[8,4096]{1,0} parameter(0), metadata={op_name="x"}
  %ws = bf16[4,4096,8192]{2,1,0} parameter(1), metadata={op_name="ws"}
  %zero = s32[] constant(0)
  %state = (s32[], bf16[8,4096]{1,0}, bf16[4,4096,8192]{2,1,0}) tuple(%zero, %x, %ws)
  %loop = (s32[], bf16[8,4096]{1,0}, bf16[4,4096,8192]{2,1,0}) while(%state), condition=%condition, body=%body, \
backend_config={"known_trip_count":{"n":"4"}}
  ROOT %y = bf16[8,4096]{1,0} get-tuple-element(%loop), index=1
}
"""

# A product with a bias and a function in its kernel, and a product that reads the result.
BIASED = """HloModule net, is_scheduled=true

%first {
  %x = f32[65536,64]{1,0} parameter(0)
  %w = f32[64,256]{1,0} parameter(1)
  %dot = f32[65536,256]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %b = f32[256]{0} parameter(2)
  %bias = f32[65536,256]{1,0} broadcast(%b), dimensions={1}
  %sum = f32[65536,256]{1,0} add(%dot, %bias)
  ROOT %activated = f32[65536,256]{1,0} tanh(%sum)
}

ENTRY %main {
  %x = f32[65536,64]{1,0} parameter(0)
  %w = f32[64,256]{1,0} parameter(1)
  %b = f32[256]{0} parameter(2)
  %v = f32[256,512]{1,0} parameter(3)
  %h = f32[65536,256]{1,0} fusion(%x, %w, %b), kind=kCustom, calls=%first
  ROOT %y = f32[65536,512]{1,0} dot(%h, %v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
