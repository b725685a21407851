"""Recorded calls of small PyTorch functions as JSON, which tests read without PyTorch.

    python tests/recorded_calls.py [NAME...]    records them again, with PyTorch

Each program of `tests/data/recorded_calls/programs.py` has one file beside it: its calls with the memory that they read and write, and
the memory that is live when it ends.
"""

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from data.recorded_calls.programs import PROGRAMS, Program
from roofline.dtypes import DType, dtype
from roofline.torch.recorder import Kept, Seen
from roofline.torch_prices import Call, Tensor

FOLDER = Path(__file__).parent / "data" / "recorded_calls"


def read(name: str) -> tuple[list[Seen], Kept]:
    """The calls of a program, and what is live when it ends."""
    program = json.loads((FOLDER / f"{name}.json").read_text())
    returned, gradients = (
        tuple((_argument(tensor), (memory, offset)) for tensor, (memory, offset) in program.get(key, ()))
        for key in ("returned", "gradients")
    )
    return [_seen(call) for call in program["calls"]], Kept(returned, frozenset(program["kept"]), gradients)


def record(program: Program) -> tuple[list[Seen], Kept]:
    """The calls of a program, with PyTorch."""
    import torch

    import roofline.torch

    tensors = [torch.empty(shape, dtype=getattr(torch, number), device="meta") for shape, number in program.tensors]
    for tensor in tensors:
        tensor.requires_grad_(program.backward and tensor.is_floating_point())
    traced = roofline.torch.trace(lambda *given: program.function(torch, *given), backward=program.backward)(*tensors)
    return list(traced.calls), traced.kept


def _seen(fields: dict[str, Any]) -> Seen:
    call = fields["call"]
    args = tuple(map(_argument, call["args"]))
    return msgspec.convert(
        {**fields, "call": Call(call["op"], call["overload"], args, tuple(map(_argument, call["outputs"])), extra=call["extra"])}, Seen
    )


def _argument(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_argument, value))
    if isinstance(value, dict) and "format" in value:
        return dtype(value["format"])
    if isinstance(value, dict):
        return Tensor(tuple(value["shape"]), dtype(value["dtype"]), tuple(value["strides"]))
    return value


def _text(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_text(part) for part in value]
    if isinstance(value, DType):
        return {"format": value.name}
    if isinstance(value, Tensor):
        return {"shape": value.shape, "dtype": value.dtype and value.dtype.name, "strides": value.strides}
    return value


def _fields(seen: Seen) -> dict[str, Any]:
    call = seen.call
    named = {"op": call.op, "overload": call.overload, "args": _text(call.args), "outputs": _text(call.outputs), "extra": dict(call.extra)}
    others = {name: getattr(seen, name) for name in Seen.__struct_fields__ if name != "call"}
    return {"call": named, **others, "location": "program.py:1"}


def write(names: Collection[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, program in PROGRAMS.items():
        if names and name not in names:
            continue
        calls, kept = record(program)
        lines = ",\n".join(json.dumps(_fields(call)) for call in calls)
        returned, gradients = (
            json.dumps([(_text(tensor), position) for tensor, position in tensors]) for tensors in (kept.tensors, kept.gradients)
        )
        stored = f'"gradients": {gradients}, ' if kept.gradients else ""
        kept_too = json.dumps(sorted(kept.others))
        (FOLDER / f"{name}.json").write_text(f'{{"kept": {kept_too}, "returned": {returned}, {stored}"calls": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    write(sys.argv[1:])
