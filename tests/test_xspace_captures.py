"""Real captures, against a plain decoder, the figures known of them, and XProf."""

import json
from collections import Counter
from pathlib import Path

import pytest

from roofline.sources.xspace.recognition import sniff
from roofline.sources.xspace.scan import Pair, RowsOf, Steps, TotalsOf, open_space, read_rows, read_totals

DATA = Path(__file__).parents[2] / "shared" / "data"
H200 = sorted((DATA / "h200").glob("*.xplane.pb"))
TPU = DATA / "third_party" / "tpu_v6e_psum.xplane.pb"

with_h200 = pytest.mark.skipif(not H200, reason="the H200 captures are not here")
with_tpu = pytest.mark.skipif(not TPU.exists(), reason="the TPU capture is not here")


@pytest.mark.parametrize("path", [*H200, TPU], ids=lambda path: path.name)
def test_real_profiles_are_known_by_their_first_bytes(path: Path) -> None:
    if not path.exists():
        pytest.skip("the capture is not here")
    with path.open("rb") as file:
        assert sniff(file.read(512))


def decode(data: bytes) -> list[tuple[int, bytes | int]]:
    """The fields of a message, the slow and plain way: a second opinion."""
    at, out = 0, []

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            out.append((tag >> 3, number()))
            continue
        length = 8 if tag & 7 == 1 else number()
        out.append((tag >> 3, data[at : at + length]))
        at += length
    return out


def slow_lines(data: bytes) -> list[list[tuple[int, int, int, dict[int, tuple[int, bytes | int]]]]]:
    """Every line's events as (metadata id, start, duration, {stat id: (field, value)})."""
    lines = []
    for plane in (bytes(value) for number, value in decode(data) if number == 1):  # type: ignore[arg-type]
        for line in (bytes(value) for number, value in decode(plane) if number == 3):  # type: ignore[arg-type]
            parts = decode(line)
            begin = 1000 * next((int(value) for number, value in parts if number == 3), 0)
            events = []
            for event in (decode(bytes(value)) for number, value in parts if number == 4):  # type: ignore[arg-type]
                plain = {number: int(value) for number, value in event if number != 4}
                stats = [decode(bytes(value)) for number, value in event if number == 4]  # type: ignore[arg-type]
                found = {int(stat[0][1]): stat[1] for stat in stats}
                events.append((plain.get(1, 0), begin + plain.get(2, 0), plain.get(3, 0), found))
            lines.append(events)
    return lines


@pytest.mark.parametrize("path", [*H200, TPU], ids=lambda path: path.name)
def test_real_profiles_read_as_a_plain_decoder_reads_them(path: Path) -> None:
    if not path.exists():
        pytest.skip("the capture is not here")
    names = ("correlation_id", "hlo_op", "_c", "fragmentation", "device_offset_ps", "context_id", "program_id")
    with open_space(path) as opened:
        lines = [line for plane in opened.planes for line in plane.lines]
        tables = read_rows(opened, [RowsOf(line=line, stats=names) for line in lines])
        totals = read_totals(opened, [TotalsOf(line=line) for line in lines])
    for slow, rows, table in zip(slow_lines(path.read_bytes()), tables, totals, strict=True):
        assert list(zip(rows.metadata_id, rows.start_ps, rows.duration_ps, strict=True)) == [event[:3] for event in slow]
        assert sum(table.count) == len(slow)
        assert sum(table.time_ps) == sum(event[2] for event in slow)
        for name in names:
            column, ids = rows.stats[name], opened.planes[rows.line.plane].stat_ids.get(name, ())
            for row, event in enumerate(slow):
                stat = next((event[3][id] for id in ids if id in event[3]), None)
                if stat is None:
                    assert column[row] is None
                elif stat[0] in (3, 4, 7):
                    assert column.values[row] % 2**64 == stat[1]
                elif stat[0] == 5:
                    assert str(column[row]).encode() == stat[1]


@with_h200
def test_the_busy_time_of_the_training_capture_is_its_union() -> None:
    path = next(path for path in H200 if path.name.startswith("jax_train"))
    with open_space(path) as opened:
        device = next(plane for plane in opened.planes if plane.name == "/device:GPU:0")
        keys = ("program_id", "hlo_op", "cuda_graph_id", "cuda_graph_node_id")
        (totals,) = read_totals(opened, [TotalsOf(line=device.lines[0], by=keys, distinct=("correlation_id",))])
    # 1,740 device events: 6 launches of a graph of 290 nodes; 167.93 ms busy, durations sum to 168.34.
    assert (totals.events, len(totals), set(totals.count), set(totals.distinct["correlation_id"])) == (1740, 290, {6}, {6})
    assert round(totals.busy_ps / 1e9, 2) == 167.93
    assert round(sum(totals.time_ps) / 1e9, 2) == 168.34
    assert sum(totals.self_ps) == totals.busy_ps
    # 725 overlaps within launches take what the two figures differ by.
    assert sum(totals.overlaps.count) == 725
    assert sum(totals.time_ps) - totals.busy_ps == sum(totals.overlaps.time_ps)


@with_h200
def test_graph_nodes_are_numbered_from_the_graphs_id() -> None:
    path = next(path for path in H200 if path.name.startswith("jax_scan"))
    with open_space(path) as opened:
        device = next(plane for plane in opened.planes if plane.name == "/device:GPU:0")
        (totals,) = read_totals(opened, [TotalsOf(line=device.lines[0], by=("cuda_graph_id", "cuda_graph_node_id"))])
    graph, node = totals.by["cuda_graph_id"], totals.by["cuda_graph_node_id"]
    nodes = sorted(int(node[row] or 0) - (int(graph[row] or 0) << 32) for row in range(len(totals)) if graph[row] is not None)
    # Eight slices come first as children, so the smallest index is 8; 28 events a launch.
    assert (nodes[0], len(set(nodes))) == (8, 28)


@with_tpu
def test_tpu_ops_have_xprofs_occurrences_and_times() -> None:
    table = json.loads(TPU.with_name("tpu_v6e_psum.roofline_model.json").read_text())[0]
    ids = [column["id"] for column in table["cols"]]
    rows = [dict(zip(ids, (cell.get("v") for cell in row["c"]), strict=True)) for row in table["rows"]]
    theirs = {row["operation"]: row for row in rows if row["step"] == "Total" and row["include_infeed_outfeed"] and row["rank"]}
    found: dict[str, list[int]] = {}
    with open_space(TPU) as opened:
        devices = [plane for plane in opened.planes if plane.name.startswith("/device:TPU:")]
        lines = [line for plane in devices for line in plane.lines if line.name == "XLA Ops"]
        for totals in read_totals(opened, [TotalsOf(line=line, device_clock=True, nested=True) for line in lines]):
            plane = opened.plane_of(totals.line)
            assert sum(totals.self_ps) == totals.busy_ps
            for row, id in enumerate(totals.metadata_id):
                event = plane.event(id)
                assert event is not None
                ours = found.setdefault(event.display_name, [0, 0, 0])
                for place, column in enumerate((totals.count, totals.time_ps, totals.self_ps)):
                    ours[place] += column[row]
    assert set(theirs) <= set(found)
    for name, row in theirs.items():
        count, time_ps, self_ps = found[name]
        assert count == row["occurrences"]
        assert time_ps / 1e6 == pytest.approx(row["total_time"], rel=1e-6)
        assert self_ps / 1e6 == pytest.approx(row["total_self_time"], rel=1e-6)


@with_tpu
def test_every_tpu_op_falls_into_a_run_of_its_module() -> None:
    with open_space(TPU) as opened:
        plane = next(plane for plane in opened.planes if plane.name == "/device:TPU:0")
        lines = {line.name: line for line in plane.lines}
        (runs,) = read_rows(opened, [RowsOf(line=lines["XLA Modules"])])
        spans = zip(runs.start_ps, runs.duration_ps, strict=True)
        steps = Steps.of((start, start + duration, run) for run, (start, duration) in enumerate(spans))
        asked = TotalsOf(line=lines["XLA Ops"], device_clock=True, nested=True, steps=steps)
        (totals,) = read_totals(opened, [asked])
    # 100 runs of 15 ops each, one op in each of three runs and of one more.
    assert sum(totals.cells.count) == totals.events == 1504
    by_run = Counter(totals.cells.label)
    assert Counter(by_run.values()) == {15: 100, 1: 4}
    assert set(totals.cells.count) == {1}


@with_tpu
def test_tpu_copies_share_the_pcie_link() -> None:
    bytes_each = 5368709120
    bytes_moved, seconds = [0, 0], [0.0, 0.0]
    with open_space(TPU) as opened:
        for plane in opened.planes:
            if not plane.name.startswith("/device:TPU:"):
                continue
            line = next(line for line in plane.lines if line.name == "XLA Ops")
            events = {event.display_name: event for id in plane.event_rows if (event := plane.event(id)) and event.stat("symbol_id")}
            starts = [name for name in events if name.startswith("copy-start")]
            # The first result is where a copy goes; memory space 5 is the host's.
            to_host = {name for name in starts if "S(5)" in events[name].name.split("{")[1].split("}")[0]}
            pairs = tuple(
                Pair(start=events[name].id, done=events[name.replace("start", "done")].id, group=name in to_host, weight=bytes_each)
                for name in starts
            )
            (totals,) = read_totals(opened, [TotalsOf(line=line, device_clock=True, nested=True, pairs=pairs)])
            found = totals.pairs
            assert found is not None
            assert (list(found.count), found.unpaired) == ([100] * 6, 0)
            for row, pair in enumerate(found.pair):
                bytes_moved[pairs[pair].group] += found.count[row] * bytes_each
                seconds[pairs[pair].group] += found.share_ps[row] / 1e12
    # GiB/s from the host and back, as a plain union of the intervals in each direction gives them.
    assert [round(moved / time / 2**30, 2) for moved, time in zip(bytes_moved, seconds, strict=True)] == [25.26, 25.55]
