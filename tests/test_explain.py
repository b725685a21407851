"""`roofline explain`: every kind of finding explained from the catalogue, in the terminal and in Python."""

import re

import pytest

import roofline as rl
from roofline.cli import main
from roofline.errors import UsageError
from roofline.rules.words import kinds
from roofline.rules.words.explanation import CHAPTERS, chapters


def test_a_kind_is_explained_with_its_rule_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "stored-attention"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "two matmuls with a softmax" in shown
    assert "in PyTorch: F.scaled_dot_product_attention" in shown
    assert "roofline whatif RUN kernel attention=flash" in shown


def test_every_kind_is_in_one_chapter_and_has_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(kind for _, members in chapters() for kind in members) == sorted(kinds())
    assert main(["explain"]) == 0
    listed = capsys.readouterr().out
    for kind in kinds():
        assert f"  {kind} " in listed
        text = rl.explain(kind)
        assert text
        assert not re.search(r"\{[a-z_]+[:}]", text), kind  # no fact of a certain program
    assert all(chapter in listed for chapter in CHAPTERS)


def test_an_unknown_kind_is_an_error_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'stored-attention'"):
        rl.explain("stored-atention")
