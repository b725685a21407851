"""The files of a run read one after the other in this process."""

import shutil
from pathlib import Path

import pytest

from roofline.hlo.read import proto
from roofline.machines import load
from roofline.sources.files import files_of
from roofline.sources.reading import Reading, read_here
from roofline.sources.xspace import modules
from roofline.sources.xspace.recording import read_part

DATA = Path(__file__).parent / "data"
HOW = Reading(module="xspace.recording", shared=True)


def test_a_program_that_several_hosts_run_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [shutil.copy(DATA / "h200" / "jax_fusion.xplane.pb", tmp_path / f"host{number}.xplane.pb") for number in range(3)]
    apart = [read_part(file, shared=True) for file in files]
    parsed: list[bytes] = []
    parse = proto.parse_proto
    monkeypatch.setattr(proto, "parse_proto", lambda data, where: parsed.append(data) or parse(data, where))
    assert read_here(files, HOW) == apart
    assert len(parsed) == len(set(parsed)) > 0
    # A program that is the same but for its network is priced again.
    together: modules.Known = {}
    for target in (None, load("tpu-v5e")):
        read_part(files[0], target, shared=True, known=together)
    assert len(together) == 2 * len(set(parsed))


def test_progress_covers_all_files_and_never_exceeds_them(run_folder: Path) -> None:
    files = files_of([str(run_folder)])
    told: list[tuple[int, int]] = []
    read_here(files, HOW, lambda done, total: told.append((done, total)))
    assert {total for _, total in told} == {sum(Path(file).stat().st_size for file in files)}
    assert all(0 <= done <= total for done, total in told)
    assert max(done for done, _ in told) > told[0][1] // 2
