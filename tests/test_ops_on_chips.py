"""Operations by chips: rates, shares of the peak and bounds, as a table, JSON and CSV; and comparisons of many chips."""

import json
from functools import partial
from pathlib import Path

import pytest

import roofline as rl
from roofline.analysis.ops_on_chips import ChipChoice, OpOnChip, ops_on_chips
from roofline.cli import main
from roofline.cli.formula import spelled
from roofline.errors import MachineError
from roofline.machine import Machine
from roofline.render.machines import comparison_text
from roofline.render.tables import Paper

Capture = pytest.CaptureFixture[str]
NINE = "v7x,v6e,v5p,v5e,v4,v3,h100,h200,b200"


def placed(chips: list[ChipChoice], *words: str) -> dict[tuple[str, str], OpOnChip]:
    return {(one.operation, one.chip): one for one in ops_on_chips([partial(spelled, each) for each in words], chips)}


def test_the_published_table_of_operations_by_chips_is_reproduced() -> None:
    # The table of a guide to rooflines, in TFLOP/s, percent of the matrix peak and bound; its chips have these rates of HBM.
    hbm = {"v7x": "7.2 TB/s", "v6e": "1.6 TB/s", "v5p": "2.76 TB/s"}
    plain = [ChipChoice.of(rl.chip(name).override({"hbm": rate})) for name, rate in hbm.items()]
    chips = [ChipChoice.of(rl.chip("v7x").override({"hbm": "7.2 TB/s"}), "fp8"), *plain]
    printed = {
        "layernorm 65536 4096 --reads 2": [(12, 0, "hbm"), (12, 1, "hbm"), (3, 0, "hbm"), (5, 1, "hbm")],
        "matmul 1024 128 2048": [(776, 17, "hbm"), (776, 34, "hbm"), (172, 19, "hbm"), (297, 65, "hbm")],
        "matmul 600 600 600": [(1440, 31, "hbm"), (1440, 62, "hbm"), (320, 35, "hbm"), (459, 100, "matrix")],
        "matmul 65536 4096 16384": [(4614, 100, "matrix"), (2307, 100, "matrix"), (918, 100, "matrix"), (459, 100, "matrix")],
    }
    found = placed(chips, *printed)
    for words, cells in printed.items():
        each = [found[words, chip.machine.name] for chip in chips]
        assert [(round((one.rate or 0) / 1e12), round(100 * (one.peak_share or 0)), one.bound) for one in each] == cells, words


def test_the_share_is_of_the_peak_in_the_format_of_the_operation() -> None:
    # 8-bit products run at twice the rate on h100; at the bf16 peak they would have 200%.
    one = placed([ChipChoice.of(rl.chip("h100"))], "matmul 16384 16384 16384 --dtype int8")[
        "matmul 16384 16384 16384 --dtype int8", "h100-sxm"
    ]
    assert (one.peak_of, one.peak_share, one.bound) == ("matrix/int8", 1.0, "matrix")


def test_work_besides_products_does_not_lift_the_share_above_the_peak() -> None:
    # Softmax runs on the vector unit at the same time: all FLOP together are faster than the matrix peak, those of the products are not.
    words = "attention 8 32 4096 4096 128"
    one = placed([ChipChoice.of(rl.chip("h100"))], words)[words, "h100-sxm"]
    assert one.rate is not None
    assert one.peak is not None
    assert one.rate > one.peak
    assert one.peak_share == 1.0


def test_work_that_the_chip_has_no_rate_for_is_named_and_gives_no_rate() -> None:
    words = "matmul 600 600 600"
    one = placed([ChipChoice.of(Machine.of("bare", {"hbm": 10, "matrix/fp8": 100}))], words)[words, "bare"]
    assert (one.rate, one.peak_share, one.bound, one.minimum_s, one.unrated) == (None, None, None, None, ("matrix/bf16",))


def test_a_chip_without_the_number_format_is_an_error() -> None:
    with pytest.raises(MachineError, match="tpu-v4 has no known rate for matrix/fp8"):
        ChipChoice.of(rl.chip("v4"), "fp8")


def test_the_command_writes_the_table_json_and_csv(capsys: Capture, tmp_path: Path) -> None:
    words = ["chips", "--compare", "v7x:fp8,v6e", "matmul 600 600 600", "copy 1e6"]
    assert main([*words, "--json", str(tmp_path / "ops.json"), "--csv", str(tmp_path / "ops.csv")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["operation", "FLOP/B", "tpu-v7x", "fp8", "tpu-v6e"]
    # 200 FLOP/B x 7.38 TB/s = 1.476 PFLOP/s, 32% of 4.614; a copy has no FLOP, so that its time stands there: 4 MB at 7.38 TB/s.
    assert lines[1].split() == ["matmul", "600", "600", "600", "200", "1.476", "PFLOP/s", "32%", "hbm", "327.6", "TFLOP/s", "36%", "hbm"]
    assert lines[2].split()[:6] == ["copy", "1e6", "–", "542", "ns", "hbm"]
    written = json.loads((tmp_path / "ops.json").read_text())
    assert [one["name"] for one in written["machines"]] == ["tpu-v7x fp8", "tpu-v6e"]
    assert [(one["operation"], one["chip"]) for one in written["operations"]] == [
        (operation, chip) for operation in words[3:] for chip in ("tpu-v7x fp8", "tpu-v6e")
    ]
    header, first, *_ = (tmp_path / "ops.csv").read_text().splitlines()
    assert header.startswith("operation,chip,flops,bytes,intensity,rate,peak,peak_of,peak_share,bound,minimum_s")
    assert first.startswith("matmul 600 600 600,tpu-v7x fp8,432000000,2160000,200.0,")


def test_operations_off_the_roofs_drawn_are_not_marked_in_the_figure(capsys: Capture, tmp_path: Path) -> None:
    words = ["chips", "--compare", "h100,h200", "matmul 600 600 600", "matmul 8192 8192 8192 --dtype int8", "-o", str(tmp_path / "ops.svg")]
    assert main(words) == 0
    assert (
        "not in the figure, as their rates are not those of the roofs drawn: matmul 8192 8192 8192 --dtype int8\n"
        in capsys.readouterr().err
    )


def test_nine_chips_have_every_label_in_full() -> None:
    text = comparison_text([rl.chip(name) for name in NINE.split(",")], Paper(width=160))
    assert "…" not in text
    assert all(len(line) <= 160 for line in text.splitlines() if not line.startswith("note"))
    names = [f"ridge {resource}, FLOP/B" for resource in ("matrix/bf16", "matrix/fp8", "matrix/int8", "vector/fp32")]
    assert all(name in text for name in names)
    headers = [name for line in text.splitlines() if line.startswith("   ") for name in line.split()]
    assert headers == ["tpu-v7x", "tpu-v6e", "tpu-v5p", "tpu-v5e", "tpu-v4", "tpu-v3", "h100-sxm", "h200-sxm", "b200"]


def test_a_number_format_after_a_chip_leaves_its_matrix_rate_alone(capsys: Capture) -> None:
    assert main(["chips", "--compare", "v7x:fp8,v7x"]) == 0
    rows = {line.split("  ")[0]: line.split()[-2:] for line in capsys.readouterr().out.splitlines()}
    assert rows["ridge matrix/fp8, FLOP/B"] == ["625.2", "625.2"]
    assert rows["ridge matrix/bf16, FLOP/B"] == ["–", "312.6"]
