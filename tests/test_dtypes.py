"""Number formats by any framework's name."""

import pytest

from roofline.dtypes import DTYPES, dtype
from roofline.errors import FormulaError


@pytest.mark.parametrize("spelling", ["bf16", "bfloat16", "BF16", "torch.bfloat16"])
def test_every_framework_spelling_is_the_same_format(spelling: str) -> None:
    assert dtype(spelling) is DTYPES["bf16"]


def test_eight_bit_floats_share_one_roof() -> None:
    assert {dtype(name).rate for name in ("f8e4m3fn", "f8e5m2", "fp8")} == {"fp8"}


def test_sub_byte_formats_pack_and_round_up_to_whole_bytes() -> None:
    assert dtype("int4").bytes(3) == 2  # 12 bits
    assert dtype("fp6").bytes(4) == 3  # 24 bits


def test_tf32_is_stored_in_four_bytes() -> None:
    assert dtype("tf32").bytes(10) == 40


def test_an_unknown_format_is_refused_with_a_suggestion() -> None:
    with pytest.raises(FormulaError, match=r"did you mean.*'bf16'"):
        dtype("bf61")
