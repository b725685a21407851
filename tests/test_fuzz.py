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


def test_several_workers_read_every_number_once_and_go_on_where_they_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = """
import json, os, sys, time
_, folder, first, end = sys.argv
for number in range(int(first), int(end)):
    if number == 123: os._exit(9)
    print(json.dumps(["odd" if number == 50 else "read", "why"]), flush=True)
    time.sleep(0.001)
"""
    monkeypatch.setattr(fuzz_jobs, "RANGE", 30)
    monkeypatch.setattr(fuzz_jobs, "LISTEN_S", 0.01)
    path = tmp_path / "state.json"
    for seconds in (1.5, 250):
        state = fuzz_jobs.State(0, 200, path)
        fuzz_jobs.run(state, [sys.executable, "-c", worker], str, 4, seconds)
    assert (state.left, state.taken) == ([], [])
    assert state.outcomes == {"read": 198, "odd": 1, "crash": 1}
    assert [one[:3] for one in sorted(state.failures)] == [(50, "50", "odd"), (123, "123", "crash")]
    assert fuzz_jobs.State(0, 200, path).failures == state.failures


def test_an_input_is_made_from_its_number_alone() -> None:
    assert [fuzz.made(number) for number in range(50)] == [fuzz.made(number) for number in range(50)]
    assert {fuzz.made(number)[0] for number in range(1200)} == {*fuzz.READERS}
