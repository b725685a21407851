"""Runs the reader of protobuf messages over damaged programs; it was built with sanitizers, which end it at the first wrong move.

    python tests/sanitize/fuzz_wire.py EXTENSION INPUTS SEED

Each input is a copy of a program, in memory exactly as long as itself, with a few things wrong. It is read by every plan there is, and as
a module with all its attributes.
"""

import ctypes
import importlib.util
import random
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
ODD = bytes((0, 1, 0x7F, 0x80, 0xFF, 8, 10, 16, 18, 26, 34, 0x0D, 0x09, 0x0B))


def install(extension: str) -> None:
    """The extension in the place of the one that is built into the package."""
    spec = importlib.util.spec_from_file_location("roofline.hlo.read._wire", extension)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["roofline.hlo.read._wire"] = built = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(built)


def damage(data: bytes, roll: random.Random) -> bytes:
    """A copy with bits flipped, bytes set, pieces removed or doubled, or its end cut off."""
    copy = bytearray(data)
    for _ in range(roll.randint(1, 4)):
        at, length = roll.randrange(len(copy) or 1), roll.randrange(40)
        how = roll.randrange(5)
        if how == 0:
            copy[at : at + 1] = bytes([roll.randrange(256)])
        elif how == 1:
            copy[at : at + 1] = roll.choice(ODD).to_bytes()
        elif how == 2:
            copy[at : at + length] = roll.choice((b"", b"\xff" * length))
        elif how == 3:
            copy[at:at] = copy[at : at + length]
        elif roll.randrange(3) == 0:
            del copy[at:]
    return bytes(copy)


def main(extension: str, inputs: int, seed: int) -> None:
    install(extension)
    from hlo_programs import instructions, load, names
    from roofline.errors import SourceError
    from roofline.hlo.read import wire
    from roofline.hlo.read.proto import _COMPUTATION, _MODULE, parse_proto, unwrap
    from roofline.hlo.read.proto_attributes import MADE, PLAIN

    assert wire.unpack is sys.modules["roofline.hlo.read._wire"].unpack
    attributes = (*PLAIN, *MADE, "backend_config")
    plans = [_MODULE, _COMPUTATION, *PLAIN.values(), *[plan for readers in MADE.values() for plan, _ in readers]]
    programs = [load(f"{name}.pb") for name in names("pb")]
    read = refused = 0

    def attempt(work: Callable[[], object]) -> None:
        nonlocal read, refused
        try:
            work()
            read += 1
        except SourceError:
            refused += 1

    for number in range(inputs):
        roll = random.Random(seed + number)
        whole = roll.choice(programs)
        begin, end = roll.choice(roll.choice(wire.unpack("3(2m*)*", whole, *unwrap(whole)[:2])[0])[0])  # an instruction
        data = damage(whole[begin:end] if number % 4 else whole, roll)
        held = (ctypes.c_ubyte * len(data)).from_buffer_copy(data)  # no byte behind it, where bytes have a zero
        attempt(lambda held=held: wire.fields(held))
        for plan in roll.sample(plans, 12):
            attempt(lambda plan=plan, held=held: wire.unpack(plan, held))
        if not number % 4:
            try:
                module = parse_proto(data)
            except SourceError:
                refused += 1
                continue
            for instruction in instructions(module):
                for name in attributes:
                    attempt(lambda instruction=instruction, name=name: instruction.attribute(name))
    sys.stdout.write(f"{inputs} inputs, {read:,} readings, {refused:,} of them refused\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
