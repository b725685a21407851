"""Work on many configurations side by side, in workers: a compiler may crash, or fill the memory, without the others."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, TypeVar

from ..sources.cores import cores
from ..workers import Worker, WorkerDied

Result = TypeVar("Result")
Progress = Callable[[int, int], None]


def side_by_side(
    function: Callable[..., Result], jobs: Sequence[tuple[Any, ...]], died: Callable[[str], Result], progress: Progress | None = None
) -> list[Result]:
    """What the function returns for each job, in order; ``died`` makes the result of a job whose worker ended."""
    waiting: SimpleQueue[int] = SimpleQueue()
    for number in range(len(jobs)):
        waiting.put(number)
    found: dict[int, Result] = {}
    lock = Lock()

    def work() -> None:
        with ExitStack() as stack:
            worker = stack.enter_context(Worker())
            while True:
                try:
                    number = waiting.get_nowait()
                except Empty:
                    return
                try:
                    result = worker.call(function, *jobs[number])
                except WorkerDied as error:
                    result, worker = died(str(error)), stack.enter_context(Worker())
                with lock:
                    found[number] = result
                    if progress:
                        progress(len(found), len(jobs))

    with ThreadPoolExecutor(max(1, min(cores(), len(jobs)))) as threads:
        for thread in [threads.submit(work) for _ in range(max(1, min(cores(), len(jobs))))]:
            thread.result()
    return [found[number] for number in range(len(jobs))]
