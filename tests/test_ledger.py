"""A ledger's rows and work sum to its cost."""

from fractions import Fraction

import pytest

from roofline.cost import Cost
from roofline.dtypes import dtype
from roofline.errors import FormulaError
from roofline.ledger import Ledger, Row, read, send, write
from roofline.resource import Resource
from toys import BF16, HBM

ICI = Resource("ici")


def demo() -> Ledger:
    rows = (read("A", (8, 4), "bf16"), write("C", (8, 8), "fp32"), send("C", (8, 8), "fp32", level=ICI, passes=Fraction(1, 2)))
    return Ledger("demo", Cost.of({BF16: 512}), rows, ("a note",))


def test_the_cost_is_the_sum_of_work_and_rows() -> None:
    # A is 8*4*2 = 64 B, C is 8*8*4 = 256 B in memory and half of that on the link.
    assert demo().cost == Cost.of({BF16: 512, HBM: 64 + 256, ICI: 128})


def test_ledgers_add_and_scale_as_their_costs_do() -> None:
    assert (demo() + demo()).cost == (2 * demo()).cost == 2 * demo().cost
    assert (demo() + demo()).kernels == (2 * demo()).kernels == 2


def test_the_footprint_counts_each_tensor_once() -> None:
    twice = Ledger("norm", rows=(read("x", (10,), "bf16", passes=2), write("y", (10,), "bf16")))
    assert twice.cost[HBM] == 60
    assert twice.footprint() == 40


def test_a_scalar_has_an_empty_shape() -> None:
    assert write("sum", (), "bf16").bytes == 2


def test_a_row_is_read_written_or_sent() -> None:
    with pytest.raises(FormulaError, match="unknown tensor access 'pushed'"):
        Row("A", (1,), dtype("bf16"), "pushed")
