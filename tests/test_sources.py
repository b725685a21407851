"""One way to read: wherever the files are and whoever reads them, in whatever order, the report has the same bytes."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import roofline
from every import every
from roofline.analysis import analyze
from roofline.machines import load
from roofline.render.export import to_json
from roofline.sources import find, read
from roofline.sources.cache import Cache
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


def test_a_script_needs_no_guard_around_its_main_program(run_folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import roofline\nprint(len(roofline.read([{str(run_folder)!r}], jobs=3).files))\n")
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=600)
    assert ran.stdout == "4\n"
