"""Damaged programs for the readers of HLO: anything but a module or a `SourceError` is a bug, and so is a slow refusal.

    python benchmarks/hlo_fuzz.py [SECONDS [DRAW]]

Takes the programs of tests/data/hlo, cuts, flips, repeats, swaps and splices them, reads the result and asks every instruction for every
attribute. Prints what broke, with the number of the draw that makes it again, and the slowest reading.
"""

import gzip
import random
import sys
import time
from collections import Counter
from pathlib import Path

from roofline.errors import SourceError
from roofline.hlo.ir.module import HloModule
from roofline.hlo.read import parse

DATA = Path(__file__).parent.parent / "tests" / "data" / "hlo"
ACCESSORS = (
    "metadata", "dot", "window", "convolution", "slices", "padding", "replica_groups", "source_target_pairs", "operand_precision",
    "operand_aliases", "frontend_attributes", "backend_config_text", "literal", "custom_call_target", "fusion_kind",
    "dimensions", "feature_group_count", "batch_group_count",
)  # fmt: skip
DIGITS, BRACKETS = b"0123456789", b'{}()[]<>,="%#:'
SLOW = 10.0  # seconds a megabyte


def mutate(data: bytes, source: random.Random, others: list[bytes]) -> bytes:
    """A few random injuries."""
    damaged = bytearray(data)
    for _ in range(source.randint(1, 4)):
        if not damaged:
            break
        at = source.randrange(len(damaged))
        length = source.choice((1, 1, 2, 8, 64, 512))
        kind = source.randrange(9)
        if kind == 0:
            del damaged[at:]
        elif kind == 1:
            del damaged[at : at + length]
        elif kind == 2:
            damaged[at] = source.randrange(256)
        elif kind == 3:
            damaged[at:at] = damaged[at : at + length] * source.randint(1, 20)
        elif kind == 4:
            damaged[at : at + length] = bytes(source.randrange(256) for _ in range(length))
        elif kind == 5:
            damaged[at:at] = bytes([source.choice(BRACKETS)]) * source.choice((1, 1, 3, 5000))
        elif kind == 6:
            damaged[at:at] = bytes(source.choice(DIGITS) for _ in range(source.choice((1, 5, 30, 5000))))
        elif kind == 7:
            other = source.choice(others)
            start = source.randrange(len(other))
            damaged[at:at] = other[start : start + length * 8]
        else:
            to = source.randrange(len(damaged))
            piece = bytes(damaged[at : at + length])
            del damaged[at : at + length]
            damaged[to:to] = piece
    return bytes(damaged)


def ask(module: HloModule) -> None:
    """Every attribute of every instruction; a `SourceError` is an answer."""
    for computation in module:
        for instruction in computation:
            for name in ACCESSORS:
                try:
                    value = getattr(instruction, name)
                    if name == "replica_groups" and value is not None:
                        value.groups  # noqa: B018
                except SourceError:
                    pass
            try:
                for name in instruction.attributes:
                    instruction.attribute(name)
                module.trace(instruction)
            except SourceError:
                pass


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    draw = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32)
    programs = [(path.name, gzip.decompress(path.read_bytes())) for path in sorted(DATA.glob("*.gz"))]
    others = [data for _, data in programs]
    outcomes: Counter[str] = Counter()
    slowest = (0.0, "")
    print(f"draw {draw}")
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        source = random.Random(draw)
        name, data = source.choice(programs)
        damaged = mutate(data, source, others)
        start = time.perf_counter()
        try:
            ask(parse(damaged, name))
            outcomes["read"] += 1
        except SourceError as error:
            outcomes["refused"] += 1
            if "\n" in str(error) or not str(error).startswith(name):
                outcomes["refused badly"] += 1
                print(f"draw {draw}, {name}: {str(error)[:200]!r}")
        except Exception as error:
            outcomes[type(error).__name__] += 1
            print(f"draw {draw}, {name}: {type(error).__name__}: {str(error)[:200]}")
        spent = time.perf_counter() - start
        slowest = max(slowest, (spent / max(len(damaged), 10**5) * 10**6, f"draw {draw}, {name}, {len(damaged):,} bytes in {spent:.2f} s"))
        draw += 1
    print(dict(outcomes), f"slowest: {slowest[0]:.1f} s/MB ({slowest[1]})")
    broken = [name for name in outcomes if name not in ("read", "refused")]
    sys.exit(1 if broken or slowest[0] > SLOW else 0)


if __name__ == "__main__":
    main()
