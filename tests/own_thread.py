"""A thread of its own for what starts an event loop: a browser of other tests may keep one running in this thread."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def in_own_thread(work: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()
