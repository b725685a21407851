"""Reports that earlier versions wrote are read, checked and compared as today's are."""

from pathlib import Path

import pytest

import roofline as rl
from roofline.cli import main
from roofline.sources.report_json import read_report

FOLDER = Path(__file__).parent / "data" / "reports"
TABLE = "name,flops,hbm,time,count,category\nattention,2e12,4e9,4 ms,2,matmul\nnorm,1e9,6e9,3 ms,2,loop fusion\ncopy,0,2e9,1 ms,1,copy\n"
TABLES = sorted(FOLDER.glob("table-*"))
PROFILES = sorted(FOLDER.glob("profile-*"))


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.stem)
def test_a_report_on_a_table_is_the_one_of_today(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = read_report(file)
    assert rl.check(old, "time = 8 ms, flops = 2001 GFLOP, hbm = 12 GB, minimum time < 8 ms").holds
    (tmp_path / "ops.csv").write_text(TABLE)
    assert main(["analyze", str(tmp_path / "ops.csv"), "--chip", "h100", "--json", str(tmp_path / "new.json")]) == 0
    assert main(["compare", str(file), str(tmp_path / "new.json"), "--require", "time +0%, hbm +0%, flops +0%, launches +0%"]) == 0
    assert main(["compare", str(tmp_path / "new.json"), str(file), "--require", "minimum time +0.1%, efficiency +0.1%"]) == 0
    assert main(["analyze", str(file)]) == 0
    assert "attention" in capsys.readouterr().out


@pytest.mark.parametrize("file", PROFILES, ids=lambda file: file.stem)
def test_a_report_on_a_profile_has_its_ops(file: Path, tmp_path: Path) -> None:
    # The times and FLOP of the run are facts of the profile; how it is cut into steps has been refined since.
    old, new = read_report(file), rl.analyze(FOLDER.parent / "h200" / "jax_cond.xplane.pb.gz")
    assert {(op.name, op.count) for op in old.ops} == {(op.name, op.count) for op in new.ops}
    for amount in ("time_s", "flops"):
        totals = [sum(getattr(op, amount) or 0 for op in report.ops) for report in (old, new)]
        assert totals[0] == pytest.approx(totals[1], rel=0.01)
    assert rl.check(old, "launches > 0, step > 0 s").holds
    assert main(["compare", str(file), str(FOLDER.parent / "h200" / "jax_cond.xplane.pb.gz"), "-o", str(tmp_path / "comment.md")]) == 0
    assert main(["analyze", str(file), "-o", str(tmp_path / "page.html")]) == 0


def test_every_version_is_read() -> None:
    assert len(TABLES) == 4
    assert len(PROFILES) == 2
