"""Damage is told by byte, plane and line, or salvaged with a note; it never crashes, hangs or gets through unseen."""

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.errors import SourceError
from roofline.hlo.read.wire import fields
from roofline.machines.detection import machine_for
from roofline.sources import read
from roofline.sources.xspace import scan
from roofline.sources.xspace import space as opening
from roofline.sources.xspace.scan import RowsOf, TotalsOf, open_bytes, open_space, read_rows, read_totals
from roofline.workload import Recording
from xspace_profiles import Instruction, gpu, hlo, kernel, programs
from xspace_writer import Event, Line, Metadata, Plane, Ref, Unsigned, bytes_field, number_field, space, varint

DATA = Path(__file__).parent / "data"


def sample() -> bytes:
    stats = {"correlation_id": Unsigned(300), "hlo_op": Ref("dot.1"), "name": "text", "pct": 0.5}
    line = Line("Stream #14", [Event(f"kernel_{i % 3}", 1000 * i, 700, stats) for i in range(12)], timestamp_ns=14533894, id=14)
    device = Plane("/device:GPU:0", [line, Line("Stream #15", [Event("copy", 1, 1)])], {"core_count": 132})
    return space([device, Plane("/host:metadata", metadata=[Metadata("jit_f(1)", stats={"Hlo Proto": b"proto"})])], hostnames=["vm"])


def read_everything(data: bytes, salvage: bool = False) -> list[str]:
    """Opens a profile and reads all there is in it, twice; the notes."""
    with open_bytes(data, "toy.pb", salvage=salvage) as opened:
        lines = [line for plane in opened.planes for line in plane.lines]
        rows = read_rows(opened, [RowsOf(line=line, stats=("correlation_id", "hlo_op", "name", "pct")) for line in lines])
        asked = {"by": ("hlo_op", "name"), "distinct": ("correlation_id",), "sums": ("pct",), "nested": True, "intervals": True}
        tables = read_totals(opened, [TotalsOf(line=line, **asked) for line in lines])  # type: ignore[arg-type]
        for plane in opened.planes:
            assert plane.stats is not None
            assert plane.event_names is not None
            for id in plane.event_rows:
                assert plane.event(id) is not None
        for table in tables:
            assert len(table.count) == len(table.by["hlo_op"])
        return [*opened.notes, *(note for table in rows for note in table.notes)]


def test_a_file_cut_anywhere_is_told_with_plane_and_line_and_salvaged() -> None:
    whole = sample()
    assert read_everything(whole) == []
    told = set()
    seams = []  # where one field of the space ends and the next begins, a cut leaves a smaller but whole profile
    for size in range(1, len(whole)):
        try:
            assert [note for note in read_everything(whole[:size]) if "may be cut off" not in note] == []
        except SourceError as error:
            told.add(str(error).replace(f"{size:,}", "N"))
            try:
                notes = read_everything(whole[:size], salvage=True)
            except SourceError as hopeless:
                assert "not an XSpace profile" in str(hopeless)  # noqa: PT017
            else:
                assert notes
        else:
            seams.append(size)
    # One seam behind each of the two planes.
    assert len(seams) == 2
    advice = "the copy is incomplete; read the rest with --read salvage"
    assert f"toy.pb: truncated after N bytes (in plane '/device:GPU:0', line 'Stream #14'); {advice}" in told
    assert f"toy.pb: truncated after N bytes (in plane '/host:metadata'); {advice}" in told
    assert all(message.startswith("toy.pb: ") and ("truncated after N bytes" in message or "not an XSpace" in message) for message in told)


def test_salvage_keeps_the_events_before_the_cut() -> None:
    whole = sample()
    cut = whole.index(b"kernel_0") - 400  # inside the events, which come before their names
    with pytest.raises(SourceError, match="truncated after"):
        open_bytes(whole[:cut], "toy.pb")
    with open_bytes(whole[:cut], "toy.pb", salvage=True) as opened:
        (rows,) = read_rows(opened, [RowsOf(line=opened.planes[0].lines[0])])
        assert 0 < len(rows) < 12
        assert list(rows.start_ps[:2]) == [14533894000, 14533895000]
        assert opened.planes[0].event(1) is None  # the names are behind the cut
        assert len(opened.notes) == 1
        assert "truncated after" in rows.notes[0]


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4), st.booleans())
def test_flipped_bytes_give_tables_or_a_source_error(flips: list[tuple[int, int]], salvage: bool) -> None:
    data = bytearray(sample())
    for place, value in flips:
        data[place % len(data)] = value
    try:
        read_everything(bytes(data), salvage)
    except SourceError as error:
        assert str(error).startswith("toy.pb: ")  # noqa: PT017


def damaged(event: bytes, line: bytes = b"") -> bytes:
    """A profile whose one line holds one event of these bytes, and these further bytes."""
    return bytes_field(1, bytes_field(2, b"/device:X:0") + bytes_field(3, bytes_field(2, b"ops") + bytes_field(4, event) + line))


@every(
    ("data", "what"),
    [
        (damaged(number_field(3, -1)), "a negative duration or count"),
        (damaged(number_field(5, -1)), "a negative duration or count"),
        (damaged(number_field(2, 2**63 - 1) + number_field(3, 1)), "a time beyond 63 bits of picoseconds"),
        (damaged(b"\x08" + b"\xff" * 10), "a number of more than 64 bits"),
        (damaged(b"\x08\xff"), "a number runs past the end of its message"),
        (damaged(b"\x22" + varint(2**63)), "a length runs past the end of its message"),
        (damaged(b"\x0a\x01x"), "a field of the wrong wire type"),
        (damaged(b"\x00\x01"), "a field with the number 0"),
        (damaged(b"\x63"), "a field of the wrong wire type"),
        (damaged(b"", number_field(3, 9)), "a line whose timestamp follows its events"),
        (damaged(b"", b"\x22" + varint(2**40)), "a length runs past the end of its message"),
    ],
)
def test_damage_in_an_event_is_told_by_byte_plane_and_line(data: bytes, what: str) -> None:
    with pytest.raises(SourceError) as error:
        read_everything(data)
    message = str(error.value)
    assert "damaged at byte" in message
    assert message.endswith(f"(in plane '/device:X:0', line 'ops'): {what}; read the rest with --read salvage")
    assert any(what in note for note in read_everything(data, salvage=True))


def test_fields_that_nobody_knows_are_skipped_and_told() -> None:
    data = damaged(number_field(1, 4) + number_field(99, 1)) + bytes_field(7, b"new") + bytes_field(4, b"host")
    notes = read_everything(data)
    assert notes[0] == "toy.pb: 1 unknown fields skipped"
    assert notes[1] == "toy.pb: line 'ops': 1 unknown fields skipped"


def test_a_bad_plane_does_not_hide_the_next_when_salvaging() -> None:
    broken = bytes_field(1, bytes_field(2, b"broken") + b"\x1a\x7f")
    with pytest.raises(SourceError, match=r"damaged at byte .* \(in plane 'broken', line ''\)"):
        open_bytes(broken + sample(), "toy.pb")
    with open_bytes(broken + sample(), "toy.pb", salvage=True) as opened:
        assert [plane.name for plane in opened.planes] == ["broken", "/device:GPU:0", "/host:metadata"]


def test_gzip_is_unpacked_even_in_several_members(tmp_path: Path) -> None:
    whole = sample()
    packed = gzip.compress(whole[:100]) + gzip.compress(whole[100:]) + b"\0" * 7
    path = tmp_path / "host.xplane.pb.gz"
    path.write_bytes(packed)
    with open_space(path) as opened:
        assert (opened.size, opened.notes, len(opened.planes)) == (len(whole), (), 2)


def test_damaged_gzip_is_told_and_salvaged() -> None:
    packed = gzip.compress(random.Random(1).randbytes(4000))
    big = gzip.compress(space([Plane("p", [Line("l", [Event(f"k{i}", i * i) for i in range(3000)])])]))
    with pytest.raises(
        SourceError, match=r"toy: the gzip stream ends early, after .* bytes; the copy is incomplete; read the rest with --read salvage"
    ):
        open_bytes(big[: len(big) // 4], "toy")
    with open_bytes(big[: len(big) // 4], "toy", salvage=True) as opened:
        assert "the gzip stream ends early" in opened.notes[0]
        (rows,) = read_rows(opened, [RowsOf(line=opened.planes[0].lines[0])])
        assert 0 < len(rows) < 3000
        assert "unpacked bytes" in rows.notes[0]
    flipped = bytearray(packed)
    flipped[len(packed) // 2] ^= 0xFF
    flipped[-6] ^= 0xFF
    with pytest.raises(SourceError, match="the gzip stream is damaged near byte"):
        open_bytes(bytes(flipped), "toy")


def test_a_zip_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "UNPACKED_SMALL_BYTES", 10**5)
    bomb = gzip.compress(b"\n" * 10**7)
    # DEFLATE packs a repeated byte a thousandfold; a hundredfold is refused.
    with pytest.raises(SourceError, match=r"toy: decompresses to more than .* bytes, implausible for its size"):
        open_bytes(bomb, "toy")
    assert (scan.unpacked_limit(10**9), scan.unpacked_limit(10**6)) == (8 * 2**30, 10**8)


def gpu_profile() -> bytes:
    """Two ops of one program on a GPU, whose program comes first in the file."""
    body = [Instruction("x", "parameter"), Instruction("add.1", "add", ("x", "x")), Instruction("mul.1", "multiply", ("add.1", "x"))]
    events = [kernel(f"k_{place % 2}", 1000 * place, 700, hlo_op=Ref(("add.1", "mul.1")[place % 2]), program_id=7) for place in range(6)]
    return space([programs({7: hlo("jit_f", {"main": body})}), gpu(events, stats={"core_count": 132})])


def tpu_profile() -> bytes:
    """An op on each of two TPUs; in the plane of the second come first the runs of its program."""
    ops = [Event("%fusion.1 = f32[8] fusion()", 1000 * place, 700) for place in range(6)]
    runs = [Event("jit_f(7)", 3000 * place, 2700) for place in range(2)]
    lines = [Line("XLA Modules", runs), Line("XLA Ops", ops)]
    stats = {"device_type_string": "TPU v6 Lite", "peak_hbm_bw_gigabytes_per_second": 1638.0}
    return space([Plane(f"/device:TPU:{number}", lines, stats) for number in range(2)])


def salvaged(folder: Path, data: bytes) -> Recording | None:
    """What is kept of a cut profile, with a machine to compare it with; ``None`` where no device was reached."""
    path = folder / "cut.xplane.pb"
    path.write_bytes(data)
    try:
        found = read(path, salvage=True)
    except SourceError as error:
        assert "no device activity can be read before the damage" in str(error) or "not an XSpace profile" in str(error)  # noqa: PT017
        return None
    assert all(op.name for op in found.workload)
    assert any("truncated after" in note for note in found.notes)
    machine = machine_for(found.devices)
    if found.devices[0].name in ("GPU", "TPU"):
        assert "--chip" in machine.notes[-1]
    return found


def test_a_gpu_profile_cut_anywhere_keeps_the_kernels_and_the_device_it_read(tmp_path: Path) -> None:
    whole = gpu_profile()
    assert {op.name for op in read_bytes(tmp_path, whole).workload} == {"add.1", "mul.1"}
    plane = whole.index(b"/device:GPU:0")
    kept = {size: found for size in range(plane + 20, len(whole)) if (found := salvaged(tmp_path, whole[:size])) is not None}
    # In a plane the events come first, then the names of kernels, those of stats, and last what the device is.
    seen = [({op.name for op in found.workload}, found.devices[0].name) for found in kept.values()]
    stages = [({"event 1", "event 2"}, "GPU"), ({"k_0", "k_1"}, "GPU"), ({"add.1", "mul.1"}, "GPU"), ({"add.1", "mul.1"}, "NVIDIA H200")]
    assert all(stage in seen for stage in stages)
    assert all(sum(op.count for op in found.workload) == 6 for size, found in kept.items() if size > whole.index(b"k_0"))
    nameless = next(found for found in kept.values() if found.workload.ops[0].name.startswith("event"))
    assert any("/device:GPU:0: the damaged file lost the op names" in note for note in nameless.notes)
    assert not nameless.workload.ops[0].cost.is_known


def test_a_cut_tpu_keeps_the_events_it_read_and_the_steps_of_the_others(tmp_path: Path) -> None:
    whole = tpu_profile()
    first = whole.rindex(b"/device:TPU:1")
    alone = {size: found for size in range(20, first - 6) if (found := salvaged(tmp_path, whole[:size])) is not None}
    assert {found.devices[0].name for found in alone.values()} == {"TPU", "TPU v6e"}
    assert {op.name for found in alone.values() for op in found.workload} == {"event 2", "fusion.1"}
    both = [found for size in range(first + 30, len(whole)) if (found := salvaged(tmp_path, whole[:size])) is not None]
    assert {len(found.devices) for found in both} == {1, 2}
    assert all([step.name for step in found.steps] == ["jit_f", "jit_f"] for found in both)


def read_bytes(folder: Path, data: bytes) -> Recording:
    path = folder / "whole.xplane.pb"
    path.write_bytes(data)
    return read(path)


def test_a_profile_cut_between_two_planes_is_noticed() -> None:
    # Each part of such a file is whole. The profiler writes its own plane and the host's name last.
    whole = (DATA / "h200" / "jax_fusion.xplane.pb").read_bytes()
    ends = [end for number, _, end in top_level(whole) if number == 1]
    assert len(ends) == 5
    for end in ends[1:4]:
        with pytest.raises(
            SourceError, match=r"cut: ends after the plane '.*', without what the profiler writes last; the copy is incomplete"
        ):
            open_bytes(whole[:end], "cut")
        assert "the copy is incomplete" in open_bytes(whole[:end], "cut", salvage=True).notes[0]
    assert open_bytes(whole[: ends[4]], "cut").notes == ()
    older = gzip.decompress((DATA / "cpu" / "jax_one.xplane.pb.gz").read_bytes())
    ends = [end for number, _, end in top_level(older) if number == 1]
    assert "the file may be cut off" in open_bytes(older[: ends[1]], "cut").notes[0]
    assert open_bytes(older, "whole").notes == ()
    devices = space([Plane(f"/device:TPU:{number}", [Line("XLA Ops", [Event("a", 0, 5)])]) for number in range(4)])
    task = space([Plane("Task Environment")])
    assert open_bytes(devices + task, "whole").notes == ()
    for _, _, end in top_level(devices):
        assert "the file may be cut off" in open_bytes(devices[:end], "cut").notes[0]


def top_level(data: bytes) -> list[tuple[int, int, int]]:
    """Number, begin and end of each field of a message that holds bytes."""
    return [(number, begin, end) for number, _, begin, end in fields(data)]
