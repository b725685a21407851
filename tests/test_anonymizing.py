"""A report that leaves the house names nobody's code, files or hosts, and is otherwise the same."""

import json
import re
from pathlib import Path

import msgspec
import pytest

import roofline as rl
from every import every
from roofline.analysis.anonymizing import NOTE, anonymized
from roofline.cli import main
from roofline.cost import NOTHING, Cost
from roofline.machine import Machine
from roofline.report import Finding, IdleInfo, Report
from roofline.workload import Avoidable, Op, Recording, Workload

DATA = Path(__file__).parent / "data"
SECRET = ("secret", "falcon", "gandalf", "mordor", "alice")


@pytest.fixture
def report(tmp_path: Path) -> Report:
    path = tmp_path / "secret_falcon.jsonl"
    rows = [
        {
            "name": f"secret_kernel.{n}",
            "category": "dot",
            "module": "jit_gandalf",
            "scope": f"falcon/layer_{n}/mordor/dot_general",
            "location": f"/home/alice/falcon_model.py:{n + 7}",
            "time": 1e-3 * (n + 1),
            "flops": 1e9,
            "bytes": 1e8,
            "dtype": "bf16",
        }
        for n in range(4)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return rl.analyze(path, Machine.of("falcon-card", {"matrix/bf16": 1e14, "hbm": 1e12}))


def test_no_name_of_the_users_is_left_anywhere(report: Report) -> None:
    told = rl.to_json(anonymized(report)).decode()
    assert any(word in rl.to_json(report).decode() for word in SECRET)
    assert [word for word in SECRET if word in told.lower()] == []
    assert NOTE in told
    for view in (rl.text(anonymized(report)), str(anonymized(report))):
        assert [word for word in SECRET if word in view.lower()] == []


def test_every_figure_and_what_xla_calls_things_stays(report: Report) -> None:
    told = anonymized(report)
    for before, after in zip(report.ops, told.ops, strict=True):
        texts = dict.fromkeys(("name", "module", "scope", "location", "label", "where", "does"), "")
        assert msgspec.structs.replace(before, **texts, notes=()) == msgspec.structs.replace(after, **texts, notes=())
        assert after.scope.endswith("/dot_general")
        # falcon/layer_2/mordor/…: the layer's number stays, and the line's.
        assert re.search(r"/scope-[a-p]{8}_\d/", after.scope)
        assert after.location.rpartition(":")[2] == before.location.rpartition(":")[2]
    assert told.points == report.points


@every(
    ("activity", "told"),
    [
        ("load_mordor", "F"),
        ("falcon.read, called from f", "F, called from F"),
        ("time.sleep, called from load_mordor", "time.sleep, called from F"),
        ("gandalf, called from f, argument 0: bf16[8,4], bf16[9,4]", "F, called from F, argument 0: bf16[8,4], bf16[9,4]"),
        ("gandalf, which calls item() on a device value", "F, which calls item() on a device value"),
        ("copies to the device, called from <lambda>", "copies to the device, called from <lambda>"),
        ("code between launches (Python not recorded: with_stack=True)",) * 2,
    ],
)
def test_functions_of_the_host_have_pseudonyms_in_reasons_and_in_messages(report: Report, activity: str, told: str) -> None:
    reason = IdleInfo(reason="input", activity=activity, location="/home/alice/data.py:3", time_s=1.0, gaps=1)
    finding = Finding(kind="idle-input", title="the input", message=f"the host was in {activity} (data.py:3).")
    found = anonymized(msgspec.structs.replace(report, idle=(reason,), findings=(finding,)))
    (said,) = found.idle
    assert re.sub(r"function-[a-p]{8}", "F", said.activity) == told
    assert f"the host was in {said.activity} (" in found.findings[0].message


def test_one_name_has_one_stand_in_with_a_key_and_another_with_another(report: Report) -> None:
    once, again, other = anonymized(report, "k"), anonymized(report, "k"), anonymized(report, "l")
    assert once == again
    assert {op.module for op in once.ops} != {op.module for op in other.ops}
    assert len({op.module for op in once.ops}) == 1


def test_the_option_reaches_every_output(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "falcon.csv").write_text("name,module,scope,time,hbm\ngandalf,jit_falcon,mordor/add,1 ms,1e9\n")
    words = ["analyze", "falcon.csv", "--chip", "h100", "--anonymize", "--json", "r.json", "--csv", "r.csv", "-o", "r.html"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert "what remains" in said.err
    for text in (said.out, *(Path(name).read_text() for name in ("r.json", "r.csv", "r.html"))):
        assert [word for word in ("gandalf", "mordor", "jit_falcon", "falcon.csv") if word in text] == []
    # A report that was written earlier is anonymized too.
    assert main(["analyze", "falcon.csv", "--chip", "h100", "--json", "named.json"]) == 0
    assert main(["analyze", "named.json", "--anonymize", "--json", "-"]) == 0
    assert "gandalf" not in capsys.readouterr().out.partition('"schema"')[2]


def test_a_real_profile_keeps_its_findings(capsys: pytest.CaptureFixture[str]) -> None:
    report = rl.analyze(DATA / "h200" / "jax_scan.xplane.pb.gz")
    told = anonymized(report)
    assert [finding.kind for finding in told.findings] == [finding.kind for finding in report.findings]
    files = {op.location.partition(":")[0] for op in report.ops if op.location}
    assert files
    assert [file for file in files if file in rl.to_json(told).decode()] == []


def test_facts_about_avoidable_work_are_pseudonyms_too() -> None:
    facts = {"kernel": "secret_kernel.3", "caller": "falcon_model.py:7", "number": "bf16", "elements": 7}
    reason = Avoidable(kind="duplicated-work", instead=NOTHING, facts=facts, why="copies gandalf_weights in /home/alice/falcon.py:7")
    ops = Op(name="gandalf_weights", cost=Cost.of({"hbm": 1e9}), time_s=1.0, avoidable=(reason,)), Op(name="secret_kernel.3", cost=NOTHING)
    made = anonymized(rl.analyze(Recording(workload=Workload(ops), format="table"), rl.chip("h200")))
    assert [word for word in SECRET if word in rl.to_json(made).decode().lower()] == []
    told = made.ops[0].avoidable[0].facts
    assert (told["kernel"], told["number"], told["elements"]) == (made.ops[1].name, "bf16", 7)
