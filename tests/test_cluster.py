"""The files of a run read on a Dask cluster: the same bytes, and what goes wrong there is one line here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from roofline.analysis import analyze
from roofline.cli import main
from roofline.errors import SourceError, UsageError
from roofline.machines import load
from roofline.render.export import to_json
from roofline.sources import cluster, read
from roofline.sources.cluster import read_on_cluster
from roofline.sources.parts import Part
from roofline.sources.reading import Reading
from roofline.sources.xspace.recording import merge
from roofline.workload import Recording

HOW = Reading(module="xspace.recording")


def report(recording: Recording) -> bytes:
    return to_json(analyze(recording, load("h200-sxm")))


@pytest.fixture(scope="module")
def dask_cluster() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    import dask

    with (
        pytest.MonkeyPatch.context() as patient,
        dask.config.set({"distributed.scheduler.allowed-failures": 0, "distributed.worker.daemon": True}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50) as started,
    ):
        patient.setattr(cluster, "CONNECT_S", 120)  # a busy machine is slow to answer
        yield started.scheduler_address


@pytest.mark.slow
def test_a_cluster_gives_the_same_bytes(dask_cluster: str, run_folder: Path, parts: list[Part], tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    recording = read([run_folder], cluster=dask_cluster, progress=lambda done, total: told.append((done, total)))
    assert report(recording) == report(merge(parts))
    assert len(told) == len(parts)
    assert told[-1][0] == told[-1][1]
    written = tmp_path / "report.json"
    assert main(["analyze", str(run_folder), "--read", f"cluster={dask_cluster}", "--chip", "h200-sxm", "--json", str(written)]) == 0
    assert main(["analyze", str(run_folder), "--read", "jobs=1", "--chip", "h200-sxm", "--json", str(tmp_path / "here.json")]) == 0
    assert written.read_bytes() == (tmp_path / "here.json").read_bytes()


@pytest.mark.slow
def test_files_that_workers_do_not_see_are_sent_to_them(
    dask_cluster: str, run_folder: Path, parts: list[Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A worker with another file of the same name, as /tmp/profile is on every machine, must not read its own.
    monkeypatch.setattr(cluster, "_stamp", lambda file: (1, 1))
    sent: list[str] = []
    copy = cluster.local_file
    monkeypatch.setattr(cluster, "local_file", lambda file: sent.append(file) or copy(file))
    assert report(read([run_folder], cluster=dask_cluster)) == report(merge(parts))
    assert len(sent) == len(set(sent)) == 4


@pytest.mark.slow
def test_what_workers_cannot_read_is_raised_here(dask_cluster: str, tmp_path: Path) -> None:
    broken = tmp_path / "host.xplane.pb"
    broken.write_bytes(b"not a profile at all")
    with pytest.raises(SourceError, match=r"host.xplane.pb: not an XSpace profile"):
        read_on_cluster([str(broken)], HOW, address=dask_cluster)
    with pytest.raises(SourceError, match=r"gone.xplane.pb: no such file"):
        read_on_cluster([str(tmp_path / "gone.xplane.pb")], HOW, address=dask_cluster)


@pytest.mark.slow
def test_workers_of_another_version_are_refused(dask_cluster: str, run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = cluster.fingerprint()
    monkeypatch.setattr(cluster, "_count_workers", lambda client, address, code: 2)
    # As seen by a worker that joined after the others were asked.
    monkeypatch.setattr(cluster, "fingerprint", lambda: "another")
    with pytest.raises(UsageError, match="joined late runs a different version of roofline"):
        read([run_folder], cluster=dask_cluster)
    monkeypatch.undo()
    with cluster._client(dask_cluster) as client:
        assert cluster._count_workers(client, dask_cluster, here) == 2
        with pytest.raises(UsageError, match=r"the worker tcp://.* runs a different version of roofline"):
            cluster._count_workers(client, dask_cluster, "another")


@pytest.mark.slow
def test_a_worker_that_dies_is_one_line_about_its_file(dask_cluster: str, run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> None:
        import os

        os._exit(9)

    monkeypatch.setattr(cluster, "_read_on_worker", dies)
    with pytest.raises(SourceError, match=r"host1.xplane.pb: the workers reading it died"):
        read([run_folder / "host1.xplane.pb"], cluster=dask_cluster)


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_or_has_no_workers_is_one_line(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "CONNECT_S", 0.2)
    with pytest.raises(UsageError, match=r"--read cluster=tcp://127.0.0.1:1: no Dask scheduler found"):
        read([run_folder], cluster="tcp://127.0.0.1:1")
    with pytest.raises(UsageError, match=r"--read cluster=ftp://here:1: no Dask scheduler found"):
        read([run_folder], cluster="ftp://here:1")
    monkeypatch.undo()
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50) as idle,
        pytest.raises(UsageError, match="the cluster has no workers; start some with: dask worker"),
    ):
        read([run_folder], cluster=idle.scheduler_address)
