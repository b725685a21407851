"""Damaged inputs for every reader, 20,000 with the slow tests: read, or refused in one line (`benchmarks/fuzz.py` makes more)."""

import importlib.util
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from roofline.errors import FormulaError

_PATH = Path(__file__).parent.parent / "benchmarks" / "fuzz.py"
_spec = importlib.util.spec_from_file_location("fuzz", _PATH)
assert _spec is not None
assert _spec.loader is not None
fuzz = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fuzz)
fuzz_jobs = sys.modules["fuzz_jobs"]

INPUTS, SHARES = 20_000, 20


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_damaged_inputs_are_read_or_refused_in_one_line(share: int, tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    for number in range(INPUTS * share // SHARES, INPUTS * (share + 1) // SHARES):
        kind, said = fuzz.outcome(number, tmp_path)
        assert kind in ("read", "refused"), f"{sys.executable} {_PATH} --again {number}: {said}"
        outcomes[kind] += 1
    assert min(outcomes["read"], outcomes["refused"]) > INPUTS // SHARES // 50


def test_every_reader_has_inputs_that_are_read_as_they_are(tmp_path: Path) -> None:
    for name, reader in fuzz.READERS.items():
        path, whole = tmp_path / reader.name, 0
        for data in reader.made:
            path.write_bytes(data)
            with suppress(FormulaError):  # a real program may have dimensions without bound, which cannot be counted
                fuzz._read(reader, path, data, 1)
                whole += 1
        assert whole, name
