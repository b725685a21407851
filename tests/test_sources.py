"""One way to read: wherever the files are and whoever reads them, in whatever order, the report has the same bytes."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofline
from every import every
from roofline.analysis import analyze
from roofline.cli import main
from roofline.cost import Cost
from roofline.errors import SourceError, UsageError
from roofline.hlo.price.calls import forget_call
from roofline.machines import load
from roofline.render.export import to_json
from roofline.sources import find, pool, read
from roofline.sources.cache import Cache
from roofline.sources.files import files_of
from roofline.sources.parts import Part
from roofline.sources.xspace.recording import merge
from roofline.workload import Device, Recording

DATA = Path(__file__).parent / "data"


@every(
    ("file", "name", "kind"),
    [
        ("h200/jax_fusion.xplane.pb", "xspace", "profile"),
        ("h200/jax_train.hlo.txt.gz", "program", "program"),
        ("ncu_probe_full.csv.gz", "ncu", "counters"),
        ("law_vectors.json", "table", "table"),
        ("h200", "xspace", "profile"),
        ("fusion", "program", "program"),
    ],
)
def test_a_source_is_found_by_content(file: str, name: str, kind: str) -> None:
    source = find(DATA / file)
    assert (source.name, source.kind, source.hosts, source.needs_machine) == (name, kind, name == "xspace", name == "program")


def test_the_machine_is_found_for_programs_and_from_the_devices_of_profiles() -> None:
    asked: list[list[str]] = []

    def machine(devices: Sequence[Device]) -> roofline.Machine:
        asked.append([device.name for device in devices])
        return load("h200-sxm")

    read(DATA / "ncu_probe_full.csv.gz", machine)
    assert not asked
    read(DATA / "h200" / "jax_train.hlo.txt.gz", machine)
    assert asked.pop() == []
    read(DATA / "h200" / "jax_fusion.xplane.pb", machine)
    assert asked == [["NVIDIA H200"]]


def report(recording: Recording) -> bytes:
    return to_json(analyze(recording, load("h200-sxm")))


@given(chance=st.data())
def test_the_report_has_the_same_bytes_in_any_order_of_merging(parts: list[Part], chance: st.DataObject) -> None:
    assert report(merge(chance.draw(st.permutations(parts)))) == report(merge(parts))


def test_the_report_has_the_same_bytes_whoever_reads(run_folder: Path, parts: list[Part], tmp_path: Path) -> None:
    expected = report(merge(parts))
    cache = tmp_path / "cache"
    for jobs, kept in [(1, None), (2, None), (5, None), (None, True), (2, cache), (1, cache)]:
        assert report(read(run_folder, jobs=jobs, cache=kept)) == expected
    assert report(read([run_folder.parent.parent.parent], jobs=2)) == expected
    assert len(Cache(cache).entries()) >= len(parts)  # more, if somebody edits the source meanwhile


def test_the_command_writes_the_same_bytes_with_one_process_or_two(run_folder: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert main(["analyze", str(run_folder), "--read", "jobs=1", "cache=no", "--json", str(one)]) == 0
    assert main(["analyze", *files_of([str(run_folder)]), "--read", "jobs=2", f"cache={tmp_path / 'kept'}", "--json", str(two)]) == 0
    assert one.read_bytes() == two.read_bytes()


def test_of_several_damaged_files_the_first_is_named_whoever_read_it(run_folder: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"host{number}.xplane.pb" for number in range(6)]
    whole = (run_folder / "host1.xplane.pb").read_bytes()
    for number, file in enumerate(files):
        # Hosts 2 and 4 were copied half.
        file.write_bytes(whole[: len(whole) // 2] if number in (2, 4) else whole)
    for jobs in (1, 2, 3):
        with pytest.raises(SourceError, match=r"host2.xplane.pb: truncated"):
            read(files, jobs=jobs)
    assert len(read(files, jobs=2, salvage=True).files) == 6


def test_prices_that_a_user_registered_are_not_lost_in_another_process(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise AssertionError("a helper would not know the function")

    monkeypatch.setattr(pool, "Worker", refused)
    roofline.register_call("my_kernel", lambda call: Cost())
    try:
        assert len(read(run_folder, jobs=4).hosts) == 4
        with pytest.raises(UsageError, match="registered custom calls are not available"):
            read(run_folder, cluster="tcp://127.0.0.1:1")
    finally:
        forget_call("my_kernel")


def test_a_script_needs_no_guard_around_its_main_program(run_folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import roofline\nprint(len(roofline.read([{str(run_folder)!r}], jobs=3).files))\n")
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=600)
    assert ran.stdout == "4\n"


@every("words", [["jobs=0"], ["jobs=many"], ["jobs="], ["chache=no"], ["no-cache"]])
def test_options_that_make_no_sense_are_refused(words: list[str], run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(run_folder), "--read", *words]) == 2
    assert words[0] in capsys.readouterr().err


def test_a_cluster_reads_profiles_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "ops.csv"
    table.write_text("name,flops,hbm\nadd,1,1\n")
    assert main(["analyze", str(table), "--read", "cluster=tcp://127.0.0.1:1"]) == 2
    assert "ops.csv: not a profile; a cluster reads profiles only" in capsys.readouterr().err
