import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.render.boxes import Box, Disc, Scene
from roofline.render.labels import Label, place_labels, slide, spread, swarm

WIDTH, HEIGHT = 300.0, 200.0
places = st.tuples(st.floats(10, WIDTH - 10), st.floats(10, HEIGHT - 10))
boxes = st.builds(
    Box, st.floats(0, 100), st.floats(0, 100), st.floats(1, 60), st.floats(1, 60), st.sampled_from([0.0, 0.3, math.pi / 4, 1.2, -0.5])
)


def _labels(spots: list[tuple[float, float]], text: str) -> list[Label]:
    lines = text.split("\n")
    size = 4.8 * max(map(len, lines)), 10.0 * len(lines)  # about that of 8-point letters
    return [Label(text, x, y, size, 4.0) for x, y in spots]


@given(st.lists(places, max_size=25), st.sampled_from(["op", "matmul 600\n200 FLOP/B", "a_rather_long_kernel_name_v2"]))
def test_labels_keep_off_marks_each_other_and_the_edge(spots: list[tuple[float, float]], text: str) -> None:
    scene = Scene(width=WIDTH, height=HEIGHT, discs=tuple(Disc(x, y, 4.0) for x, y in spots), lines=(((0, 0), (WIDTH, HEIGHT)),))
    layout = place_labels(_labels(spots, text), scene)
    placed = [place.box for place in layout.placed]
    assert sorted([place.index for place in layout.placed] + list(layout.dropped)) == list(range(len(spots)))
    assert [place.number for place in layout.placed if place.number] == list(range(1, len(layout.key) + 1))
    for index, box in enumerate(placed):
        assert not any(box.overlaps(other) for other in placed[index + 1 :])
        assert all(box.distance(x, y) >= 4.0 for x, y in spots)
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in box.corners)
        for place in layout.placed:
            assert place.leader is None or place.box == box or not box.crossed_by(place.leader)


def test_the_same_input_gives_the_same_layout() -> None:
    spots = [(50.0 + 3 * index, 100.0) for index in range(12)]
    scene = Scene(width=WIDTH, height=HEIGHT, discs=tuple(Disc(x, y, 4.0) for x, y in spots))
    assert place_labels(_labels(spots, "kernel"), scene) == place_labels(_labels(spots, "kernel"), scene)


def test_a_lone_label_stands_beside_its_mark_without_a_leader() -> None:
    layout = place_labels(_labels([(100.0, 100.0)], "op"), Scene(width=WIDTH, height=HEIGHT, discs=(Disc(100, 100, 4),)))
    (place,) = layout.placed
    assert place.leader is None
    assert place.box.x > 100
    assert place.box.y == 100


def test_a_label_keeps_off_a_line_where_it_can() -> None:
    # The line runs through the mark to the right, where the label would stand otherwise.
    scene = Scene(width=WIDTH, height=HEIGHT, discs=(Disc(100, 100, 4),), lines=(((100.0, 100.0), (WIDTH, 100.0)),))
    (place,) = place_labels(_labels([(100.0, 100.0)], "op"), scene).placed
    assert not scene.crosses_line(place.box)


def test_a_label_that_moves_away_gets_a_leader_from_the_edge_of_its_mark() -> None:
    around = tuple(Disc(100 + 18 * dx, 100 + 18 * dy, 8) for dx in (-1, 0, 1) for dy in (-1, 0, 1))
    (place,) = place_labels([Label("moved", 100, 100, (40, 10), 8)], Scene(width=WIDTH, height=HEIGHT, discs=around)).placed
    assert place.leader is not None
    assert math.dist(place.leader[0], (100, 100)) == pytest.approx(8)
    assert place.box.distance(*place.leader[1]) == pytest.approx(0)


def test_without_room_a_label_becomes_a_number_and_then_is_dropped() -> None:
    # 60 x 30 points hold no text of 80; a digit of 6 x 10 fits beside the mark once or twice.
    scene = Scene(width=60, height=30, discs=(Disc(30, 15, 4),))
    wide = Label("x", 30, 15, (80, 10), 4)
    layout = place_labels([wide] * 30, scene, (6, 10), first=4)
    assert layout.key
    assert layout.dropped
    assert [place.number for place in layout.placed] == [4 + index for index in range(len(layout.key))]


@given(boxes, boxes)
def test_boxes_overlap_both_ways_and_with_their_own_corners(one: Box, other: Box) -> None:
    assert one.overlaps(other) == other.overlaps(one)
    if any(other.grown(-0.01).distance(*corner) == 0 for corner in one.corners):
        assert one.overlaps(other)


@given(boxes, st.floats(0, 100), st.floats(0, 100))
def test_a_line_from_inside_a_box_crosses_it(box: Box, x: float, y: float) -> None:
    assert box.crossed_by(((box.x, box.y), (x + 500, y + 500)))
    assert not box.crossed_by(((x + 300, y), (x + 300, y + 50)))


def test_words_along_a_line_are_parallel_and_beside_it() -> None:
    scene = Scene(width=WIDTH, height=HEIGHT, lines=(((0.0, 0.0), (200.0, 200.0)),))
    box = slide(((0.0, 0.0), (200.0, 200.0)), (60, 10), scene, sides=(1,))
    assert box is not None
    assert box.angle == pytest.approx(math.pi / 4)
    # Half its height and a gap of 3 points away from the line.
    assert (box.y - box.x) / math.sqrt(2) == pytest.approx(8)
    assert not scene.crosses_line(box)


def test_words_that_would_cross_another_line_are_not_written() -> None:
    twins = (((0.0, 10.0), (200.0, 10.0)), ((0.0, 16.0), (200.0, 16.0)), ((0.0, 4.0), (200.0, 4.0)))
    assert slide(twins[0], (60, 10), Scene(width=WIDTH, height=HEIGHT, lines=twins)) is None
    assert slide(((0.0, 0.0), (30.0, 0.0)), (60, 10), Scene(width=WIDTH, height=HEIGHT)) is None


@given(st.lists(st.floats(0, 200), min_size=1, max_size=12))
def test_a_column_keeps_its_order_and_nothing_overlaps(wanted: list[float]) -> None:
    centres = spread(wanted, [10.0] * len(wanted), 0.0, 200.0)
    ordered = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
    column = [centres[index] for index in ordered]
    assert all(after - before >= 10 - 1e-6 for before, after in itertools.pairwise(column))
    assert min(column) >= 5 - 1e-6
    assert max(column) <= 195 + 1e-6


def test_a_column_with_room_moves_nothing() -> None:
    assert spread([10.0, 50.0, 30.0], [10.0] * 3, 0.0, 100.0) == (10.0, 50.0, 30.0)


@given(st.lists(st.floats(0, 300), max_size=15))
def test_a_swarm_stays_within_its_width(heights: list[float]) -> None:
    shifts = swarm(heights, [3.0] * len(heights), 30.0)
    assert all(abs(shift) <= 15 for shift in shifts)


def test_a_swarm_moves_only_what_touches() -> None:
    # Two discs of radius 3 at one height stand 6 apart; a third far above stays in the middle.
    assert swarm([10, 10, 50], [3, 3, 3], 30) == (0, 6, 0)
