"""Every cost and every piece of avoidable work of every capture and program at hand, frozen, and what a change of the code does to them.

    python benchmarks/freeze.py write FOLDER            before a change
    python benchmarks/freeze.py compare FOLDER          after it: prints each difference, exits 1 if there are any

The inputs are those of `tests/data`, `benchmarks/faults` and, where they are, of `../shared/data`; others can be named after the folder.
For each op it keeps the cost of all executions; for each reason (kind and group) its ops and the cost of one execution without the work.
Expected differences are listed in the changelog with their reason.
"""

import gzip
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from roofline.analysis.evidence import with_evidence
from roofline.cost import Cost
from roofline.errors import RooflineError
from roofline.machines import load
from roofline.machines.detection import machine_for
from roofline.sources import read

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("tests/data", "benchmarks/faults", "../shared/data")
ENDINGS = (".xplane.pb", ".hlo", ".hlo.txt", ".stablehlo", ".mlir", ".json", ".pb", ".csv")
CHIPS = {"v2": "v2", "v3": "v3", "v4": "v4", "v5p": "v5p", "v6e": "v6e", "v7x": "v7x", "tpu": "v5e"}  # by a part of the path; else h200
MOST_SHOWN = 12  # differences of one input

Amounts = dict[str, float | None]


class Frozen(msgspec.Struct, frozen=True):
    """An input: the cost of each op, by its place and name, and each reason with its ops and the cost of one execution without the work."""

    costs: dict[str, Amounts]
    reasons: dict[str, dict[str, Amounts]]
    error: str = ""


def main(words: Sequence[str]) -> int:
    if len(words) < 2 or words[0] not in ("write", "compare"):
        print(__doc__)
        return 2
    folder = Path(words[1])
    folder.mkdir(parents=True, exist_ok=True)
    paths = [Path(word) for word in words[2:]] or sorted(_inputs())
    differing = 0
    with ProcessPoolExecutor() as pool:
        for path, now in zip(paths, pool.map(freeze, paths), strict=True):
            kept = folder / (_name(path).replace("/", "_") + ".json.gz")
            if words[0] == "write":
                kept.write_bytes(gzip.compress(msgspec.json.encode(now), mtime=0))
                continue
            if not kept.is_file():
                continue
            before = msgspec.json.decode(gzip.decompress(kept.read_bytes()), type=Frozen)
            if found := list(differences(before, msgspec.json.decode(msgspec.json.encode(now), type=Frozen))):
                differing += 1
                print(path)
                print("\n".join(f"  {line}" for line in found[:MOST_SHOWN]))
                print(
                    f"  … {len(found) - MOST_SHOWN:,} more" if len(found) > MOST_SHOWN else "", end="\n" if len(found) > MOST_SHOWN else ""
                )
    print(f"{len(paths):,} inputs, {differing:,} differ" if words[0] == "compare" else f"{len(paths):,} inputs frozen in {folder}")
    return int(differing > 0)


def _inputs() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in (ROOT / folder).resolve().rglob("*"):
            if path.is_file() and path.name.removesuffix(".gz").endswith(ENDINGS):
                yield path


def _name(path: Path) -> str:
    """The path of an input, from the project's folder if it is inside."""
    whole = path.resolve()
    return str(whole.relative_to(ROOT) if whole.is_relative_to(ROOT) else whole)


def freeze(path: Path) -> Frozen:
    """What the code of today makes of an input; of one that it cannot read, the error."""
    chip = next((name for part, name in CHIPS.items() if part in str(path)), "h200")
    try:
        recording = with_evidence(read(str(path), load(chip) if chip != "h200" else machine_for))
    except RooflineError as error:
        return Frozen({}, {}, str(error).replace(str(path), path.name))
    costs: dict[str, Amounts] = {}
    reasons: dict[str, dict[str, Amounts]] = {}
    for place, op in enumerate(recording.workload.ops):
        key = f"{place} {op.module} {op.name}"
        costs[key] = _amounts(op.cost)
        for reason in op.avoidable:
            reasons.setdefault(f"{reason.kind} {reason.group} {reason.unneeded}", {})[key] = _amounts(reason.instead)
    return Frozen(costs, reasons)


def _amounts(cost: Cost) -> Amounts:
    return {resource.name: None if amount is None else float(amount) for resource, amount in cost.items()}


def differences(before: Frozen, after: Frozen) -> Iterator[str]:
    """What differs, a line each."""
    if before.error != after.error:
        yield f"error: {before.error or 'none'} → {after.error or 'none'}"
    yield from _changed("cost", before.costs, after.costs)
    for reason in sorted({*before.reasons, *after.reasons}):
        old, new = before.reasons.get(reason, {}), after.reasons.get(reason, {})
        if gone := len({*old} - {*new}):
            yield f"{reason}: no longer in {gone:,} of {len(old):,} ops, such as {min({*old} - {*new})}"
        if added := len({*new} - {*old}):
            yield f"{reason}: newly in {added:,} ops, such as {min({*new} - {*old})}"
        yield from _changed(reason, {key: old[key] for key in old if key in new}, new)


def _changed(what: str, old: Mapping[str, Amounts], new: Mapping[str, Amounts]) -> Iterator[str]:
    for key, amounts in old.items():
        if key in new and new[key] != amounts:
            parts = [
                f"{name} {amounts.get(name)} → {new[key].get(name)}"
                for name in {**amounts, **new[key]}
                if amounts.get(name) != new[key].get(name)
            ]
            yield f"{what} of {key}: {'; '.join(sorted(parts))}"
    if what == "cost" and {*old} != {*new}:
        yield f"ops: {len(old):,} → {len(new):,}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
