"""Very many ops, kept and placed in columns, give the report that ops placed one by one give, byte for byte."""

import csv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from every import every
from roofline import analysis, folding, placement
from roofline.analysis import assemble, op_rows, placed_ops
from roofline.analysis.placed_columns import place_many
from roofline.analysis.placed_ops import PlacedOps
from roofline.cli import main
from roofline.columns import many_rows
from roofline.columns.lazy_rows import LazyRows
from roofline.columns.op_columns import OpColumns, amounts_of
from roofline.cost import NOTHING, Amount, Cost
from roofline.errors import MachineError
from roofline.machine import Capacity, Machine
from roofline.machines import load
from roofline.placement import IDEAL, Corrections, place_op
from roofline.render.export import to_json
from roofline.render.text import report_text
from roofline.report import Report
from roofline.resource import Resource
from roofline.sources import read, table
from roofline.workload import Avoidable, Op, Recording, Workload

CHIP = replace(
    Machine.of("toy", {"matrix/bf16": 100, "vector/fp32": 20, "hbm": 10, "l2": 40, "ici": 1, "ici/hop": 5}),
    launch_latency_s=0.05,
    capacities=(Capacity(level=Resource("l2"), bytes=50.0, provenance="user"),),
)
RESOURCES = st.sampled_from(["matrix/bf16", "vector/fp32", "vector/transcendental", "hbm", "hbm.read", "l2", "ici", "ici/hop", "dcn"])
# Whole numbers, fractions and numbers beyond what an array holds exactly are all amounts.
AMOUNTS = st.one_of(st.none(), st.integers(0, 1000), st.floats(1e-3, 1e3), st.just(Fraction(1, 3)), st.just(2**60 + 1))
COSTS = st.dictionaries(RESOURCES, AMOUNTS, max_size=4)
TIMES = st.one_of(st.none(), st.just(0.0), st.floats(1e-3, 1e3))
NAMES = st.sampled_from(["fusion", "gemm", "dot.3", "copy"])
OPS = st.lists(st.tuples(COSTS, TIMES, NAMES, st.sampled_from([0, 1, 7])), min_size=1, max_size=30)
WAYS = st.sampled_from([IDEAL, Corrections(overlap=0.5), Corrections(sustained=0.7, launches=3)])
CELLS = {
    "name": st.sampled_from(["fusion.1", "fusion.2", "dot", "dot.clone.3", "layer1/mlp/dot"]),
    "category": st.sampled_from(["", "dot", "infeed", "autotuning", "sort"]),
    "scope": st.sampled_from(["", "layer0/mlp", "layer1/mlp", "head"]),
    "location": st.sampled_from(["", "/app/model.py:3"]),
    "phase": st.sampled_from(["", "forward", "backward"]),
    "module": st.sampled_from(["", "jit_step"]),
    "count": st.sampled_from(["", "0", "1", "3"]),
    "kernels": st.sampled_from(["", "1", "4"]),
    "time": st.sampled_from(["", "?", "0", "0.01", "2 ms", "0.4", "30"]),
    "self_time": st.sampled_from(["", "0.2", "7"]),
    "provenance": st.sampled_from(["", "compiler", "counter"]),
    "dtype": st.sampled_from(["", "bf16", "fp32"]),
    "unit": st.sampled_from(["", "matrix", "vector"]),
    "flops": st.sampled_from(["", "?", "0", "40", "1e3", "0.3333333333"]),
    "bytes": st.sampled_from(["", "0", "3", "3.0000001", "200", "1 kB"]),
    "vector/fp32": st.sampled_from(["", "?", "0", "7", "300"]),
    "l2": st.sampled_from(["", "?", "12"]),
    "ici": st.sampled_from(["", "1", "0.7"]),
    "dcn": st.sampled_from(["", "5", "?"]),
}


@contextmanager
def everything_in_columns() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (table, placed_ops, op_rows, folding):
            patch.setattr(module, "MANY", 0)
        yield


def shown(report: Report) -> tuple[bytes, str]:
    return to_json(report), report_text(report)


def recording(rows: list[tuple[dict[str, float | None], float | None, str, int]]) -> Recording:
    ops = [
        Op(name=f"{name}.{number}", cost=Cost.of({**cost, "hbm": cost.get("hbm") or 3}), time_s=time_s, count=count)
        for number, (cost, time_s, name, count) in enumerate(rows)
    ]
    return Recording(workload=Workload(tuple(ops)), format="table")


@given(OPS, WAYS)
def test_ops_in_columns_give_the_same_report(rows: list[tuple[dict[str, float | None], float | None, str, int]], way: Corrections) -> None:
    given = recording(rows)
    expected = shown(assemble(given, CHIP, way))
    with everything_in_columns():
        found = assemble(given, CHIP, way)
        assert isinstance(found.ops, LazyRows)
        assert shown(found) == expected


@given(st.data(), WAYS)
def test_a_table_in_columns_gives_the_same_report(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, way: Corrections) -> None:
    headers = [
        "name",
        *data.draw(st.lists(st.sampled_from([*CELLS][1:]), min_size=4, unique=True).filter({"time", "bytes", "l2"}.intersection)),
    ]
    rows = data.draw(st.lists(st.tuples(*(CELLS[header] for header in headers)), min_size=1, max_size=12))
    path = tmp_path_factory.getbasetemp() / "ops.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([headers, *rows])
    expected = _told(path, way)
    with everything_in_columns():
        assert isinstance(table.read(path).workload.ops, OpColumns)
        assert _told(path, way) == expected


def test_shares_do_not_depend_on_the_order_in_which_times_are_added(tmp_path: Path) -> None:
    # The last ops have 62.5% of the time: the last digit of the sum decides how that is rounded.
    rows = ("name,self_time,time,bytes", "z,,,", *["a,,0.4,"] * 2, *["a,0.2,,"] * 3, "b,7,,200", *["c,7,,1 kB"] * 2)
    (path := tmp_path / "ops.csv").write_text("\n".join(rows))
    expected = _told(path, IDEAL)
    with everything_in_columns():
        assert _told(path, IDEAL) == expected


def _told(path: Path, way: Corrections) -> tuple[bytes, str] | str:
    try:
        return shown(assemble(table.read(path), CHIP, way))
    except MachineError as error:  # no unit that the program uses is rated
        return str(error)


@every("sample", ["train", "counters"])
def test_a_sample_in_columns_gives_the_same_report(sample: str) -> None:
    given = read(f"sample:{sample}", load("h100"))
    expected = shown(assemble(given, load("h100")))
    with everything_in_columns():
        assert shown(assemble(given, load("h100"))) == expected


def test_rows_are_made_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    ops = [Op(name=f"op{number}", cost=Cost.of({"matrix/bf16": 50, "hbm": 20 + number}), time_s=30.0 + number) for number in range(100)]
    whole = op_rows.op_info
    monkeypatch.setattr(op_rows, "op_info", lambda one, *rest: made.append(one.id) or whole(one, *rest))
    with everything_in_columns():
        report = assemble(Recording(workload=Workload(tuple(ops)), format="table"), CHIP)
        report_text(report, top=5)
    assert made == [99, 98, 97, 96, 95]
    assert [op.name for op in report.ops[:2]] == ["op99", "op98"]
    assert len(pytest.importorskip("pandas").DataFrame(report.ops)) == 100


def test_folded_ops_with_unneeded_work_are_summed_without_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    again = Avoidable(kind="recomputation", instead=NOTHING, unneeded="recomputed")
    cost = Cost.of({"matrix/bf16": 50, "hbm": 20})
    ops = [
        Op(name=f"dot.{n}", label=f"layer{n}/mlp  dot", scope=f"layer{n}/mlp", cost=cost, time_s=30.0, avoidable=(again,) * (n % 2))
        for n in range(100)
    ]
    given = Recording(workload=Workload(tuple(ops)), format="table")
    expected = report_text(assemble(given, CHIP))
    made: list[int] = []
    whole = op_rows.op_info
    monkeypatch.setattr(op_rows, "op_info", lambda one, *rest: made.append(one.id) or whole(one, *rest))
    with everything_in_columns():
        found = report_text(assemble(given, CHIP))
    assert "recomputed 50% of FLOP" in found
    assert found == expected
    assert made == [0]  # of the one row that is shown


def test_equal_ops_are_predicted_and_rated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Cost] = []
    predicted: list[str] = []
    less = Avoidable(kind="recomputation", instead=Cost.of({"hbm": 7}), unneeded="recomputed")
    ops = [Op(name=f"op{n}", cost=Cost.of({"hbm": 20}), time_s=30.0, avoidable=(less,)) for n in range(10)]
    monkeypatch.setattr(placement, "place_op", lambda cost, *rest: held.append(cost) or place_op(cost, *rest))
    monkeypatch.setattr(analysis, "predict_op", lambda op, *rest: predicted.append(op.name))
    assemble(Recording(workload=Workload(tuple(ops)), format="table"), CHIP)
    assert predicted == ["op0"]
    assert held.count(less.instead) == 2  # for the needed work, and for what a finding saves


def test_the_amounts_of_a_cost_that_ops_share_are_read_once() -> None:
    read = 0

    class Counted(Cost):
        def items(self) -> Iterable[tuple[Resource, Amount | None]]:
            nonlocal read
            read += 1
            return self.amounts

    cost = Counted(Cost.of({"hbm": 20, "l2": 30}).amounts)
    found = amounts_of([Op(name="op", cost=cost)] * 100, range(100))
    assert found == {Resource("hbm"): [20] * 100, Resource("l2"): [30] * 100}
    assert read == 1


def test_ops_whose_numbers_no_array_holds_are_placed_one_by_one() -> None:
    ops = [Op(name="op", cost=Cost.of({"hbm": amount}), time_s=3.0) for amount in (20, 0.5, Fraction(1, 3), 2**60 + 1)]
    with everything_in_columns():
        placed = PlacedOps(ops, CHIP, IDEAL)
    assert placed.floor_s == [place_op(op.cost, CHIP).floor_s for op in ops]
    found = place_many(ops, CHIP)
    assert found is not None
    assert found.alone == [2, 3]


@pytest.mark.parametrize(
    "words", ["--anonymize --anonymize-key k", "--by scope", "--unfold", "--name nothing", "--chart", "--json -", "--csv -"]
)
def test_every_view_of_ops_in_columns_is_the_same(words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ops.csv"
    path.write_text("name,scope,time,flops,bytes\n" + "".join(f"dot.{n},layer{n}/mlp,{n + 3} us,1e{n + 6},4e6\n" for n in range(6)))
    command = ["analyze", str(path), "--chip", "h200", *words.split()]
    assert main(command) == 0
    expected = capsys.readouterr()
    with everything_in_columns():
        assert main(command) == 0
    assert capsys.readouterr() == expected


AMOUNTS = st.one_of(
    st.floats(0, 1e300),
    st.integers(0, 10**30),
    st.sampled_from(
        [None, 1.0, 1e9, 999999.5, 9999995.0, 1234565, 1234575, 12345.65, 1e-300, 5e-324, 0.1, 1e22, 123456, 123456.4999999999]
    ),
    st.sampled_from([123456.5, 123456.49999999999, 1e5, 99999.95, 99999.94999999]),
)


@given(st.lists(st.tuples(AMOUNTS, st.sampled_from([0, 1, 3, 7.5])), min_size=1))
def test_rows_have_the_same_code_where_their_amounts_are_written_alike(rows: list[tuple[float | None, float]]) -> None:
    amounts, counts = [amount for amount, _ in rows], [count for _, count in rows]
    codes = many_rows._amount_codes(amounts, counts, np.array([count or 1.0 for count in counts])).tolist()
    words = folding._rounded(amounts, counts)
    pairs = [*zip(words, codes, strict=True)]
    assert len({*pairs}) == len({*words}) == len({*codes})


def test_rows_with_the_same_words_and_digits_are_of_one_kind() -> None:
    words = [["dot", "dot", "copy", "dot"]]
    # 10 and 20 in two executions are 10 each; 10.00001 differs from 10 in the seventh digit, 10.001 in the fifth.
    amounts = [[10.0, 20.0, 10.0, 10.001], [10.00001, 20.0, 10.0, 10.0]]
    assert many_rows.same_rows(words, amounts, [1, 2, 1, 1]) == ([0, 1], [0, 0])
