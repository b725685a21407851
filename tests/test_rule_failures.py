"""A rule that fails costs what it would have found and a note, never the report; to the tests and the fuzzer it is a bug."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from every import every
from program_texts import program_text
from recorded_calls import read as read_calls
from roofline import rule_failures
from roofline.analysis import analyze
from roofline.analysis.changes import change
from roofline.analysis.changes.state import State
from roofline.analysis.evidence import with_evidence
from roofline.analysis.what_if import measured_source
from roofline.errors import SourceError
from roofline.hlo import review
from roofline.hlo.read import parse
from roofline.hlo.review import Review, labels
from roofline.machine import Machine
from roofline.machines.calibrations import calibration_for
from roofline.rule_failures import RuleFailures
from roofline.rules import order
from roofline.sources import read
from roofline.sources.embedded import programs_behind
from roofline.sources.torch_trace import rows
from roofline.torch import workload
from roofline.workload import Recording, Workload
from torch_writer import TorchTrace
from xspace_profiles import MICROSECOND, Instruction, annotation, hlo, host, programs, recorded
from xspace_writer import Event

CPU = Machine.of("cpu", {"vector/fp32": "500 GFLOP/s", "hbm": "20 GB/s"}, kind="cpu")
# The sum of the rows is computed twice.
TWICE = program_text("rule_failures/twice.hlo")
FAILED = "the rule for one hot products failed on {} (IndexError); please report it"


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for users: failures are notes."""
    monkeypatch.setattr(rule_failures, "are_raised", False)


def one_hot_products(_: object) -> Iterator[object]:
    """A rule that fails after it found something."""
    yield from ()
    raise IndexError("tuple index out of range")


def program(tmp_path: Path) -> Recording:
    path = tmp_path / "step.hlo"
    path.write_text(TWICE)
    return with_evidence(read(path))


def with_rule(monkeypatch: pytest.MonkeyPatch, rule: Callable[[object], Iterator[object]]) -> None:
    """Another rule before those that look at graphs."""
    monkeypatch.setattr(order, "RULES", (rule, *order.RULES))


def kinds(recording: Recording) -> set[str]:
    return {reason.kind for op in recording.workload for reason in op.avoidable}


def test_the_other_rules_still_find_what_they_find(tmp_path: Path, noted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (kinds(program(tmp_path)), program(tmp_path).notes) == ({"duplicated-work"}, ())
    with_rule(monkeypatch, one_hot_products)
    recording = program(tmp_path)
    assert kinds(recording) == {"duplicated-work"}
    assert recording.notes == (FAILED.format("jit_step"),), "one note, although the program has two computations"
    assert recording.notes[0] in analyze(tmp_path / "step.hlo", "h100").input.notes


def test_a_failure_is_raised_in_the_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_rule(monkeypatch, one_hot_products)
    with pytest.raises(IndexError):
        program(tmp_path)


@every("error", [IndexError, KeyError, ValueError, ZeroDivisionError, TypeError, RecursionError, AssertionError])
def test_whatever_a_damaged_program_leads_to_is_a_note_but_errors_that_say_where_pass(error: type[Exception], noted: None) -> None:
    failures = RuleFailures("jit_f")

    def fail(with_: type[Exception]) -> int:
        raise with_("why")

    assert [failures.attempt("labels", fail, error) for _ in range(2)] == [None, None]
    assert failures.notes == (f"the rule for labels failed on jit_f ({error.__name__}); please report it",)
    assert failures.attempt("labels", len, "four") == 4
    for passing in (SourceError, MemoryError, KeyboardInterrupt):
        with pytest.raises(passing):
            failures.attempt("labels", fail, passing)


def test_ops_without_a_label_have_their_names(tmp_path: Path, noted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("dtype")

    for name in ("label", "wording", "operation", "exchanged"):
        monkeypatch.setattr(review, name, fail)
    recording = program(tmp_path)
    assert [(op.name, str(op.label)) for op in recording.workload] == [("first", "first"), ("second", "second")]
    assert {note.removeprefix("the rule for ").partition(" failed")[0] for note in recording.notes} == {
        "labels",
        "operations",
        "passed arrays",
    }
    assert labels.label is not fail


def test_profiles_that_carry_programs_have_the_note_too(tmp_path: Path, noted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with_rule(monkeypatch, one_hot_products)
    said = {"hlo_op": "add.1", "hlo_module": "jit_f", "program_id": 7, "device_ordinal": 0}
    thunks = [Event("add.1", 100 * run * MICROSECOND, 50, {**said, "run_id": run}) for run in range(3)]
    main = [Instruction("x", "parameter"), Instruction("add.1", "add", ("x", "x"))]
    profile = recorded(tmp_path, host(thunks, [annotation(1, 0, 400 * MICROSECOND)]), programs({7: hlo("jit_f", {"main": main})}))
    recording = with_evidence(profile)
    assert recording.notes.count(FAILED.format("jit_f")) == 1


def trace(path: Path) -> Path:
    wide = (8192, 8192)
    written = TorchTrace()
    for place, name in enumerate(("aten::mul", "aten::add", "aten::relu")):
        written.op(name, 10 * place, 5, [wide], values=["2"])
        written.run("elementwise", launched=10 * place + 1, start=300 * place, dur=100)
    return written.write(path / "trace.json")


def test_traces_have_the_note_and_the_findings_of_other_rules(tmp_path: Path, noted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kinds(with_evidence(read(trace(tmp_path)))) == {"unfused-chain"}
    with_rule(monkeypatch, one_hot_products)
    recording = with_evidence(read(trace(tmp_path)))
    assert kinds(recording) == {"unfused-chain"}
    assert recording.notes.count(FAILED.format("this trace")) == 1


def test_changes_that_review_a_program_note_it(tmp_path: Path, noted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> object:
        raise IndexError("tuple index out of range")

    path = tmp_path / "step.hlo"
    path.write_text(TWICE)
    recording, chip = measured_source(path, "h100")
    state = State(recording, dict(programs_behind(recording, chip, str(path))), chip, calibration_for(chip))
    monkeypatch.setattr(review, "operation", fail)
    change(state, ["scale a[0]=x2"])
    assert "the rule for operations failed on jit_step (IndexError); please report it" in state.failures


def test_functions_have_the_note_and_the_findings_of_other_rules(noted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, kept = read_calls("one_hot")
    with_rule(monkeypatch, one_hot_products)
    failures = RuleFailures("this function")
    ops, graphs = workload.ops_of(calls, kept, None, failures)
    told = with_evidence(Recording(workload=Workload(ops), format="torch", graphs=graphs))
    assert kinds(told) == {"one-hot-product", "unfused-chain"}, "of the other rules"
    assert told.notes == (FAILED.format("this function"),)


@pytest.mark.parametrize("sizes", ["0,10,16", "4,10,0", "0,0,0"])
def test_products_of_empty_arrays_are_none_to_the_rules(sizes: str, tmp_path: Path) -> None:
    rows, depth, columns = sizes.split(",")
    path = tmp_path / "step.hlo"
    path.write_text(f"""HloModule jit_step, is_scheduled=true

ENTRY %main (x: f32[{rows},{depth}], w: f32[{depth},{columns}]) -> f32[{rows},{columns}] {{
  %x = f32[{rows},{depth}]{{1,0}} parameter(0)
  %w = f32[{depth},{columns}]{{1,0}} parameter(1)
  ROOT %y = f32[{rows},{columns}]{{1,0}} dot(%x, %w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
""")
    recording = read(path)
    module = parse(path.read_bytes(), "step.hlo")
    assert Review.of(module, "gpu").product(module.entry, 2) is None
    assert (kinds(recording), recording.notes) == (set(), ())


def test_rules_on_graphs_and_the_graphs_themselves_are_noted(tmp_path: Path, noted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def graph_of(*_: object) -> None:
        raise KeyError("array")

    def told() -> tuple[set[str], str]:
        recording = with_evidence(read(trace(tmp_path)))
        return kinds(recording), recording.notes[-1]

    with_rule(monkeypatch, one_hot_products)
    assert told() == ({"unfused-chain"}, FAILED.format("this trace"))
    monkeypatch.setattr(rows, "graph_of", graph_of)
    assert told() == (set(), "the rule for graphs failed on this trace (KeyError); please report it")
