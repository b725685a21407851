"""`roofline analyze` on real profiles: every device second finds its operation, and no operation beats its roof."""

import csv
import gzip
import json
from pathlib import Path

import pytest

from every import every
from roofline.cli import main

DATA = Path(__file__).parent / "data" / "h200"
Capture = pytest.CaptureFixture[str]

# capture, steps, matrix FLOP a step
TRUTHS = [("jax_train", 6, 13_941_463_842_816), ("jax_scan", 5, 3_573_412_790_272), ("jax_custom", 5, 274_877_906_944)]


def analyzed(capsys: Capture, *words: str) -> dict:
    assert main(["analyze", *words, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


@every(("name", "steps", "flops"), TRUTHS)
def test_real_programs_are_attributed_priced_and_below_their_roofs(capsys: Capture, name: str, steps: int, flops: int) -> None:
    report = analyzed(capsys, str(DATA / f"{name}.xplane.pb.gz"))
    cover = report["coverage"]
    assert cover["attributed_s"] == pytest.approx(cover["busy_s"])
    assert cover["priced_s"] == pytest.approx(cover["busy_s"])
    assert sum(a or 0 for op in report["ops"] for r, a in op["work"].items() if r.startswith("matrix/")) == steps * flops
    assert max(op["efficiency"] for op in report["ops"] if op["efficiency"]) <= 1.02
    assert report["machine"]["name"] == "h200-sxm"  # from the device's own name
    points = [point for point in report["points"] if point["infeed_outfeed"]]
    assert [point["scope"] for point in points] == ["total", "average", *["step"] * steps]
    assert sum(op["self_time_s"] for op in report["ops"]) == pytest.approx(cover["busy_s"], rel=1e-6)


def test_a_log_folder_with_one_run_is_read_and_two_runs_are_refused(capsys: Capture, tmp_path: Path) -> None:
    data = gzip.decompress((DATA / "jax_scan.xplane.pb.gz").read_bytes())
    for run in ("first", "second"):
        folder = tmp_path / "plugins" / "profile" / run
        folder.mkdir(parents=True)
        (folder / "host0.xplane.pb").write_bytes(data)
        if run == "first":
            assert len(analyzed(capsys, str(tmp_path))["ops"]) == 26
    assert main(["analyze", str(tmp_path)]) == 1
    assert "2 runs in this folder" in capsys.readouterr().err


def test_a_cut_off_profile_says_where(capsys: Capture, tmp_path: Path) -> None:
    data = gzip.decompress((DATA / "jax_scan.xplane.pb.gz").read_bytes())
    path = tmp_path / "cut.xplane.pb"
    path.write_bytes(data[: len(data) // 2])
    assert main(["analyze", str(path)]) == 1
    said = capsys.readouterr().err
    assert "cut.xplane.pb" in said
    assert "truncated" in said
    assert said.count("\n") == 1


FUSION, COUNTERS = DATA / "jax_fusion.xplane.pb", DATA.parent / "ncu_jax_fusion.csv.gz"
TENSOR = 32 * 2048 * 4096 * 2  # bytes of the one tensor that every large kernel of that program reads and writes


def test_counters_stand_beside_the_model_and_agree_with_it(capsys: Capture) -> None:
    report = analyzed(capsys, str(FUSION), "--counters", str(COUNTERS))
    assert all(op["counters"]["launches"] == 1 and op["counters"]["of"] == op["count"] == 10 for op in report["ops"])
    for op in report["ops"]:
        modelled, counted = op["bytes"]["hbm"] / 10, op["counters"]["bytes"]["hbm"] / 10
        # The small comparison only writes; the others read half of what they move.
        reads = TENSOR if modelled > 10_000_000 else 0
        assert 0.98 * reads <= counted <= 1.02 * modelled
        if modelled >= 10_000_000:
            assert op["counters"]["ratio"]["hbm"] == pytest.approx(1, abs=0.05)
            assert {"l1", "l2"} <= set(op["counters"]["bytes"])
    points = {point["scope"]: point for point in report["points"]}
    assert list(points) == ["total", "hardware", "average", "step"]
    assert points["hardware"]["time_s"] == points["total"]["time_s"]  # every kernel was counted
    assert points["hardware"]["bytes"]["hbm"] == sum(op["counters"]["bytes"]["hbm"] for op in report["ops"])
    assert report["coverage"]["counted_s"] == pytest.approx(report["coverage"]["busy_s"])
    assert "counters: l2 bytes: reads only" in report["input"]["notes"]


def test_counters_join_the_hosts_of_a_run(capsys: Capture, tmp_path: Path) -> None:
    for number in (0, 1):
        (tmp_path / f"host{number}.xplane.pb").write_bytes(FUSION.read_bytes())
    report = analyzed(capsys, str(tmp_path), "--counters", str(COUNTERS))
    assert {(op["counters"]["launches"], op["counters"]["of"]) for op in report["ops"]} == {(1, 20)}  # ten on each host


def test_the_table_shows_the_model_against_the_counters(capsys: Capture) -> None:
    assert main(["analyze", str(FUSION), "--counters", str(COUNTERS), "--filter", "name:/^fusion.4$/"]) == 0
    said = capsys.readouterr().out
    table = said.partition("Model and hardware counters")[2].partition("\n\n")[0].split("\n")
    assert [line.split()[-3:] for line in table if " hbm " in line] == [["10.51", "GB", "0.979"]]
    assert "hardware" in said


def test_the_time_of_every_point_is_at_the_roofs_or_lost(capsys: Capture) -> None:
    for point in analyzed(capsys, str(DATA / "jax_train.xplane.pb.gz"))["points"]:
        assert point["at_roof_s"] + sum(point["lost"].values()) == pytest.approx(point["time_s"], rel=1e-9)
        assert point["lost"]["idle"] == pytest.approx(point["time_s"] - point["busy_s"])


def test_a_cut_off_profile_is_salvaged_and_says_where_it_ends(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "cut.xplane.pb"
    path.write_bytes(FUSION.read_bytes()[:140_000])
    assert main(["analyze", str(path)]) == 1
    assert "read the rest with --read salvage" in capsys.readouterr().err
    report = analyzed(capsys, str(path), "--read", "salvage")
    assert len(report["ops"]) == 10
    (note,) = [note for note in report["input"]["notes"] if "truncated" in note]
    assert "truncated after 140,000 bytes (in plane '/host:CPU', line 'python3')" in note
    assert "the undamaged part was read" in note


def table_of(capsys: Capture, *words: str) -> list[dict[str, str]]:
    assert main(["analyze", *words, "--csv", "-"]) == 0
    return list(csv.DictReader(capsys.readouterr().out.splitlines()))


def test_a_step_is_one_execution_of_each_of_its_ops(capsys: Capture) -> None:
    rows = table_of(capsys, str(FUSION), "--only", "step=3")
    assert {row["count"] for row in rows} == {"1"}
    assert [row["name"] for row in rows][:2] == ["loop_multiply_fusion", "loop_add_fusion"]  # of the program in four pieces
    assert sum(float(row["hbm"]) for row in rows) == 4 * 2 * TENSOR + 2 * 4096  # the mask of a row is written and read


def test_an_exported_table_is_read_back(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "ops.csv"
    assert main(["analyze", str(FUSION), "--counters", str(COUNTERS), "--csv", str(file)]) == 0
    capsys.readouterr()
    report = analyzed(capsys, str(file), "--chip", "h200")
    assert report["ops"][0]["bytes"]["hbm"] == 10737459200
    assert report["input"]["notes"] == []  # nothing in it was unknown to us


@every(
    ("words", "complaint"),
    [
        (["--columns", "op,bnd"], "no column named 'bnd'; did you mean 'bound'?"),
        (["--columns", "hmb"], "no column named 'hmb'"),
        (["--only", "step=99"], "no step '99'; the steps are 0 to 29"),
        (["--only", "device=7"], "no device 7; the devices are 0"),
        (["--by", "dtype=1"], "only scopes have levels: scope=2"),
    ],
)
def test_a_table_that_cannot_be_is_refused_in_one_line(capsys: Capture, words: list[str], complaint: str) -> None:
    assert main(["analyze", str(FUSION), *words]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


def test_stragglers_are_shown_and_exported(capsys: Capture, tmp_path: Path) -> None:
    for number in (0, 1):
        (tmp_path / f"host{number}.xplane.pb").write_bytes(FUSION.read_bytes())
    rows = table_of(capsys, str(tmp_path), "--stragglers")
    assert len(rows) == 10
    assert {row["spread"] for row in rows} == {"1.0"}  # twice the same host
    assert main(["analyze", str(tmp_path), "--stragglers", "host"]) == 0
    assert "Time per execution across hosts" in capsys.readouterr().out
