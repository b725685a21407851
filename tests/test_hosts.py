"""Runs of many hosts: whoever reads the files, in whatever order, the report has the same bytes."""

import gzip
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofline
from roofline.analysis import analyze
from roofline.cli import main
from roofline.cost import Cost
from roofline.errors import MissingExtra, SourceError, UsageError
from roofline.hlo.price.calls import forget_call
from roofline.hlo.read import proto
from roofline.machines import load
from roofline.render.export import to_json
from roofline.sources import cluster, processes
from roofline.sources.cache import Cache
from roofline.sources.cluster import read_on_cluster, read_run
from roofline.sources.hosts import Reading, host_files
from roofline.sources.processes import _Helper, answer_of, part_of, read_files
from roofline.sources.xspace import modules
from roofline.sources.xspace.attribute import Part
from roofline.sources.xspace.recording import merge, read, read_part
from roofline.workload import Recording

DATA = Path(__file__).parent / "data"
CAPTURES = ("jax_scan.xplane.pb.gz", "jax_fusion.xplane.pb", "jax_graphs.xplane.pb.gz", "jax_cond.xplane.pb.gz")
HOW = Reading(shared=True)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four hosts; what they ran differs, so that a host left out or read twice shows."""
    folder = tmp_path_factory.mktemp("logs") / "plugins" / "profile" / "monday"
    folder.mkdir(parents=True)
    for number, name in enumerate(CAPTURES):
        shutil.copy(DATA / "h200" / name, folder / f"host{number}{name[name.index('.') :]}")
    return folder


@pytest.fixture(scope="module")
def parts(run_folder: Path) -> list[Part]:
    return [read_part(file, shared=True) for file in host_files([run_folder])]


def report(recording: Recording) -> bytes:
    return to_json(analyze(recording, load("h200-sxm")))


@given(chance=st.data())
def test_the_report_has_the_same_bytes_in_any_order_of_merging(parts: list[Part], chance: st.DataObject) -> None:
    assert report(merge(chance.draw(st.permutations(parts)))) == report(merge(parts))


def test_the_report_has_the_same_bytes_whoever_reads(run_folder: Path, parts: list[Part], tmp_path: Path) -> None:
    expected = report(merge(parts))
    cache = Cache.at(tmp_path / "cache")
    for jobs, kept in [(1, None), (2, None), (5, None), (None, None), (2, cache), (1, cache)]:
        assert report(read_run([run_folder], jobs=jobs, cache=kept)) == expected
    assert report(read_run([run_folder.parent.parent.parent], jobs=2)) == expected
    assert len(cache.entries()) >= len(parts)  # more, if somebody edits the source meanwhile


def test_the_command_writes_the_same_bytes_with_one_process_or_two(run_folder: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert main(["analyze", str(run_folder), "--jobs", "1", "--no-cache", "--json", str(one)]) == 0
    assert main(["analyze", *host_files([run_folder]), "--jobs", "2", "--cache", str(tmp_path / "kept"), "--json", str(two)]) == 0
    assert one.read_bytes() == two.read_bytes()


def test_helpers_read_what_the_first_process_reads(run_folder: Path) -> None:
    told = []
    with _Helper() as helper:
        for file in host_files([run_folder]):
            assert helper.read(file, HOW, lambda done, total: told.append((done, total))) == read_part(file, shared=True)
    assert all(0 <= done <= total for done, total in told)


def test_a_program_that_several_hosts_run_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [shutil.copy(DATA / "h200" / "jax_fusion.xplane.pb", tmp_path / f"host{number}.xplane.pb") for number in range(3)]
    apart = [read_part(file, shared=True) for file in files]
    parsed: list[bytes] = []
    parse = proto.parse_proto
    monkeypatch.setattr(proto, "parse_proto", lambda data, where: parsed.append(data) or parse(data, where))
    assert read_files(files, HOW, jobs=1) == apart
    assert len(parsed) == len(set(parsed)) > 0
    # A program that is the same but for its network is priced again.
    together: modules.Known = {}
    for target in (None, load("tpu-v5e")):
        read_part(files[0], target, shared=True, known=together)
    assert len(together) == 2 * len(set(parsed))


def test_of_several_damaged_files_the_first_is_named_whoever_read_it(run_folder: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"host{number}.xplane.pb" for number in range(6)]
    whole = (run_folder / "host1.xplane.pb").read_bytes()
    for number, file in enumerate(files):
        # Hosts 2 and 4 were copied half.
        file.write_bytes(whole[: len(whole) // 2] if number in (2, 4) else whole)
    for jobs in (1, 2, 3):
        with pytest.raises(SourceError, match=r"host2.xplane.pb: truncated"):
            read_run(files, jobs=jobs)
    assert len(read_run(files, jobs=2, salvage=True).files) == 6


def test_a_helper_that_is_killed_is_one_line_about_its_file(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the kernel does to a process that takes too much memory.
    monkeypatch.setattr(processes, "_PROGRAM", "import os, sys; sys.stdin.buffer.read(1); os.kill(os.getpid(), 9)")
    with _Helper() as helper, pytest.raises(SourceError, match=r"host1.xplane.pb: the process reading it was killed.*memory.*--jobs 1"):
        helper.read(str(run_folder / "host1.xplane.pb"), HOW, None)


def test_a_helper_that_cannot_start_is_one_line_about_its_file(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_PROGRAM", "raise SystemExit(7)")
    with _Helper() as helper, pytest.raises(SourceError, match=r"host1.xplane.pb: .* ended with status 7"):
        helper.read(str(run_folder / "host1.xplane.pb"), HOW, None)


def test_where_no_other_process_can_be_started_one_does_it_all(
    run_folder: Path, parts: list[Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise OSError("Resource temporarily unavailable")

    monkeypatch.setattr(processes, "_Helper", refused)
    assert read_files(host_files([run_folder]), HOW, jobs=4) == parts


def test_errors_travel_as_what_they_are() -> None:
    # An exception whose arguments are not its message cannot be pickled and made again.
    missing = MissingExtra("fsspec", "remote")
    with pytest.raises(MissingExtra, match=r"^fsspec is not installed; run: pip install 'roofline\[remote\]'$"):
        part_of(("refused", (type(missing), str(missing))))
    with pytest.raises(SourceError, match=r"nowhere.xplane.pb: no such file"):
        part_of(answer_of("nowhere.xplane.pb", HOW))


def test_a_mistake_of_ours_in_a_helper_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> Part:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr(processes, "read_host", broken)
    with pytest.raises(RuntimeError, match=r"(?s)host.pb: Traceback.*in broken.*of ours"):
        part_of(answer_of("host.pb", HOW))


def test_memory_that_runs_out_in_a_helper_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> Part:
        raise MemoryError

    monkeypatch.setattr(processes, "read_host", full)
    with pytest.raises(SourceError, match=r"host.pb: out of memory"):
        part_of(answer_of("host.pb", HOW))


def test_prices_that_a_user_registered_are_not_lost_in_another_process(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise AssertionError("a helper would not know the function")

    monkeypatch.setattr(processes, "_Helper", refused)
    roofline.register_call("my_kernel", lambda call: Cost())
    try:
        assert len(read_files(host_files([run_folder]), HOW, jobs=4)) == len(CAPTURES)
        with pytest.raises(UsageError, match="registered custom calls are not available"):
            read_on_cluster("tcp://127.0.0.1:1", host_files([run_folder]), HOW)
    finally:
        forget_call("my_kernel")


def test_a_script_needs_no_guard_around_its_main_program(run_folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"from roofline.sources.cluster import read_run\nprint(len(read_run([{str(run_folder)!r}], jobs=3).files))\n")
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=600)
    assert ran.stdout == "4\n"


def test_progress_covers_all_files_and_never_exceeds_them(run_folder: Path) -> None:
    files = host_files([run_folder])
    told: list[tuple[int, int]] = []
    read_files(files, HOW, jobs=1, progress=lambda done, total: told.append((done, total)))
    assert {total for _, total in told} == {sum(Path(file).stat().st_size for file in files)}
    assert all(0 <= done <= total for done, total in told)
    assert max(done for done, _ in told) > told[0][1] // 2


def test_folders_name_the_hosts_of_one_run(run_folder: Path, tmp_path: Path) -> None:
    assert [Path(file).name[:5] for file in host_files([run_folder])] == ["host0", "host1", "host2", "host3"]
    for run in ("monday", "tuesday"):
        (tmp_path / run).mkdir()
        shutil.copy(run_folder / "host1.xplane.pb", tmp_path / run)
    with pytest.raises(SourceError, match=r"2 runs in this folder \(monday, tuesday\); name one"):
        host_files([tmp_path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=r"no .xplane.pb file in this folder"):
        host_files([tmp_path / "empty"])
    with pytest.raises(UsageError, match="given twice"):
        host_files([run_folder, run_folder / ".." / "monday" / "host1.xplane.pb"])
    with pytest.raises(SourceError, match="no profile given"):
        read_run([])


def test_a_file_that_lies_there_gzipped_too_is_one_host(run_folder: Path, tmp_path: Path) -> None:
    plain = tmp_path / "host.xplane.pb"
    plain.write_bytes((run_folder / "host1.xplane.pb").read_bytes())
    Path(f"{plain}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert host_files([tmp_path]) == [str(plain)]
    assert roofline.read(tmp_path) == read(plain)


@pytest.mark.parametrize("words", [["--jobs", "0"], ["--jobs", "many"], ["--cache", "kept", "--no-cache"]])
def test_options_that_make_no_sense_are_refused(words: list[str], run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(run_folder), *words]) == 2
    assert words[0] in capsys.readouterr().err


def test_a_cluster_reads_profiles_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "ops.csv"
    table.write_text("name,flops,hbm\nadd,1,1\n")
    assert main(["analyze", str(table), "--cluster", "tcp://127.0.0.1:1"]) == 2
    assert "ops.csv: not a profile; --cluster reads profiles only" in capsys.readouterr().err


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


def test_a_cluster_gives_the_same_bytes(dask_cluster: str, run_folder: Path, parts: list[Part], tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    recording = read_run([run_folder], cluster=dask_cluster, progress=lambda done, total: told.append((done, total)))
    assert report(recording) == report(merge(parts))
    assert len(told) == len(parts)
    assert told[-1][0] == told[-1][1]
    written = tmp_path / "report.json"
    assert main(["analyze", str(run_folder), "--cluster", dask_cluster, "--chip", "h200-sxm", "--json", str(written)]) == 0
    assert main(["analyze", str(run_folder), "--jobs", "1", "--chip", "h200-sxm", "--json", str(tmp_path / "here.json")]) == 0
    assert written.read_bytes() == (tmp_path / "here.json").read_bytes()


def test_files_that_workers_do_not_see_are_sent_to_them(
    dask_cluster: str, run_folder: Path, parts: list[Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A worker with another file of the same name, as /tmp/profile is on every machine, must not read its own.
    monkeypatch.setattr(cluster, "_stamp", lambda file: (1, 1))
    sent: list[int] = []
    send = cluster._Errand._send
    monkeypatch.setattr(cluster._Errand, "_send", lambda self, number: sent.append(number) or send(self, number))
    assert report(read_run([run_folder], cluster=dask_cluster)) == report(merge(parts))
    assert sorted(sent) == [0, 1, 2, 3]


def test_what_workers_cannot_read_is_raised_here(dask_cluster: str, tmp_path: Path) -> None:
    broken = tmp_path / "host.xplane.pb"
    broken.write_bytes(b"not a profile at all")
    with pytest.raises(SourceError, match=r"host.xplane.pb: not an XSpace profile"):
        read_run([broken], cluster=dask_cluster)
    with pytest.raises(SourceError, match=r"gone.xplane.pb: no such file"):
        read_run([tmp_path / "gone.xplane.pb"], cluster=dask_cluster)


def test_workers_of_another_version_are_refused(dask_cluster: str, run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = cluster.fingerprint(compiled=False)
    monkeypatch.setattr(cluster, "_checked", lambda client, address, code: 2)
    # As seen by a worker that joined after the others were asked.
    monkeypatch.setattr(cluster, "fingerprint", lambda *, compiled: "another")
    with pytest.raises(UsageError, match="joined late runs a different version of roofline"):
        read_run([run_folder], cluster=dask_cluster)
    monkeypatch.undo()
    with cluster._client(dask_cluster) as client:
        assert cluster._checked(client, dask_cluster, here) == 2
        with pytest.raises(UsageError, match=r"the worker tcp://.* runs a different version of roofline"):
            cluster._checked(client, dask_cluster, "another")


def test_a_worker_that_dies_is_one_line_about_its_file(dask_cluster: str, run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> None:
        import os

        os._exit(9)

    monkeypatch.setattr(cluster, "_read_there", dies)
    with pytest.raises(SourceError, match=r"host1.xplane.pb: the workers reading it died"):
        read_run([run_folder / "host1.xplane.pb"], cluster=dask_cluster)


def test_a_cluster_that_does_not_answer_or_has_no_workers_is_one_line(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "CONNECT_S", 0.2)
    with pytest.raises(UsageError, match=r"--cluster tcp://127.0.0.1:1: no Dask scheduler found"):
        read_run([run_folder], cluster="tcp://127.0.0.1:1")
    with pytest.raises(UsageError, match=r"--cluster ftp://here:1: no Dask scheduler found"):
        read_run([run_folder], cluster="ftp://here:1")
    monkeypatch.undo()
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50) as idle,
        pytest.raises(UsageError, match="the cluster has no workers; start some with: dask worker"),
    ):
        read_run([run_folder], cluster=idle.scheduler_address)


def test_a_cluster_without_dask_says_what_to_install(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=r"roofline\[cluster\]"):
        read_run([run_folder], cluster="tcp://127.0.0.1:1")
