"""Slices: their axes, their names, and the collectives on them."""

from fractions import Fraction

import pytest

from every import every
from roofline.errors import MachineError
from roofline.formulas.slices import Plan, Span, slice_ledger
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.topology import Axis, Topology

LINE, RING = Axis(4), Axis(4, wraps=True)
GRID, TORUS = Span((LINE, LINE)), Span((RING, RING, RING))
MB = 10**6


@pytest.mark.parametrize(
    ("name", "sides", "rings", "devices"),
    [
        # 2D pods wrap only along a whole side of 16 chips, 3D ones wherever whole cubes of 4 meet.
        ("v6e:4x4", (4, 4), (False, False), 16),
        ("v6e:16x16", (16, 16), (True, True), 256),
        ("v5e:8x16", (8, 16), (False, True), 128),
        ("v5e:2x2", (2, 2), (False, False), 4),
        ("v5p:4x4x4", (4, 4, 4), (True, True, True), 64),
        ("v4:2x2x4", (2, 2, 4), (False, False, True), 16),
        ("v3:8x8", (8, 8), (False, False), 128),  # two devices a chip
        ("v7x:2x2x1", (2, 2, 1), (False, False, False), 8),
        # Names by size count TensorCores: two of a v4, v5p and v7x chip, one of a v5e and v6e chip.
        ("v5e-16", (4, 4), (False, False), 16),
        ("v5litepod-256", (16, 16), (True, True), 256),
        ("v6e-8", (2, 4), (False, False), 8),
        ("v5p-128", (4, 4, 4), (True, True, True), 64),
        ("v5p-8", (2, 2, 1), (False, False, False), 4),
        ("v4-128", (4, 4, 4), (True, True, True), 64),
        ("tpu7x-128", (4, 4, 4), (True, True, True), 128),
        ("v5p-1536", (8, 8, 12), (True, True, True), 768),
        ("v3-8", (2, 2), (False, False), 8),  # one board, not one chip
    ],
)
def test_a_slice_has_axes_that_are_rings_or_lines(name: str, sides: tuple[int, ...], rings: tuple[bool, ...], devices: int) -> None:
    topology = load(name).topology
    assert topology is not None
    assert tuple(axis.size for axis in topology.axes) == sides
    assert tuple(axis.is_ring for axis in topology.axes) == rings
    assert topology.devices == devices


@every(("devices", "sides"), [(16, (4, 4)), (2**62, None), (0, None), (-8, None)])
def test_a_count_of_devices_that_no_slice_has_is_none_at_once(devices: int, sides: tuple[int, ...] | None) -> None:
    torus = load("v6e").torus
    assert torus is not None
    assert torus.usual(devices) == sides, "2^62 would take two thousand million divisions"


def test_the_figures_of_a_slice_are_those_of_one_chip() -> None:
    chip, part = load("v6e"), load("v6e:4x4")
    assert part.name == "tpu-v6e:4x4"
    assert (part.ceilings, part.capacities) == (chip.ceilings, chip.capacities)
    assert "16 chips" in part.title
    assert load(part.name) == part


def test_a_slice_is_predicted_by_the_calibration_of_its_chip() -> None:
    for chip, part in (("v6e", "v6e:4x4"), ("v7x", "v7x:2x2x1/device")):
        assert load(part).chip_name == load(chip).name
        assert calibration_for(load(part)) == calibration_for(load(chip))


def test_a_device_of_a_slice_of_two_devices_a_chip_has_half_of_the_chip() -> None:
    device = load("v7x:2x2x1/device")
    assert (device.name, device.rate("hbm")) == ("tpu-v7x:2x2x1/device", load("v7x").rate("hbm") / 2)
    assert device.topology == load("v7x:2x2x1").topology


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v6e:4x4x4", "2 axes, not 3; write it like v6e:4x4"),
        ("v5p:4x4", "3 axes, not 2; write it like v5p:4x4x4"),
        ("v6e:16x32", "its largest slice is 16x16"),
        ("v6e:0x4", "one chip or more"),
        ("v6e:4xfour", "'4xfour' are not the sides"),
        ("v6e-7", "no slice of tpu-v6e has 7 TensorCores"),
        ("v5p-3", "3 TensorCores, 2 a chip"),
        ("h100:4x4", "slices of h100-sxm are not known"),
    ],
)
def test_a_slice_that_does_not_exist_is_refused_with_one_that_does(name: str, message: str) -> None:
    with pytest.raises(MachineError, match=message):
        load(name)


def moved(kind: str, span: Span, devices: int, plan: Plan | None = None) -> float:
    return float(slice_ledger(kind, MB, devices, span, plan, "ici").cost["ici"] or 0) / MB


def cut_of_line(size: int, kind: str) -> Fraction:
    """What the busiest link of a line must carry in one direction, by counting what each side needs of the other."""
    left = range(1, size)  # chips on one side of each link
    if kind == "all-reduce":  # the sum of one side goes to the other, and the whole sum comes back over the same link, the other way
        return Fraction(1)
    if kind == "all-to-all":
        return max(Fraction(part * (size - part), size) for part in left)
    return max(Fraction(part, size) for part in left)  # the shards of one side


@every("kind", ["reduce-scatter", "all-reduce", "all-to-all"])
@every("size", range(2, 9))
def test_a_line_carries_what_the_chips_on_either_side_of_a_link_need(kind: str, size: int) -> None:
    assert moved(kind, Span((Axis(size),)), size) == pytest.approx(float(cut_of_line(size, kind)))


def test_an_axis_of_4_takes_twice_as_long_to_gather_over_a_line_and_a_third_longer_to_reduce() -> None:
    line, ring = Span((LINE,)), Span((RING,))
    assert moved("all-gather", line, 4) / moved("all-gather", ring, 4) == 2  # 3/4 of the result against 3/8
    assert moved("all-reduce", line, 4) / moved("all-reduce", ring, 4) == pytest.approx(4 / 3)  # the payload against 3/4 of it


@every(
    ("kind", "span", "share"),
    [
        # A corner of a 4x4 grid has two links for the other 15/16; 24 links carry 2 x 15 messages of an all-reduce, both ways.
        ("reduce-scatter", GRID, 15 / 16 / 2),
        ("all-reduce", GRID, 2 * 15 / 48),
        ("all-to-all", GRID, 1.0),
        # A torus of 4x4x4 has six links a chip, all alike.
        ("reduce-scatter", TORUS, 63 / 64 / 6),
        ("all-reduce", TORUS, 2 * 63 / 64 / 6),
        ("all-to-all", TORUS, 0.5),
        # A ring of 16 by a line of 4: the end chips of the line have three links; 48 + 64 links both ways.
        ("reduce-scatter", Span((LINE, Axis(16, wraps=True))), 63 / 64 / 3),
        ("all-reduce", Span((LINE, Axis(16, wraps=True))), 2 * 63 / 224),
    ],
)
def test_a_group_of_several_axes_uses_all_their_links(kind: str, span: Span, share: float) -> None:
    assert moved(kind, span, span.chips) == pytest.approx(share)


def test_the_links_that_a_compiler_uses_bound_a_collective_where_they_are_fewer() -> None:
    # One ring through 16x16 chips, both ways, against four links of each chip.
    pod = Span((Axis(16, wraps=True), Axis(16, wraps=True)))
    ledger = slice_ledger("all-gather", MB, 256, pod, Plan("1DAllGather", 2), "ici")
    assert float(ledger.cost["ici"] or 0) == pytest.approx(255 * MB / 2)
    assert any("all links of these axes would carry 25%" in note for note in ledger.notes)
    # More colours than links do not make a line of 4 faster.
    assert moved("all-reduce", Span((LINE,)), 4, Plan("UniDirection1DRingStrategy", 2, (4,))) == 1


def test_both_devices_of_a_chip_share_its_links() -> None:
    line = (Axis(2), Axis(2))
    together, apart = Span(line, inside=2), Span(line, inside=1, sharing=2)
    # 8 devices gather 8 MB: 3/4 of it comes from other chips over two links. Two groups of 4 gather 4 MB each over the same links.
    assert moved("all-gather", together, 8) == pytest.approx(8 * 3 / 8)
    assert moved("all-gather", apart, 4) == pytest.approx(2 * 4 * 3 / 8)
    assert moved("all-reduce", apart, 4) == 2 * moved("all-reduce", together, 8)
    assert moved("all-to-all", apart, 4) == moved("all-to-all", together, 8)


def test_a_topology_is_written_by_its_sides() -> None:
    assert str(Topology((LINE, Axis(2), Axis(1)))) == "4x2x1"
