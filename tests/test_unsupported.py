"""Files that are not read are told apart, so that the error says what they are."""

import gzip
import json
from pathlib import Path

import pytest

from roofline.errors import SourceError
from roofline.sources import read

EVENTS = {"traceEvents": [{"name": "k", "ph": "X", "ts": 1, "dur": 2, "pid": 0, "tid": 0, "cat": "kernel"}]}


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("chrome.json", json.dumps(EVENTS).encode(), "a Chrome trace,"),
        ("chrome.json", json.dumps(EVENTS["traceEvents"]).encode(), "a Chrome trace,"),
        ("host.trace.json", json.dumps(EVENTS).encode(), "a Chrome trace of a JAX or TensorFlow profile"),
        ("host_1.2.pt.trace.json", json.dumps(EVENTS).encode(), "a Chrome trace, .* record with torch.profiler"),
        ("t.pftrace", b"\x0a\x04\x08\x01\x10\x02", "a Perfetto trace"),
        ("run.nsys-rep", b"\x01\x02", "an Nsight Systems report"),
        (
            "train.py",
            b"import jax, time\n",
            "a Python program, which roofline does not read; profile it with: roofline capture -o run -- python FILE",
        ),
        ("run.sqlite", b"SQLite format 3\0", "an SQLite database"),
        (
            "events.out.tfevents.1.host",
            b"\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09\0\0\xc0\x00\x1a\x0dbrain.Event:2",
            "a TensorBoard event file",
        ),
        ("memory.pickle", b"\x80\x04\x95\0", "a Python pickle"),
        ("x.json.zst", b"\x28\xb5\x2f\xfd\x04\0abc", "packed by Zstandard, which roofline does not read; unpack it with: zstd -d FILE"),
        ("host.xplane.pb.xz", b"\xfd7zXZ\0\0\x04", "packed by xz"),
        ("ops.csv.bz2", b"BZh91AY&SY", "packed by bzip2"),
        ("ops.csv.lz4", b"\x04\x22\x4d\x18", "packed by LZ4"),
        ("f.hlo.txtpb", b'# a comment\nhlo_module {\n  name: "f"\n', "an HLO program as a text protobuf.* protoc --encode=xla.HloProto "),
        ("f.pbtxt", b"hlo {\n  hlo_module {\n", "an HLO program as a text protobuf.* protoc --encode=xla.HloSnapshot "),
        ("f.txt", b'name: "f"\nentry_computation_name: "main"\n', "an HLO program as a text protobuf.* --encode=xla.HloModuleProto "),
    ],
)
def test_the_error_says_what_a_file_is(tmp_path: Path, name: str, data: bytes, what: str) -> None:
    for path, content in ((tmp_path / name, data), (tmp_path / f"{name}.gz", gzip.compress(data))):
        path.write_bytes(content)
        with pytest.raises(SourceError, match=f"{name}.*: {what}") as caught:
            read(path)
        assert "\n" not in str(caught.value)


TORCH = (
    b'{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1}]}'
)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b'{"traceEvents": [', "truncated before the first event of a trace; the copy is incomplete: copy it again"),
        (b'{"displayTimeUnit": "ms", "traceEvents"', "truncated before the first event of a trace"),
        (b'{"traceEvents": []}', "a trace without events; record it again"),
        (TORCH[:10], "not JSON"),  # nothing in it is of a trace
        (TORCH[:22], "truncated before its first event; the copy is incomplete: copy it again"),
        (TORCH[:70], "truncated before its first event; the copy is incomplete: copy it again"),
        (TORCH[: TORCH.index(b"Events")], "truncated before its first event"),
        (TORCH[: TORCH.index(b"{", 80)], "truncated between two events; .* --read salvage"),
        (TORCH[: TORCH.index(b"_op")], "truncated in the middle of an event; .* --read salvage"),
        (TORCH[:-1], "truncated"),
        (b'{"schemaVersion": 1, "rows": []}', "no traceEvents in this file; name a trace of the PyTorch profiler"),
    ],
)
def test_a_truncated_trace_is_called_truncated(tmp_path: Path, data: bytes, what: str) -> None:
    for path, content in ((tmp_path / "a.pt.trace.json", data), (tmp_path / "a.pt.trace.json.gz", gzip.compress(data))):
        path.write_bytes(content)
        with pytest.raises(SourceError, match=f"json.*: {what}"):
            read(path)


@pytest.mark.parametrize("size", [5, 12, 20, 60, -1])
def test_a_truncated_gzip_file_is_called_truncated(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.pt.trace.json.gz"
    path.write_bytes(gzip.compress(TORCH)[:size])
    with pytest.raises(SourceError, match=r"truncated: the gzipped data end too early; the copy is incomplete"):
        read(path)


def test_a_gzip_file_of_nothing_is_empty(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(SourceError, match="the file is empty"):
        read(tmp_path / "a.json.gz")


def test_a_folder_says_what_is_in_it(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.trace.json").write_text(json.dumps(EVENTS))
    with pytest.raises(
        SourceError, match=r"no profile, trace or HLO program in this folder; 0\.trace\.json is a Chrome trace .* \(and 2 more\)"
    ):
        read(tmp_path)


def test_a_table_whose_columns_look_like_events_is_still_a_table(tmp_path: Path) -> None:
    path = tmp_path / "ops.json"
    path.write_text(json.dumps([{"name": "k", "time": 1e-3, "flops": 5, "category": "kernel"}]))
    assert read(path).format == "table"
