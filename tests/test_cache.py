"""The cache answers for exactly what was read: never for a changed file, option or version, and never from a damaged entry."""

import json
import os
import pickle
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofline
from roofline.cli import main
from roofline.cost import Cost
from roofline.errors import SourceError, UsageError
from roofline.hlo.price.calls import forget_call
from roofline.machines import load
from roofline.sources import cache as caching
from roofline.sources.cache import SUFFIX, Cache, pack, unpack
from roofline.sources.parts import DevicePart, Instance, Launched, Part, Share, Subject, Tally
from roofline.sources.reading import Reading, read_file
from roofline.sources.xspace import recording
from roofline.sources.xspace.recording import read_part

DATA = Path(__file__).parent / "data"
CAPTURES = sorted([*(DATA / "h200").glob("*.xplane.pb*"), *(DATA / "cpu").glob("*.xplane.pb*")])
KEY = "0" * 64
MODULE = "xspace.recording"


@pytest.fixture
def profile(tmp_path: Path) -> str:
    return str(shutil.copy(DATA / "h200" / "jax_fusion.xplane.pb", tmp_path / "host.xplane.pb"))


@pytest.fixture
def kept(tmp_path: Path) -> Cache:
    return Cache.at(tmp_path / "kept")


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read, and not answered from a cache."""
    files: list[str] = []

    def counting(path: str, *args: object, **options: object) -> Part:
        files.append(str(path))
        return read_part(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(recording, "read_part", counting)
    return files


def part(host: str = "a", **more: object) -> Part:
    return Part(**{"file": f"{host}.pb", "host": host, "devices": (), **more})  # type: ignore[arg-type]


def test_the_second_reading_of_a_file_is_the_first_one(profile: str, kept: Cache, readings: list[str]) -> None:
    first, second = (read_file(profile, Reading(module=MODULE, cache=kept)) for _ in range(2))
    assert first == second == read_part(profile)
    assert readings == [profile]


def test_a_file_with_one_byte_changed_is_read_anew(profile: str, kept: Cache, readings: list[str]) -> None:
    read_file(profile, Reading(module=MODULE, cache=kept))
    data = bytearray(Path(profile).read_bytes())
    before = os.stat(profile)
    data[data.index(b"NVIDIA H200")] = ord("M")
    Path(profile).write_bytes(data)
    os.utime(profile, ns=(before.st_atime_ns, before.st_mtime_ns))  # same name, same size, same time of change
    assert {device.name for device in read_file(profile, Reading(module=MODULE, cache=kept)).devices} == {"MVIDIA H200"}
    assert len(readings) == 2


def test_other_options_are_read_anew(profile: str, kept: Cache, readings: list[str]) -> None:
    read_file(profile, Reading(module=MODULE, cache=kept))
    for count, other in enumerate(({"salvage": True}, {"shared": True}, {"target": load("h200-sxm")}), start=2):
        read_file(profile, Reading(module=MODULE, cache=kept, **other))  # type: ignore[arg-type]
        assert len(readings) == count


def test_another_version_of_the_code_is_read_anew(profile: str, kept: Cache, readings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    read_file(profile, Reading(module=MODULE, cache=kept))
    monkeypatch.setattr(caching, "fingerprint", lambda: "another")
    read_file(profile, Reading(module=MODULE, cache=kept))
    assert len(readings) == 2


def test_the_fingerprint_follows_every_source_file_that_has_a_say(tmp_path: Path) -> None:
    package = tmp_path / "roofline"
    source = Path(roofline.__file__).parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__", "chips", "static"))
    code = "from roofline.sources.cache import fingerprint; print(fingerprint())"

    def printed() -> bytes:
        return subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True).stdout

    first = printed()
    (package / "cli" / "place.py").write_text("")
    assert first == printed() != b""
    with (package / "hlo" / "price.py").open("a") as file:
        file.write("\n")
    assert first != printed()


def test_prices_that_a_user_registered_are_never_kept(profile: str, kept: Cache) -> None:
    roofline.register_call("my_kernel", lambda call: Cost())
    try:
        read_file(profile, Reading(module=MODULE, cache=kept))
    finally:
        forget_call("my_kernel")
    assert kept.entries() == []


def test_an_error_is_never_kept(kept: Cache, tmp_path: Path) -> None:
    for name in ("broken.xplane.pb", "broken.xplane.pb.gz"):
        broken = tmp_path / name
        broken.write_bytes(b"nothing of ours")
        with pytest.raises(SourceError, match="not an XSpace profile"):
            read_file(str(broken), Reading(module=MODULE, cache=kept))
        with pytest.raises(SourceError, match="no such file"):
            read_file(str(tmp_path / f"gone-{name}"), Reading(module=MODULE, cache=kept))
    assert kept.entries() == []


@given(at=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_damaged_entry_is_no_entry(at: float, flip: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    kept = Cache.at(tmp_path_factory.mktemp("kept"))
    kept.put(KEY, part())
    ((path, size, _),) = kept.entries()
    data = bytearray(path.read_bytes())
    data[int(at * size)] ^= flip
    path.write_bytes(data)
    assert kept.get(KEY) in (None, part())  # a flag of the compression says nothing about the content
    path.write_bytes(data[: int(at * size)])
    assert kept.get(KEY) is None


def test_many_processes_share_a_folder(profile: str, kept: Cache) -> None:
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from roofline.sources.cache import Cache\nfrom roofline.sources.reading import Reading, read_file\n"
        "cache = Cache(Path(sys.argv[2]))\n"
        "for _ in range(8):\n"
        "    cache.clear()\n"
        "    print(read_file(sys.argv[1], Reading(module='xspace.recording', cache=cache)).devices[0].busy_ps)\n"
    )
    words = [sys.executable, "-c", code, profile, str(kept.folder)]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=600)[0].split() for process in running]
    assert {process.returncode for process in running} == {0}
    assert {word for words in said for word in words} == {str(read_part(profile).devices[0].busy_ps)}
    assert [path for path in kept.inner.iterdir() if path.suffix != SUFFIX] == []


def test_the_least_recently_used_goes_when_the_folder_is_full(tmp_path: Path) -> None:
    probe = Cache.at(tmp_path / "probe")
    a, b, c = (letter * 64 for letter in "abc")
    probe.put(a, part())
    room = Cache(tmp_path / "kept", most_bytes=probe.entries()[0][1] * 2)
    for age, key in ((300, a), (200, b)):
        room.put(key, part())
        path = room.inner / f"{key}{SUFFIX}"
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    assert room.get(a) is not None  # so b is the older one now
    room.put(c, part())
    assert {path.stem for path, _, _ in room.entries()} == {a, c}


def test_a_folder_that_cannot_be_used_is_an_empty_cache_unless_it_was_named(profile: str, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    silent = Cache(blocked / "inside")
    assert read_file(profile, Reading(module=MODULE, cache=silent)) == read_part(profile)
    assert (silent.entries(), silent.clear()) == ([], 0)
    with pytest.raises(UsageError, match=r"inside: cannot write the cache: Not a directory; use another folder, or --read cache=no"):
        Cache.at(blocked / "inside")


def test_nothing_but_entries_is_ever_removed(kept: Cache) -> None:
    # A user's folder may hold anything: files that happen to be called alike, links, and folders, beside the cache and inside its own.
    kept.put(KEY, part())
    precious = kept.folder / "download.part"
    others = [precious, kept.folder / "a.unfinished", kept.inner / "b.part", kept.inner / "notes.txt"]
    for other in others:
        other.write_text("mine")
    (kept.inner / f"{'3' * 64}{SUFFIX}").symlink_to(precious)
    (kept.inner / f"{'4' * 64}{SUFFIX}").mkdir()
    assert kept.clear() == 1
    full = Cache(kept.folder, most_bytes=0)
    full.put(KEY, part())  # which is too much, and goes at once
    assert full.entries() == []
    assert [other.read_text() for other in others] == ["mine"] * len(others)
    assert len(list(kept.inner.iterdir())) == 4


def test_the_command_shows_and_clears(profile: str, kept: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    read_file(profile, Reading(module=MODULE, cache=kept))
    size = kept.entries()[0][1]
    program = kept.folder / "roofline-programs" / "key"  # one that was compiled for a slice
    program.mkdir(parents=True)
    (program / "answer.json").write_text("{}")
    assert main(["--cache", str(kept.folder), "--json", "-"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["folder"], shown["entries"], shown["bytes"]) == (str(kept.folder), 1, size)
    assert (shown["programs"], shown["programs_bytes"]) == (1, 2)
    assert main(["--cache", str(kept.folder), "--clear"]) == 0
    said = capsys.readouterr()
    assert "2 entries removed" in said.err
    assert "entries   0" in said.out
    assert kept.entries() == []
    assert not program.exists()


def test_parts_of_real_captures_come_back_to_the_last_digit() -> None:
    for path in CAPTURES:
        whole = read_part(path, shared=True)
        again = unpack(pack(whole))
        assert again == whole, path.name
        assert repr(again.devices) == repr(whole.devices), path.name  # 1 and 1.0 are equal, and written differently


def test_every_kind_of_number_and_text_comes_back() -> None:
    cost = Cost.of({"matrix/bf16": 2**80, "hbm": Fraction(1, 3), "vector/fp32": 0.1, "nvlink": None})
    subject = Subject(name="add \ud800 ü \"'\n\0", cost=cost, notes=("a", "b"))
    tally = Tally(1, 2, 3, 4, {0: Share(1, 2)}, {"pcie": 5}, [Launched("k", 1, (1, 2, 3), 4), Launched("k", 1, None, 4)])
    device = DevicePart(plane="p", ordinal=0, name="n", rates={"hbm": 1e300}, wall_ps=2**70, busy_ps=1, rows={subject: tally}, steps={})
    whole = Part(file="f", host="h", devices=(device,), instances=(Instance("train", None), Instance("train", -4, 1)))
    assert repr(unpack(pack(whole))) == repr(whole)


class Command:
    """A pickle that runs a command when it is read."""

    def __init__(self, command: Callable[..., object], *arguments: object) -> None:
        self.what = command, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.what


def test_nothing_in_an_entry_runs_code(kept: Cache, tmp_path: Path) -> None:
    kept.put(KEY, part())
    ((path, _, _),) = kept.entries()
    target = tmp_path / "ran"
    program = f"open({str(target)!r}, 'w')"
    for command in (Command(os.system, f"touch {target}"), Command(eval, program), Command(exec, program), Command(getattr, part, "x")):
        path.write_bytes(zlib.compress(pickle.dumps(command)))
        assert kept.get(KEY) is None
    for name in (b"roofline.__main__\nsys", b"roofline.sources.cache\nos.system", b"roofline.cli\nmain"):
        path.write_bytes(zlib.compress(b"\x80\x04c" + name + b"\n."))
        assert kept.get(KEY) is None
    assert not target.exists()
    for value in (None, 1, [], Cost(), KEY):
        path.write_bytes(zlib.compress(pickle.dumps(value)))
        assert kept.get(KEY) is None
