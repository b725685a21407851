"""`roofline analyze` on real profiles: every device second finds its operation, and no operation beats its roof."""

import gzip
import json
from pathlib import Path

import pytest

from roofline.cli import main

DATA = Path(__file__).parent / "data" / "h200"
Capture = pytest.CaptureFixture[str]

# capture, steps, matrix FLOP a step
TRUTHS = [("jax_train", 6, 13_941_463_842_816), ("jax_scan", 5, 3_573_412_790_272), ("jax_custom", 5, 274_877_906_944)]


def analysed(capsys: Capture, *words: str) -> dict:
    assert main(["analyze", *words, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("name", "steps", "flops"), TRUTHS, ids=[truth[0] for truth in TRUTHS])
def test_real_programs_are_attributed_priced_and_below_their_roofs(capsys: Capture, name: str, steps: int, flops: int) -> None:
    report = analysed(capsys, str(DATA / f"{name}.xplane.pb.gz"))
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
            assert len(analysed(capsys, str(tmp_path))["ops"]) == 26
    assert main(["analyze", str(tmp_path)]) == 1
    assert "2 runs in this folder" in capsys.readouterr().err


def test_files_of_one_run_are_its_hosts(capsys: Capture, tmp_path: Path) -> None:
    data = gzip.decompress((DATA / "jax_scan.xplane.pb.gz").read_bytes())
    files = [tmp_path / f"host{number}.xplane.pb" for number in (0, 1)]
    for file in files:
        file.write_bytes(data)
    one, both = analysed(capsys, str(files[0])), analysed(capsys, *map(str, files))
    assert both["coverage"]["busy_s"] == pytest.approx(2 * one["coverage"]["busy_s"])
    assert both == {**analysed(capsys, *map(str, reversed(files)))}  # in any order


def test_a_cut_off_profile_says_where(capsys: Capture, tmp_path: Path) -> None:
    data = gzip.decompress((DATA / "jax_scan.xplane.pb.gz").read_bytes())
    path = tmp_path / "cut.xplane.pb"
    path.write_bytes(data[: len(data) // 2])
    assert main(["analyze", str(path)]) == 1
    said = capsys.readouterr().err
    assert "cut.xplane.pb" in said
    assert "truncated" in said
    assert said.count("\n") == 1
