"""Real compiled programs for the tests of `roofline.hlo`, and what it means that two readings of one agree."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

from program_texts import program_text
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
SCANNED_LAYERS = program_text("hlo_programs/scanned_layers.hlo")

# A product with a bias and a function in its kernel, and a product that reads the result.
BIASED = program_text("hlo_programs/biased.hlo")
