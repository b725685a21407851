"""Files of unsupported formats, recognised by their first bytes, so that an error can name the format and what to use instead."""

import re
from itertools import islice
from pathlib import Path

from ..errors import SourceError
from .files import files_below, head_of

PROFILE = "record with jax.profiler and name its .xplane.pb file"
TRACE = "record with torch.profiler and name its trace, or with jax.profiler and name its .xplane.pb file"
BESIDE = "name the .xplane.pb file in the same folder"
COUNTERS = "collect counters with: ncu --set full --csv --page raw"
UNPACK = "unpack it with: {} FILE; only gzip is read directly"
ENCODE = "dump it with --xla_dump_hlo_as_proto, or encode it with: protoc --encode=xla.{} xla/service/hlo.proto < FILE > FILE.hlo.pb"
MOST_FILES = 200  # of a folder that are examined

_MAGIC = (
    (b"SQLite format 3\0", "an SQLite database, as nsys export writes", COUNTERS),
    (b"NVR\0", "an Nsight Compute report", "print it as CSV with: ncu --import FILE --csv --page raw"),
    (b"PK\x03\x04", "a zip archive", "unpack it and name the file inside"),
    (b"\x28\xb5\x2f\xfd", "packed by Zstandard", UNPACK.format("zstd -d")),
    (b"\xfd7zXZ\0", "packed by xz", UNPACK.format("xz -d")),
    *((b"BZh%d1AY&SY" % level, "packed by bzip2", UNPACK.format("bzip2 -d")) for level in range(1, 10)),
    (b"\x04\x22\x4d\x18", "packed by LZ4", UNPACK.format("lz4 -d")),
    (b"\x89HDF\r\n", "an HDF5 file", ""),
    (b"\x93NUMPY", "a NumPy array", ""),
)
# XLA itself dumps HLO as its own text or as binary protobufs; some of its tools write text protobufs.
_TEXT_PROTOBUF = re.compile(rb"(?:\s|#.*\n)*(?:(hlo_module\s*\{)|(hlo\s*\{)|name:\s*\"[^\"]*\"\s+(?:entry_computation_|computations\s*\{))")
# Without an event, a trace does not show which profiler wrote it.
_NO_EVENTS = re.compile(rb'\s*+\{[^{}\[\]]*"traceEvents"\s*+:?\s*+(?:\[\s*+(?:\{\s*+)?)?(?P<closed>\][^{}\[\]]*+\}\s*+)?\Z')
_SUFFIXES = {
    ".nsys-rep": ("an Nsight Systems report", COUNTERS),
    ".qdrep": ("an Nsight Systems report", COUNTERS),
    ".ncu-rep": ("an Nsight Compute report", "print it as CSV with: ncu --import FILE --csv --page raw"),
    ".pftrace": ("a Perfetto trace", PROFILE),
    ".perfetto-trace": ("a Perfetto trace", PROFILE),
    ".py": ("a Python program", "profile it with: roofline capture -o run -- python FILE"),
    ".rpd": ("a ROCm profile (rpd)", PROFILE),
}


def recognise(head: bytes, name: str) -> tuple[str, str]:
    """The format of a file that no source reads, and what to do instead; empty texts if the format is unknown."""
    for magic, what, advice in _MAGIC:
        if head.startswith(magic):
            return what, advice
    plain = name.lower().removesuffix(".gz")
    for suffix, (what, advice) in _SUFFIXES.items():
        if plain.endswith(suffix):
            return what, advice
    if found := _TEXT_PROTOBUF.match(head):
        message = "HloProto" if found[1] else "HloSnapshot" if found[2] else "HloModuleProto"
        return "an HLO program as a text protobuf", ENCODE.format(message)
    if b"brain.Event:" in head[:64]:
        return "a TensorBoard event file", "profiles are in the folder plugins/profile next to it"
    if head.startswith(b"\x80") and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a Python pickle", ""
    if head.lstrip()[:1] in (b"{", b"[") and (b'"traceEvents"' in head or re.search(rb'"ph"\s*:\s*"[A-Za-z]"', head)):
        of_jax = plain.endswith(".trace.json") and not plain.endswith(".pt.trace.json")  # the latter is torch.profiler's name
        if b'"highres-ticks"' in head or of_jax or "perfetto_trace" in plain:
            return "a Chrome trace of a JAX or TensorFlow profile", BESIDE
        return "a Chrome trace", TRACE
    return "", ""


def check(head: bytes, path: Path | str) -> None:
    """Raises a `SourceError` for a file of a known but unsupported format, and for a trace without events."""
    if found := _NO_EVENTS.match(head):
        if found["closed"]:
            raise SourceError(f"{path}: a trace without events; record it again, with the program's steps between start and stop")
        raise SourceError(f"{path}: truncated before the first event of a trace; the copy is incomplete: copy it again, or record it again")
    what, advice = recognise(head, str(path))
    if what:
        raise SourceError(f"{path}: {what}, which roofline does not read{f'; {advice}' if advice else ''}")


def describe_contents(folder: Path | str) -> str:
    """The unsupported formats of the files below a folder, for an error about a folder with no input; empty if there are none."""
    found: dict[str, tuple[int, str, str]] = {}
    for file in islice(files_below(folder), MOST_FILES):
        try:
            what, advice = recognise(head_of(file), file.name)
        except SourceError:
            continue
        if what:
            count, first, _ = found.get(what, (0, file.name, ""))
            found[what] = (count + 1, first, advice)
    return "; ".join(_describe(what, *files) for what, files in found.items())


def _describe(what: str, count: int, first: str, advice: str) -> str:
    return f"{first} is {what}{f' (and {count - 1} more)' if count > 1 else ''}{f': {advice}' if advice else ''}"
