"""Workers of `fuzz.py`: each reads a range of inputs in a process of its own; one state says what all found and what is left."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

LONGEST_S = 5.0
RANGE = 20_000  # inputs that one process reads, unless one of them ends it
LISTEN_S = 0.2  # between two looks at what a worker said
SAVE_S = 5.0  # between two writes of the state
FINE = ("read", "refused", "skipped")
Range = list[int]  # the first number and the one after the last


class State:
    """What was found, and the ranges of numbers that are left, those in work included."""

    def __init__(self, first: int, count: int, path: Path | None) -> None:
        self.path, self.lock = path, threading.Lock()
        self.outcomes: Counter[str] = Counter()
        self.failures: list[tuple[int, str, str, str]] = []
        self.left: list[Range] = [[first, first + count]]
        self.taken: list[Range] = []
        if path is not None and path.exists():
            known = json.loads(path.read_text())
            self.outcomes, self.failures = Counter(known["outcomes"]), [(*one,) for one in known["failures"]]
            self.left = known["left"]

    def take(self, jobs: int) -> Range | None:
        """A range for one of the jobs to work on, which removes what it has done from its front; ``None`` if nothing is left."""
        with self.lock:
            if not self.left:
                return None
            first, end = self.left.pop(0)
            size = min(RANGE, max(1, (end - first) // jobs))
            if first + size < end:
                self.left.insert(0, [first + size, end])
            self.taken.append([first, first + size])
            return self.taken[-1]

    def give_back(self, numbers: Range) -> None:
        """Leaves the rest of a range to others."""
        with self.lock:
            self.taken = [one for one in self.taken if one is not numbers]
            if numbers[0] < numbers[1]:
                self.left.insert(0, numbers)

    def found(self, numbers: Range, reader: Callable[[int], str], kind: str, said: str = "") -> None:
        """Adds how the first input of a range ended."""
        with self.lock:
            number = numbers[0]
            numbers[0] += 1
            self.outcomes[kind] += 1
            if kind in FINE:
                return
            self.failures.append((number, reader(number), kind, said))
            print(f"{number} ({reader(number)}): {kind}: {said.strip().splitlines()[-1] if said else ''}", flush=True)

    def save(self) -> None:
        """Writes the state, if there is a file for it."""
        if self.path is None:
            return
        with self.lock:
            left = [one for one in (*self.taken, *self.left) if one[0] < one[1]]
            text = json.dumps({"left": left, "outcomes": self.outcomes, "failures": self.failures})
        beside = self.path.with_name(self.path.name + ".part")
        beside.write_text(text)
        beside.replace(self.path)


def run(state: State, words: list[str], reader: Callable[[int], str], jobs: int, seconds: float) -> None:
    """Lets so many workers read what is left, for so many seconds at most; each is started as ``words`` with its range behind them."""
    stop = threading.Event()

    def job() -> None:
        while not stop.is_set() and (numbers := state.take(jobs)) is not None:
            try:
                watch(numbers, state, words, reader, stop)
            finally:
                state.give_back(numbers)

    threads = [threading.Thread(target=job) for _ in range(jobs)]
    until = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    try:
        saved = time.monotonic()
        while any(thread.is_alive() for thread in threads) and time.monotonic() < until:
            time.sleep(0.1)
            if time.monotonic() - saved > SAVE_S:
                state.save()
                saved = time.monotonic()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        state.save()


def watch(numbers: Range, state: State, words: list[str], reader: Callable[[int], str], stop: threading.Event) -> None:
    """Runs one worker, until its range is done, an input ends it or the run stops."""
    memory = Path("/dev/shm")  # opening a file on a disk takes longer than to read it
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        process = subprocess.Popen([*words, folder, *map(str, numbers)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            if _listen(process, numbers, state, reader, stop):
                state.found(numbers, reader, "hang")
                return
        finally:
            process.kill()
            status = process.wait()
        if status and numbers[0] < numbers[1] and not stop.is_set():
            state.found(numbers, reader, "crash", f"status {status}")


def _listen(process: subprocess.Popen[bytes], numbers: Range, state: State, reader: Callable[[int], str], stop: threading.Event) -> bool:
    """Takes down what a worker says, until it ends, the run stops or an input takes too long, which is answered with yes."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    rest, patience_s, used_s, heard = b"", 12 * LONGEST_S, 0.0, time.monotonic()  # starting takes a while
    with process.stdout as said:
        while not stop.wait(LISTEN_S):
            piece = said.read()
            if piece == b"":
                process.wait()
                return False
            if piece is None:  # nothing new; is it hanging, or is the computer busy with others?
                if time.monotonic() - heard > patience_s and cpu_s(process.pid) - used_s > patience_s / 4:
                    return True
                continue
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                state.found(numbers, reader, *json.loads(line))
            patience_s, used_s, heard = 6 * LONGEST_S, cpu_s(process.pid), time.monotonic()
    return False


def cpu_s(process: int) -> float:
    """The seconds of a processor that a process has had; where the system does not tell, as many as one may wish."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("inf")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tell(kind: str, said: str) -> None:
    """What a worker says about each of its inputs, in their order."""
    sys.stdout.write(json.dumps([kind, said if kind not in FINE else ""]) + "\n")
    sys.stdout.flush()
