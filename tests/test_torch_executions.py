"""Executions of a PyTorch trace in columns: which events belong together, and in which order."""

from collections.abc import Sequence

import numpy as np

from roofline.sources.torch_trace.executions import Execution, executions_of
from roofline.sources.torch_trace.linking import Work
from roofline.sources.torch_trace.read.columns import NONE


def work(op: list[int], launch: list[int], device: list[int]) -> Work:
    """Events that follow each other, of which only their ops, launches and devices matter."""
    times, same = np.arange(len(op)), np.zeros(len(op), np.int64)
    return Work(
        device=np.array(device),
        queue=same,
        start=times,
        end=times + 1,
        kernel=same,
        extra=same,
        launch=np.array(launch),
        op=np.array(op),
        kernels=same.reshape(-1, 1),
    )


def grouped(
    made: Work, replayed: list[bool], captured: dict[int, int] | None = None, twins: list[int] | None = None, tried: Sequence[int] = ()
) -> list[list[int]]:
    count = len(made)
    found, before = executions_of(
        *(made, np.arange(count), np.array(twins or [NONE] * count), captured or {}, np.array(replayed, dtype=bool)),
        np.isin(np.arange(count), tried),
    )
    assert [one.mark for one in found] == [one.events[0] for one in found]  # here each event is its own step
    return [one.events for one in (*before, *found)]


def test_the_events_of_an_op_on_one_device_are_an_execution_in_order_of_the_first() -> None:
    # Op 7 launches twice on device 0 and once on device 1; op 3 comes between. Launches without an op are by themselves.
    made = work(op=[7, 3, 7, 7, NONE, NONE, NONE], launch=[0, 1, 2, 3, 4, 4, 5], device=[0, 0, 0, 1, 0, 0, 0])
    assert grouped(made, [False] * 7) == [[0, 2], [1], [3], [4, 5], [6]]


def test_the_trials_of_an_op_are_an_execution_apart_from_its_own() -> None:
    made = work(op=[7, 7, 7, 7, 3], launch=[0, 1, 2, 3, 4], device=[0] * 5)
    assert grouped(made, [False] * 5, tried=[0, 2]) == [[0, 2], [1, 3], [4]]


def test_what_no_launch_was_recorded_of_is_alone_unless_it_repeats_something() -> None:
    made = work(op=[NONE, NONE, NONE, 5, 5], launch=[NONE, NONE, NONE, 0, 1], device=[0] * 5)
    assert grouped(made, [False] * 5) == [[0], [1], [2], [3, 4]]
    assert grouped(made, [False] * 5, twins=[NONE, 3, 4, NONE, NONE]) == [[1, 2], [0], [3, 4]]


def test_each_replay_of_a_graph_is_an_execution_of_what_was_captured() -> None:
    # Launches 0 and 1 replay a graph whose two events were captured from op 9; launch 2 replays one whose capture is not there,
    # of which each event is by itself, and so are those that repeat them.
    made = work(op=[4, 4, 4, 4, 4, 4], launch=[0, 0, 1, 1, 2, 2], device=[0] * 6)
    captured = {0: 9, 1: 9, 2: 9, 3: 9}
    assert grouped(made, [True] * 6, captured) == [[0, 1], [2, 3], [4], [5]]
    before = work(op=[NONE, NONE, 4, 4], launch=[NONE, NONE, 0, 0], device=[0] * 4)
    assert grouped(before, [False, False, True, True], twins=[2, 3, NONE, NONE]) == [[0], [1], [2], [3]]


def test_some_executions_and_more_after_them_keep_their_events() -> None:
    found, _ = executions_of(
        work(op=[1, 2, 1, 3], launch=[0, 1, 2, 3], device=[0] * 4), np.zeros(4, np.int64), np.full(4, NONE), {}, *[np.zeros(4, bool)] * 2
    )
    some = found.take(np.array([2, 0])).with_more([Execution(8, 5, 0, 0, whole=False, events=[4, 5])])
    assert [(one.op, one.events, one.whole) for one in some] == [(3, [3], True), (1, [0, 2], True), (8, [4, 5], False)]
    assert len(some) == 3
    assert some.events_of(1) == [0, 2]
    assert some.counts.tolist() == [1, 2, 2]
