"""Tables of ops: what people write in a spreadsheet becomes costs and times, and mistakes name their row and column."""

import gzip
import io
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from every import every
from roofline import analyze
from roofline.errors import RooflineError, SourceError
from roofline.render.export import to_parquet
from roofline.selection import narrow
from roofline.sources import read
from roofline.sources.table.recording import _name_and_unit
from roofline.workload import Op

SAMPLE = Path(__file__).parent.parent / "src" / "roofline" / "samples" / "gpt_training_h200.csv"


def ops_of(tmp_path: Path, text: str, name: str = "ops.csv") -> tuple[Op, ...]:
    path = tmp_path / name
    path.write_text(text)
    return read(path).workload.ops


def test_quantities_carry_their_units(tmp_path: Path) -> None:
    (op,) = ops_of(tmp_path, "name,time,flops,dtype,bytes\nffn,3.1 ms,2.2 TFLOP,bf16,12 GB\n")
    assert (op.name, op.time_s, op.cost["matrix/bf16"], op.cost["hbm"]) == ("ffn", 0.0031, 2.2e12, 12e9)


def test_bare_numbers_are_in_base_units_or_in_the_columns(tmp_path: Path) -> None:
    (op,) = ops_of(tmp_path, "name,time [ms],flops,bytes (GiB)\nx,3,5e9,2\n")
    assert (op.time_s, op.cost["matrix/bf16"], op.cost["hbm"]) == (0.003, 5e9, 2 * 2**30)


def test_a_column_may_be_any_resource(tmp_path: Path) -> None:
    (op,) = ops_of(tmp_path, "name;matrix/fp8;vector/fp32;hbm;l2;nvlink;ici/hop\nx;1 TFLOP;2 GFLOP;1 GB;3 GB;1 MB;4\n")
    assert [str(resource) for resource in op.cost] == ["hbm", "ici/hop", "l2", "matrix/fp8", "nvlink", "vector/fp32"]
    assert op.cost["ici/hop"] == 4


def test_unknown_is_kept_apart_from_zero(tmp_path: Path) -> None:
    ops = ops_of(tmp_path, "name,time,flops,hbm\nempty,1 ms,,5 GB\nasked,1 ms,?,\nzero,,0,?\n")
    assert [op.cost["matrix/bf16"] for op in ops] == [None, None, 0]
    assert [op.cost["hbm"] for op in ops] == [5e9, 0, None]  # empty in a resource's own column is 0
    assert [op.time_s for op in ops] == [0.001, 0.001, None]


def test_a_table_without_arithmetic_leaves_it_unknown(tmp_path: Path) -> None:
    (op,) = ops_of(tmp_path, "name,time,bytes\nx,1 ms,1 GB\n")
    assert op.cost.flops is None
    assert not op.priced


def test_json_lines_and_json_say_the_same_as_csv(tmp_path: Path) -> None:
    rows = [{"name": "a", "time": "1 ms", "hbm": 5}, {"name": "b", "time": 0.002, "hbm": None}]
    whole = ops_of(tmp_path, json.dumps(rows), "ops.json")
    lines = ops_of(tmp_path, "\n".join(map(json.dumps, rows)), "ops.jsonl")
    assert whole == lines
    assert [op.cost["hbm"] for op in whole] == [5, None]


def test_parquet_is_read(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"name": ["a", "b"], "time": [0.001, None], "matrix/bf16": [1e12, 2e12]})
    parquet.write_table(table, tmp_path / "ops.parquet")
    first, second = read(tmp_path / "ops.parquet").workload.ops
    assert (first.time_s, second.time_s, second.cost["matrix/bf16"]) == (0.001, None, 2e12)


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on processes")
def test_parquet_is_read_where_processes_have_lower_limits_than_its_reader_wants(tmp_path: Path) -> None:
    (tmp_path / "ops.parquet").write_bytes(to_parquet([{"name": "a", "time": 0.001}]))
    limited = (
        "import resource, sys, roofline; resource.setrlimit(resource.RLIMIT_CPU, (50, 50)); "
        "print(roofline.read(sys.argv[1]).workload.ops[0].name)"
    )
    words = [sys.executable, "-c", limited, str(tmp_path / "ops.parquet")]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "a\n"


def test_damaged_parquet_is_one_line(tmp_path: Path) -> None:
    whole = to_parquet([{"name": f"op {row}", "time": 0.001} for row in range(9)])
    letters = whole.replace(b"op 0", b"op \xff")  # which is not UTF-8
    for damaged in (whole[:-1], whole[:4], letters):
        (tmp_path / "ops.parquet").write_bytes(damaged)
        with pytest.raises(SourceError, match=r"ops.parquet: not a readable Parquet file: .+"):
            read(tmp_path / "ops.parquet")


def test_parquet_keeps_whole_numbers_while_they_fit() -> None:
    from pyarrow import parquet

    cells = {"fit": [2**60 + 1, 1], "mixed": [2**60 + 1, 0.5], "long": [2**70, None], "fraction": [Fraction(1, 2), 1]}
    rows = [{name: column[row] for name, column in cells.items()} for row in range(2)]
    back = parquet.read_table(io.BytesIO(to_parquet(rows))).to_pydict()
    assert back == {**cells, "mixed": [float(2**60 + 1), 0.5]}
    assert {name: type(column[0]) for name, column in back.items()} == {"fit": int, "mixed": float, "long": float, "fraction": float}


def test_gzip_is_opened(tmp_path: Path) -> None:
    (tmp_path / "ops.csv.gz").write_bytes(gzip.compress(b"name,time,hbm\nx,1 ms,1 GB\n"))
    assert read(tmp_path / "ops.csv.gz").workload.ops[0].cost["hbm"] == 1e9


def test_rows_of_one_op_in_several_steps_are_added_up(tmp_path: Path) -> None:
    (op,) = ops_of(tmp_path, "name,step,device,count,time,hbm\nx,1,0,2,1 ms,1 GB\nx,2,0,3,2 ms,1 GB\n")
    assert (op.count, op.time_s, op.cost["hbm"]) == (5, 0.003, 2e9)
    assert [(share.key, share.count) for share in op.by_step] == [(1, 2), (2, 3)]
    assert [(share.key, share.count) for share in op.by_device] == [(0, 5)]


def test_the_sample_of_real_counters_is_read_whole() -> None:
    recording = read(SAMPLE)
    # The first 200 kernels of a training step whose products are 13.94 TFLOP: tensor-core counters see 13.72 of them.
    assert recording.workload.cost["matrix/bf16"] == pytest.approx(13.7176e12, rel=1e-4)
    assert sum(op.count for op in recording.workload) == 200
    assert recording.coverage.priced_s == recording.coverage.busy_s


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name,time,hbm\nx,3 GHz,1\n", r"ops.csv: row 1: column 'time': '3 GHz' is in Hz, not in s"),
        ("name,time,hbm\nok,1,1\nx,-1 ms,1\n", r"row 2: column 'time': '-1 ms' is negative"),
        ("name,tme,hbm\nx,1,1\n", r"unknown column 'tme'; did you mean 'time'"),
        ("name,time,hbm\nx,1\n", r"line 2: 2 cells, but the header has 3"),
        ("name,time,hbm\n", r"the table has no rows"),
        ("name,color\nx,red\n", r"no column with a time, FLOP or bytes"),
        ("name,time,flops,dtype\nx,1,1,bf61\n", r"row 1: no number format named 'bf61'; did you mean"),
        ("name,time,hbm,bytes\nx,1,1,1\n", r"'bytes' and 'hbm' are both"),
        ("name,time,hbm\n,1,1\n", r"row 1: no name"),
        ("name,time,flops,unit\nx,1,1,hbm\n", r"unit 'hbm' is not a compute unit"),
        ('{"name": 1', r"not JSON at line 1"),
        ("[1, 2]", r"a JSON table is a list of objects"),
        ("", r"the file is empty"),
        ("PAR1nonsense", r"not a readable Parquet file"),
        ("hello world\n", r"unknown format"),
        ("step,time,flops\n1,2,3\n", r"no column 'name'; found 'step', 'time', 'flops'"),
    ],
)
def test_a_bad_table_says_where_and_what(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SourceError, match=says) as error:
        ops_of(tmp_path, text)
    assert "\n" not in str(error.value)


def test_a_time_may_have_its_unit_after_an_underscore(tmp_path: Path) -> None:
    for header in ("time_us", "duration_us", "TIME_US", "time [us]"):
        (op,) = ops_of(tmp_path, f"name,{header},hbm\nx,25,1\n")
        assert op.time_s == pytest.approx(25e-6)
    (op,) = ops_of(tmp_path, "name,time_s,self_time_ms,hbm\nx,2,500,1\n")
    assert (op.time_s, op.self_time_s) == (2.0, 0.5)


def test_only_rows_with_flop_lack_a_number_format(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text("name,time,flops,hbm,dtype\ndot,1,5,1,\ncopy,1,0,1,\nunknown,1,,1,\nother,1,5,1,fp32\n")
    assert read(path).notes == ("1 of 4 rows have FLOP but no dtype; assuming bf16",)


def test_columns_nobody_understands_are_said(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text("name,time,hbm,grid size\nx,1,1,128\n")
    assert read(path).notes == ("ignored columns: grid size",)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda t: ("name,time,hbm\n" + t).encode())))
def test_any_bytes_give_a_workload_or_a_source_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "any"
    path.write_bytes(data)
    try:
        read(path)
    except SourceError:
        pass
    except RooflineError as error:  # pragma: no cover
        raise AssertionError(f"not a SourceError: {error!r}") from error


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_step_and_device_together_give_the_time_of_that_part(tmp_path: Path, kind: str) -> None:
    rows = [{"name": "x", "step": step, "device": device, "time": 10 * step + device, "hbm": 1} for step in (3, 4) for device in (0, 1)]
    rows.append({"name": "x", "step": 3, "device": 0, "time": 100, "hbm": 1})
    path = tmp_path / f"ops.{kind}"
    lines = ["name,step,device,time,hbm", *(",".join(map(str, row.values())) for row in rows)]
    path.write_text(json.dumps(rows) if kind == "json" else "\n".join(lines))
    report = analyze(path, "h200")
    # In step 3 on device 0 it took 30 s, and 100 s in a second row.
    assert [(op.time_s, op.count) for op in narrow(report, step=[3], device=[0])] == [(130, 2)]
    assert [op.time_s for op in narrow(report, step=[4], device=[0, 1])] == [40 + 41]
    assert [op.time_s for op in narrow(report, device=[1])] == [31 + 41]


def test_a_table_of_one_device_has_no_table_of_steps_and_devices(tmp_path: Path) -> None:
    (op,) = ops_of(tmp_path, "name,step,device,time,hbm\nx,1,0,1 ms,1 GB\nx,2,0,2 ms,1 GB\n")
    assert op.by_step_and_device == ()


@every(
    ("header", "told"),
    [
        ("time [ms]", ("time", "ms")),
        ("time (ms) ", ("time", "ms")),
        ("time[ ms ]", ("time", "ms")),
        ("time []", ("time", "")),
        ("[ms]", ("[ms]", "")),
        ("a [b] (c)", ("a [b]", "c")),
        ("a ((c)", ("a", "(c")),
        ("a b", ("a b", "")),
        ("a ]", ("a ]", "")),
    ],
)
def test_the_unit_is_what_the_last_brackets_of_a_header_hold(header: str, told: tuple[str, str]) -> None:
    assert _name_and_unit(header) == told


def test_blanks_and_the_apostrophes_of_spreadsheets_are_no_part_of_a_cell(tmp_path: Path) -> None:
    ops = ops_of(tmp_path, "name, time,flops,bytes\r\n# a comment\r\n\r\n'=a,1,1e3,1\r\nb , '+2, 7 ,2\r\n")
    assert [(op.name, op.time_s, op.cost["matrix/bf16"]) for op in ops] == [("=a", 1.0, 1000.0), ("b", 2.0, 7.0)]


def test_lines_of_json_with_words_that_only_python_reads_are_read(tmp_path: Path) -> None:
    path = tmp_path / "ops.jsonl"
    path.write_text('{"name": "a", "time": 1, "bytes": NaN}\n{"name": " b\\ud800 ", "time": "2 ms", "bytes": 7}\n')
    first, second = read(path).workload.ops
    assert (first.name, first.time_s, first.cost["hbm"]) == ("a", 1.0, None)
    assert (second.name, second.time_s, second.cost["hbm"]) == ("b\ufffd", 0.002, 7)
