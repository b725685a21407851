"""The live server: what it lists, what it shows, what it refuses, and that a large profile holds nobody up."""

import gzip
import html
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from every import every
from live import DATA, PATIENCE_S, SCAN, bare, client, held_back, options, process, runs, until
from roofline import serve
from roofline.cli import main
from roofline.cli.served_runs import read_run
from roofline.errors import SourceError, UsageError
from roofline.files.input_limits import DEFAULT
from roofline.serve import runs as listing
from roofline.serve.guard import HEADERS
from roofline.serve.listen import bind
from roofline.serve.runs import RunFinder

TABLE = "name,time,flops,bytes\nmatmul,2 ms,1 GFLOP,10 MB\n"
FASTER = TABLE.replace("2 ms", "1 ms")


def table(folder: Path, name: str = "ops.csv", text: str = TABLE) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def log_folder(folder: Path, *hosts: str, run: str = "monday") -> Path:
    """A TensorBoard log folder with one run in it."""
    inner = folder / "plugins" / "profile" / run
    inner.mkdir(parents=True)
    for host in hosts:
        shutil.copy(SCAN, inner / f"{host}.xplane.pb.gz")
    (inner / f"{hosts[0]}.trace.json.gz").write_bytes(b"another view of the same run")
    return inner


# What there is to open


def test_a_tensorboard_run_is_one_entry_with_its_hosts(tmp_path: Path) -> None:
    log_folder(tmp_path / "big", "host0", "host1")
    (found,) = RunFinder([tmp_path]).find().runs
    assert (found.name, found.kind, len(found.files)) == ("big/monday", "profile", 2)


def test_a_torch_capture_is_one_run_with_its_traces_as_ranks(tmp_path: Path) -> None:
    folder = tmp_path / "log" / "plugins" / "profile" / "monday"
    folder.mkdir(parents=True)
    for name in ("host_1.1700000000000.pt.trace.json.gz", "host_2.1700000000000.pt.trace.json.gz"):
        (folder / name).write_bytes(b"")
    (found,) = RunFinder([tmp_path]).find().runs
    assert (found.name, found.kind, found.path, len(found.files)) == ("log/monday", "profile", folder, 2)


def test_each_kind_is_found_by_its_content(tmp_path: Path) -> None:
    table(tmp_path)
    shutil.copy(DATA / "h200" / "jax_scan.hlo.txt.gz", tmp_path / "program.txt.gz")
    shutil.copy(DATA / "ncu_probe_roofline.csv.gz", tmp_path / "counters.csv.gz")
    shutil.copy(SCAN, tmp_path / "host.xplane.pb.gz")
    assert main(["analyze", str(tmp_path / "ops.csv"), "--chip", "h200", "--json", str(tmp_path / "report.json")]) == 0
    (tmp_path / "settings.json").write_text('{"name": "theme", "colour": "blue"}')  # JSON, but no rows of ops
    (tmp_path / "notes.txt").write_text("what we tried on Monday")
    kinds = {run.path.name: run.kind for run in RunFinder([tmp_path]).find().runs}
    assert kinds == {
        "ops.csv": "table",
        "program.txt.gz": "program",
        "counters.csv.gz": "counters",
        "host.xplane.pb.gz": "profile",
        "report.json": "report",
    }


def test_profiles_side_by_side_are_listed_alone_and_together(tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copy(SCAN, tmp_path / f"{name}.xplane.pb.gz")
    assert sorted(len(run.files) for run in RunFinder([tmp_path]).find().runs) == [1, 1, 2]


def test_a_dump_of_xla_is_one_entry(tmp_path: Path) -> None:
    program = "HloModule jit_step\nENTRY main { ROOT p = f32[4] parameter(0) }\n"
    for number in (1, 2):
        (tmp_path / f"module_000{number}.jit_step.sm_9.0_gpu_after_optimizations.txt").write_text(program)
    (found,) = RunFinder([tmp_path]).find().runs
    assert (found.path, found.kind, len(found.files)) == (tmp_path, "program", 2)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_pipes_are_skipped_in_a_folder_and_refused_by_name(tmp_path: Path) -> None:
    table(tmp_path)
    os.mkfifo(tmp_path / "pipe.csv")  # opening it would wait for ever
    finder = RunFinder([tmp_path])
    (run,) = finder.find().runs
    with pytest.raises(SourceError, match="a pipe or device"):
        RunFinder([tmp_path / "pipe.csv"])
    assert finder.refreshed(run) == run
    run.path.unlink()
    os.mkfifo(run.path)
    assert finder.refreshed(run) is None


def test_links_that_lead_out_of_the_folder_are_followed_only_when_asked(tmp_path: Path) -> None:
    served, other = tmp_path / "served", tmp_path / "served_not"  # a name that begins alike is another folder
    served.mkdir()
    other.mkdir()
    table(served, "own.csv")
    secret = table(other, "secret.csv")
    (served / "near.csv").symlink_to(served / "own.csv")
    (served / "far.csv").symlink_to(secret)
    (served / "folder").symlink_to(other)
    found = RunFinder([served]).find()
    assert {run.name for run in found.runs} == {"own.csv", "near.csv"}
    assert found.notes == ("2 links lead out of the folder; --follow lists them too",)
    assert {run.name for run in RunFinder([served], follow=True).find().runs} == {"own.csv", "near.csv", "far.csv", "folder/secret.csv"}


def test_a_file_that_becomes_a_link_out_of_the_folder_is_no_longer_opened(tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    path, secret = table(tmp_path / "served"), table(tmp_path, "secret.csv")
    finder = RunFinder([tmp_path / "served"])
    (run,) = finder.find().runs
    path.unlink()
    path.symlink_to(secret)
    assert finder.refreshed(run) is None


def test_a_dump_with_a_program_elsewhere_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    program = tmp_path / "module_0001.jit_step.sm_9.0_gpu_after_optimizations.txt"
    program.write_text("HloModule jit_step\nENTRY main { ROOT p = f32[4] parameter(0) }\n")
    shutil.copy(program, tmp_path / "served")
    (tmp_path / "served" / program.name.replace("0001", "0002")).symlink_to(program)
    assert RunFinder([tmp_path / "served"]).find().runs == ()


def test_a_folder_that_cannot_be_read_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "private").mkdir()
    table(tmp_path)
    real = os.listdir

    def refusing(folder: Path) -> list[str]:
        if Path(folder).name == "private":
            raise PermissionError(13, "Permission denied")
        return real(folder)

    monkeypatch.setattr(listing.os, "listdir", refusing)
    found = RunFinder([tmp_path]).find()
    assert [run.name for run in found.runs] == ["ops.csv"]
    assert found.notes == (f"{tmp_path / 'private'}: cannot read: Permission denied",)


def test_a_path_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="gone: no such file or folder"):
        RunFinder([tmp_path / "gone"])


# What is shown


def test_the_list_has_a_json_twin_that_fills_as_runs_are_opened(tmp_path: Path) -> None:
    table(tmp_path)
    with client(tmp_path) as server:
        before = runs(server)["ops.csv"]
        assert (before["state"], before["summary"], before["kind"]) == ("listed", None, "table")
        assert before["bytes"] == len(TABLE)
        assert server.get(str(before["json"])).status_code == 200
        after = runs(server)["ops.csv"]
        assert after["state"] == "ready"
        assert after["summary"]["time_s"] == 0.002  # type: ignore[index]
        assert "<table" not in server.get("/").text  # the frame; the page's script fills it


def test_names_of_files_cannot_reorder_or_hide_what_is_shown(tmp_path: Path) -> None:
    table(tmp_path, "ops\u202e\x1b\u200b.csv")
    with client(tmp_path) as server:
        (row,) = runs(server).values()
        shown = [server.get(address).text for address in ("/", "/index.json", str(row["page"]))]
        assert row["name"] == "ops···.csv"
    assert not any(character in text for text in shown for character in "\u202e\x1b\u200b")


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names of files are text there")
def test_names_that_are_not_utf8_are_listed_and_opened(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9")).mkdir()
    path = table(tmp_path / os.fsdecode(b"caf\xe9"), os.fsdecode(b"ops\xff.csv"))
    with client(tmp_path) as server:
        (row,) = runs(server).values()
        assert row["name"] == "caf·/ops·.csv"
        report = server.get(str(row["json"]))
        assert (report.status_code, report.json()["coverage"] is not None) == (200, True)
        assert "caf·/ops·.csv" in server.get(str(row["page"])).text
        assert server.get(f"/compare/{row['id']}/{row['id']}.json").status_code == 200
        path.write_text(TABLE.replace("2 ms", "soon"))
        assert server.get(str(row["json"])).status_code == 422
        assert "ops·.csv" in server.get(str(row["page"])).text


def test_asking_for_a_state_reads_nothing(tmp_path: Path) -> None:
    with client(table(tmp_path), read=held_back) as server:
        (row,) = runs(server).values()
        for _ in range(3):
            assert server.get(f"{row['page']}/state.json").json()["state"] == "listed"
            assert server.get(f"/compare/{row['id']}/{row['id']}/state.json").json()["state"] == "listed"
        assert runs(server)["ops.csv"]["state"] == "listed"


def test_reading_is_cancelled_from_its_page_and_tried_again(tmp_path: Path) -> None:
    with client(table(tmp_path), read=held_back) as server:
        (row,) = runs(server).values()
        page = server.get(str(row["page"])).text
        cancel = page.split('data-address="')[1].split('"')[0]
        assert server.post(cancel).status_code == 204
        until(lambda: runs(server)["ops.csv"]["state"] == "failed", "cancelled")
        answer = server.get(str(row["page"]))
        assert (answer.status_code, "cancelled" in answer.text) == (422, True)
        retry = answer.text.split('data-address="')[1].split('"')[0]
        (tmp_path / "go").touch()
        assert server.post(retry).status_code == 204
        assert server.get(str(row["json"])).status_code == 200
        assert server.post(f"{row['page']}/delete").status_code == 405


def test_the_json_of_a_run_is_what_the_command_writes(tmp_path: Path) -> None:
    profile = tmp_path / "scan.xplane.pb.gz"
    shutil.copy(SCAN, profile)
    assert main(["analyze", str(profile), "--timeline", "--json", str(tmp_path / "report.json")]) == 0
    with client(profile) as server:
        (row,) = runs(server).values()
        assert server.get(str(row["json"])).content == (tmp_path / "report.json").read_bytes()


def test_the_page_of_a_run_holds_the_bytes_of_its_json(tmp_path: Path) -> None:
    with client(table(tmp_path)) as server:
        (row,) = runs(server).values()
        report = server.get(str(row["json"])).content
        page = server.get(str(row["page"]))
        assert page.status_code == 200
        held = page.text.split('id="report">')[1].split("</script>")[0]
        assert json.loads(held) == json.loads(report)


def test_the_page_of_a_run_allows_its_own_nonce_and_nothing_inline(tmp_path: Path) -> None:
    with client(table(tmp_path)) as server:
        (row,) = runs(server).values()
        server.get(str(row["json"]))
        one, other = (server.get(str(row["page"])) for _ in range(2))
        policies = [answer.headers["content-security-policy"] for answer in (one, other)]
        assert policies[0] != policies[1]  # a nonce is used once
        for answer, policy in zip((one, other), policies, strict=True):
            assert "unsafe" not in policy
            nonce = policy.split("'nonce-")[1].split("'")[0]
            running = answer.text.count("<script type=") - answer.text.count('type="application/json"')
            assert answer.text.count(f'nonce="{nonce}"') == running


def test_a_report_is_shown_as_it_was_written(tmp_path: Path) -> None:
    # It was held against an H200, which a table read again would not be.
    assert main(["analyze", str(table(tmp_path)), "--chip", "h200", "--json", str(tmp_path / "report.json")]) == 0
    with client(tmp_path / "report.json") as server:
        (row,) = runs(server).values()
        assert server.get(str(row["json"])).content == (tmp_path / "report.json").read_bytes()


def test_two_runs_compare_to_what_the_command_says(tmp_path: Path) -> None:
    before, after = table(tmp_path, "before.csv"), table(tmp_path, "after.csv", FASTER)
    assert main(["compare", str(before), str(after), "--json", str(tmp_path / "said.json")]) == 0
    with client(before, after) as server:
        rows = runs(server)
        where = f"/compare/{rows['before.csv']['id']}/{rows['after.csv']['id']}"
        answer = server.get(f"{where}.json")
        assert answer.json() == json.loads((tmp_path / "said.json").read_text())
        assert answer.json()["change_s"] == -0.001
        page = server.get(where)
        assert page.status_code == 200
        assert 'id="before"' in page.text
        assert server.get(f"{where}/state.json").json()["state"] == "ready"


@pytest.mark.parametrize("damage", [b"", b"\x0a\xff\xff\xff\x7f garbage", b"\x1f\x8b\x08 cut"])
def test_a_damaged_profile_is_one_line_on_its_page_and_in_its_json(tmp_path: Path, damage: bytes) -> None:
    profile = tmp_path / "host.xplane.pb"
    profile.write_bytes(damage)
    with client(profile) as server:
        (row,) = runs(server).values()
        told = server.get(str(row["json"]))
        assert told.status_code == 422
        message = told.json()["error"]
        assert "host.xplane.pb" in message
        assert "\n" not in message
        page = server.get(str(row["page"]))
        assert page.status_code == 422
        assert "Traceback" not in page.text
        assert 'role="alert"' in page.text
        assert ("--read salvage -o report.html" in page.text) == ("--read salvage" in message)  # the server itself has no such option
        assert runs(server)["host.xplane.pb"]["state"] == "failed"


def test_a_truncated_profile_shows_the_command_that_reads_the_rest(tmp_path: Path) -> None:
    profile = tmp_path / "a host.xplane.pb"
    profile.write_bytes(gzip.decompress(SCAN.read_bytes())[:200_000])
    with client(profile) as server:
        (row,) = runs(server).values()
        assert "--read salvage" in server.get(str(row["json"])).json()["error"]
        shown = html.unescape(server.get(str(row["page"])).text)
        assert f"roofline analyze '{profile}' --read salvage -o report.html" in shown
        assert "still being written" in shown


def test_a_file_that_went_away_is_gone_and_not_an_error_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(tmp_path)
    with client(tmp_path) as server:
        monkeypatch.setattr(serve, "SCAN_EVERY_S", 3600.0)  # before the next look
        (row,) = runs(server).values()
        path.unlink()
        assert server.get(str(row["page"])).status_code == 410
        assert "no longer exists" in server.get(str(row["json"])).json()["error"]
    table(tmp_path)
    with client(tmp_path) as server:
        monkeypatch.undo()
        (row,) = runs(server).values()
        path.unlink()
        until(lambda: runs(server) == {}, "off the list")
        assert server.get(str(row["page"])).status_code == 404


def test_a_page_hears_that_its_run_has_changed(tmp_path: Path) -> None:
    path = table(tmp_path)
    with client(path) as server:
        (row,) = runs(server).values()
        server.get(str(row["json"]))
        page = server.get(str(row["page"])).text
        events = page.split('data-events="')[1].split('"')[0]
        quiet = server.get(events)
        assert quiet.headers["content-type"].startswith("text/event-stream")
        assert "data:" not in quiet.text
        path.write_text(FASTER + FASTER.splitlines()[1] + "\n")
        assert "data: changed" in server.get(events).text
        assert server.get(str(row["json"])).json()["coverage"] is not None  # read again, not remembered


# What is refused


@pytest.fixture(scope="module")
def shut() -> Iterator[httpx.Client]:
    """A server to be refused by."""
    with TemporaryDirectory() as folder:
        table(Path(folder), "secret.csv", TABLE.replace("matmul", "a secret"))
        with client(Path(folder)) as server:
            yield server


@every("host", ["evil.example", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.example:PORT", "0.0.0.0:PORT", ""])
def test_a_foreign_host_is_refused(shut: httpx.Client, host: str) -> None:
    # A name of somebody else's that points here is how a page elsewhere would read what this server shows.
    status, body = bare(shut, "/index.json", host=host.replace("PORT", str(shut.base_url.port)))
    assert status == 403
    assert "secret" not in body


@every("host", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST"])
def test_this_machine_by_any_of_its_names_is_let_in(shut: httpx.Client, host: str) -> None:
    assert bare(shut, "/", host=f"{host}:{shut.base_url.port}")[0] == 200


def test_a_request_from_a_page_elsewhere_is_refused(shut: httpx.Client) -> None:
    own = f"http://127.0.0.1:{shut.base_url.port}"
    statuses = [bare(shut, "/index.json", origin=origin)[0] for origin in ("https://evil.example", "null", own)]
    assert statuses == [403, 403, 200]


@every("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_but_looking_is_allowed(shut: httpx.Client, method: str) -> None:
    answer = shut.request(method, "/")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


@every(
    "path",
    [
        "/static/../../pyproject.toml",
        "/static/..%2f..%2fpage.py",
        "/static/%2e%2e/page.py",
        "/static//etc/passwd",
        "/static/page.html",  # a part of pages, not a page
        "/run/../../etc/passwd",
        "/run/%2fetc%2fpasswd",
        "/run/..%2f..%2fsecret.csv.json",
        "/run/secret.csv",
        "/run/" + "0" * 16,
        "/run/" + "A" * 16,
        "/compare/" + "0" * 16 + "/" + "../" * 3 + "etc/passwd",
        "/run/%00",
        "/nowhere",
    ],
)
def test_paths_lead_nowhere(shut: httpx.Client, path: str) -> None:
    status, body = bare(shut, path)
    assert status == 404
    assert "secret" not in body


@every("path", ["/", "/index.json", "/nowhere", "/static/live.css", "/static/live_index.js", "/favicon.ico"])
def test_every_answer_carries_the_strict_headers(shut: httpx.Client, path: str) -> None:
    headers = shut.get(path).headers
    strict = {name: value for name, value in HEADERS.items() if name != "cache-control"}
    assert {name: headers[name] for name in strict} == strict
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["cache-control"] in ("no-store", "no-cache")


def test_what_the_asker_has_is_not_sent_again(tmp_path: Path) -> None:
    with client(table(tmp_path)) as server:
        (row,) = runs(server).values()
        for path in (str(row["json"]), "/static/live_index.js"):
            first = server.get(path)
            again = server.get(path, headers={"if-none-match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            assert server.get(path, headers={"if-none-match": '"other"'}).content == first.content


# As a process of its own


def test_the_server_listens_on_loopback_alone(tmp_path: Path) -> None:
    with process(str(tmp_path), "--port", "0") as (_, home):
        port = httpx.URL(home).port
        assert port
        assert httpx.get(f"{home}/index.json", timeout=PATIENCE_S).status_code == 200
        # One that listened on every address would answer on all of 127.x.y.z.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=PATIENCE_S)
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as bare:
            bare.sendall(b"GET /index.json HTTP/1.0\r\n\r\n")  # no Host at all
            assert b"403" in bare.recv(64)
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as bare:
            bare.sendall(f"GET /../../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert b"404" in bare.recv(64)


def test_ctrl_c_stops_the_server_without_a_word(tmp_path: Path) -> None:
    shutil.copy(SCAN, tmp_path)
    with process(str(tmp_path), "--port", "0") as (made, home):
        with httpx.Client(base_url=home, timeout=PATIENCE_S) as server:
            (row,) = runs(server).values()
            assert server.get(str(row["json"]), timeout=PATIENCE_S).status_code == 200
        made.send_signal(signal.SIGINT)
        _, talk = made.communicate(timeout=PATIENCE_S)
        assert (made.returncode, talk) == (0, "")


def test_a_taken_port_is_passed_over_unless_it_was_asked_for() -> None:
    with bind() as first, bind() as second:
        ports = [made.getsockname() for made in (first, second)]
        assert ports[0][0] == ports[1][0] == "127.0.0.1"
        assert ports[0][1] != ports[1][1]
        with pytest.raises(UsageError, match="is in use"):
            bind(ports[0][1])
    with pytest.raises(UsageError, match="between 0 and 65535"):
        bind(70000)


def test_runs_are_read_for_the_machine_of_the_options(tmp_path: Path) -> None:
    with client(table(tmp_path), read=partial(read_run, options("--chip", "v5e"), DEFAULT)) as server:
        (row,) = runs(server).values()
        assert server.get(str(row["json"])).json()["machine"]["name"] == "tpu-v5e"


def test_the_command_passes_its_limits_on(tmp_path: Path) -> None:
    (tmp_path / "ops.csv").write_text("name,time,hbm\na,1,1\nb,1,1\n")
    with (
        process(str(tmp_path), "--port", "0", "--read", "max-rows=1") as (_, home),
        httpx.Client(base_url=home, timeout=PATIENCE_S) as server,
    ):
        (row,) = runs(server).values()
        assert "more than 1 rows" in server.get(str(row["json"])).json()["error"]
