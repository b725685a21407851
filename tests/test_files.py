"""Which files a path names: a folder's are the hosts of the one run in it."""

import gzip
import shutil
from pathlib import Path

import pytest

from roofline.errors import SourceError, UsageError
from roofline.sources import read
from roofline.sources.files import files_of


def test_folders_name_the_hosts_of_one_run(run_folder: Path, tmp_path: Path) -> None:
    assert [Path(file).name[:5] for file in files_of([str(run_folder)])] == ["host0", "host1", "host2", "host3"]
    for run in ("monday", "tuesday"):
        (tmp_path / run).mkdir()
        shutil.copy(run_folder / "host1.xplane.pb", tmp_path / run)
    with pytest.raises(SourceError, match=r"2 runs in this folder \(monday, tuesday\); name one"):
        files_of([str(tmp_path)])
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="no profile, trace or HLO program in this folder"):  # what else a folder may hold
        read(tmp_path / "empty")
    with pytest.raises(UsageError, match="given twice"):
        read([run_folder / "host1.xplane.pb", run_folder / ".." / "monday" / "host1.xplane.pb"])
    with pytest.raises(
        UsageError, match=r"must be the .xplane.pb files or PyTorch traces of one run; to compare two inputs use: roofline compare A B"
    ):
        read([run_folder, tmp_path / "monday" / "host1.xplane.pb"])
    with pytest.raises(SourceError, match="no profile given"):
        read([])


def test_a_file_that_lies_there_gzipped_too_is_one_host(run_folder: Path, tmp_path: Path) -> None:
    plain = tmp_path / "host.xplane.pb"
    plain.write_bytes((run_folder / "host1.xplane.pb").read_bytes())
    Path(f"{plain}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert files_of([str(tmp_path)]) == [str(plain)]
    assert read(tmp_path) == read(plain)
