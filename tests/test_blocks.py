"""`roofline blocks` and `rl.blocks`: configurations that are tried, ranked, shown and written."""

import csv
import io
import json
import re
import sys
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace

import roofline as rl
from roofline.blocks.results import Blocks, Configuration, ranked
from roofline.blocks.space import configurations
from roofline.cli import blocks as command
from roofline.cli import main
from roofline.errors import UsageError
from roofline.render.blocks.page import blocks_page
from roofline.render.blocks.text import best_sentence, blocks_text, explanation
from roofline.render.export import to_json
from roofline.render.schema import blocks_schema


def configuration(rank: int, **more: object) -> Configuration:
    given = {"config": {"BM": 64 * rank, "num_warps": 4}, "time_s": rank * 1e-3, "low_s": rank * 0.8e-3, "high_s": rank * 1.8e-3}
    needs = {"share": 0.9 / rank, "limit": "matrix", "registers": 128, "spilled": 0, "memory": 65536, "per_core": 2, "waves": 1.5}
    work = {"work": {"matrix/bf16": 1e12}, "bytes": {"hbm": 1e9}, "parts": {"matrix": rank * 0.9e-3, "hbm": 0.2e-3}}
    return Configuration(**{**given, **needs, **work, **more})  # type: ignore[arg-type]


REFUSED = Configuration(config={"BM": 512, "num_warps": 4}, refused="out of shared memory: a block needs 262,144 B")
FOUND = Blocks(
    kernel="matmul",
    chip="h200-sxm",
    compiler="Triton 3.6.0",
    evidence="some",
    configs=ranked([REFUSED, configuration(2), configuration(1), configuration(3, limit="spills", time_s=1.02e-3)]),
)


def test_a_space_is_all_combinations_or_a_list() -> None:
    assert len(configurations({"BM": (64, 128), "BN": (32, 64, 128), "num_warps": [4]})) == 6
    assert configurations([{"BM": 64}, {"BM": 128, "num_stages": 3}]) == [{"BM": 64}, {"BM": 128, "num_stages": 3}]
    for wrong in ({"BM": 64}, {"BM": ()}, []):
        with pytest.raises(UsageError):
            configurations(wrong)  # type: ignore[arg-type]


def test_the_best_comes_first_and_what_cannot_run_last() -> None:
    assert [config.time_s for config in FOUND.configs] == [1e-3, 1.02e-3, 2e-3, None]
    assert [FOUND.equals_best(config) for config in FOUND.configs] == [True, True, False, False]


def test_the_first_screen_says_the_best_what_limits_and_why_some_cannot_run() -> None:
    assert (
        best_sentence(FOUND)
        == "Best: BM=64 num_warps=4: 1 ms (800 µs to 1.8 ms), 90% of the roofline, limited by matrix unit. 1 other within 5%."
    )
    shown = blocks_text(FOUND)
    assert "1 refused: out of shared memory: a block needs 262,144 B" in shown
    assert re.search(r"1 +64 +4 +1 ms ", shown)
    assert re.search(r"2 +192 +4 +1.02 ms = ", shown)


def test_an_explanation_has_parts_and_lines() -> None:
    shown = explanation(FOUND, 1)
    assert re.search(r"matrix +900 µs +90%", shown)
    with pytest.raises(UsageError, match="1 to 3 can run"):
        explanation(FOUND, 4)


def test_the_page_has_a_point_for_each_configuration_that_can_run() -> None:
    page = blocks_page(FOUND, rl.chip("h200"))
    assert page.count('class="dot"') == 3
    assert "out of shared memory" in page
    assert "<!--{" not in page


def test_the_json_has_the_contract_and_its_schema() -> None:
    schema = json.loads((Path(rl.__file__).parent / "blocks.schema.json").read_text())
    assert schema == blocks_schema(), "write it again: make schema"
    written = json.loads(to_json(FOUND))
    jsonschema.validate(written, schema)
    assert written["schema"] == "roofline.blocks/1"
    assert written["configs"][0]["config"] == {"BM": 64, "num_warps": 4}
    for key in ("time_s", "low_s", "high_s", "limit", "refused"):
        assert key in written["configs"][-1]


def test_the_command_takes_a_case_and_writes_all_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "block_cases.py").write_text(
        "def case():\n    return {'kernel': 1, 'args': (2,), 'grid': 3, 'space': {'BM': (64,)}, 'D': 4}\n"
    )
    monkeypatch.chdir(tmp_path)
    asked = {}

    def predict(kernel: object, args: object, **options: object) -> Blocks:
        asked.update(options, kernel=kernel, args=args)
        return FOUND

    monkeypatch.setattr(command, "predict", predict)
    assert main(["blocks", "block_cases:case", "--chip", "h100", "--space", "BM=64,128", "--csv", "-", "-o", "blocks.html"]) == 0
    sys.modules.pop("block_cases", None)
    assert (asked["kernel"], asked["args"], asked["grid"], asked["chip"], asked["space"]) == (1, (2,), 3, "h100", {"BM": [64, 128]})
    assert asked["D"] == 4
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["BM"] for row in rows] == ["64", "192", "128", "512"]
    assert (tmp_path / "blocks.html").read_text().startswith("<!doctype html>")


def test_a_case_that_returns_something_else_is_refused() -> None:
    assert command.case_of("m:f", (1, (2,), 3)) == {"kernel": 1, "args": (2,), "grid": 3}
    with pytest.raises(UsageError, match="returned a int"):
        command.case_of("m:f", 7)
    with pytest.raises(UsageError, match="NAME=VALUE"):
        command.space_of(["BM"])


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(UsageError, match="not a kernel"):
        rl.blocks(7, ())


def test_validate_compares_measured_times_with_predicted_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timed = [replace(config, measured_s=config.time_s and 1.2 * config.time_s) for config in FOUND.configs]
    path = tmp_path / "sweep.json"
    path.write_bytes(to_json(replace(FOUND, configs=tuple(timed))))
    assert main(["validate", str(path)]) == 0
    assert "measured over predicted 1.20 to 1.20" in capsys.readouterr().out
    # The first takes 2.4 ms, twice the third, and more than its interval holds.
    timed[0] = replace(timed[0], measured_s=2.4e-3)
    path.write_bytes(to_json(replace(FOUND, configs=tuple(timed))))
    assert main(["validate", str(path)]) == 3
    said = capsys.readouterr().out
    assert "first choice: FAIL" in said
    assert "it takes 96% longer" in said
    path.write_bytes(to_json(FOUND))
    assert main(["validate", str(path)]) == 2
    assert "--measure" in capsys.readouterr().err
