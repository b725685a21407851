"""Expected times by size, and the first size that is compute-bound."""

from functools import partial

import msgspec
import pytest

from roofline.cli import main
from roofline.errors import UsageError
from roofline.formulas import layernorm, matmul
from roofline.machine import Machine
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.prediction.by_size import Sizes

H200 = load("h200-sxm")
ROWS = Sizes(partial(matmul, k=8192, n=8192), ("m",), H200, calibration_for(H200))


def test_a_product_is_compute_bound_from_the_first_size_whose_mathematics_take_longest() -> None:
    first = ROWS.first_compute_bound()
    assert first is not None
    below, there = ROWS.at(first - 1), ROWS.at(first)
    assert max(below.prediction.terms, key=below.prediction.terms.__getitem__) == "memory"
    assert max(there.prediction.terms, key=there.prediction.terms.__getitem__) in ("math", "feed")
    assert all(spot.minimum_s <= spot.prediction.low_s for spot in (below, there))


def test_a_normalisation_never_is() -> None:
    assert Sizes(partial(layernorm, columns=8192), ("rows",), H200, calibration_for(H200)).first_compute_bound() is None


def test_sizes_that_a_formula_refuses_are_left_out() -> None:
    assert [spot.size for spot in ROWS.curve([0, 1, 2])] == [1, 2]


def test_without_a_rate_there_is_no_expected_time() -> None:
    bare = Machine.of("bare", {"hbm": "1 TB/s"})
    with pytest.raises(UsageError, match="no expected time on bare"):
        Sizes(matmul, ("m", "k", "n"), bare, calibration_for(bare)).at(64)


def test_cross_answers_in_expected_time(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["op", "matmul", "--free", "m", "--k", "8192", "--n", "8192", "--chip", "h200-sxm", "--expected"]
    assert main([*words, "--json", "-"]) == 0
    answer = msgspec.json.decode(capsys.readouterr().out)
    assert answer["expected"]["first"] == ROWS.first_compute_bound() != answer["integer"]
    assert main(words) == 0
    assert f"compute-bound in expected time for m ≥ {answer['expected']['first']}" in capsys.readouterr().out


def test_an_infinite_dimension_has_no_expected_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["op", "matmul", "--free", "m", "--k", "inf", "--n", "8192", "--chip", "h200-sxm", "--expected"]) == 2
    assert "--expected: k is infinite" in capsys.readouterr().err
