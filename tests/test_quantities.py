"""Every quantity is in every view that can show it, by one name, with one meaning."""

from collections.abc import Iterable

import pytest

import roofline as rl
from every import every
from roofline.checking.conditions import parse_conditions
from roofline.grouping.op_filter import filtered
from roofline.quantities import OF_OPS, OF_REPORTS, OP, REPORT, OfOp, OfReport
from roofline.render.export import COLUMNS as EXPORTED
from roofline.render.op_table import COLUMNS, column
from roofline.render.page.data import OPS
from roofline.render.page.terms import TERMS
from roofline.report import Report


@pytest.fixture(scope="module")
def train() -> Report:
    return rl.analyze("sample:train")


def names_of(quantities: Iterable[OfOp | OfReport]) -> list[tuple[str, OfOp | OfReport]]:
    return [(name, quantity) for quantity in quantities for name in (quantity.name, *quantity.aliases)]


@every("name, quantity", names_of(quantity for quantity in OF_OPS if quantity.of))
def test_a_quantity_of_an_op_is_a_column_and_a_field_of_filters_by_every_name_it_has(name: str, quantity: OfOp, train: Report) -> None:
    assert quantity.of
    assert column(name) is COLUMNS[quantity.name]
    has = {op.id for op in train.ops if quantity.of(op) not in (None, "", ())}
    assert {op.id for op in filtered(train.ops, f"{name}!=none")} == has


@every("quantity", OF_OPS)
def test_what_the_page_can_show_is_a_column_with_its_meaning_and_in_the_glossary(quantity: OfOp) -> None:
    columns = {key: meaning for key, _, _, meaning in OPS}
    assert columns.get(quantity.key) == (quantity.meaning if quantity.on_page else None)
    assert quantity.title[:1].upper() + quantity.title[1:] in dict(TERMS) or not quantity.on_page


def test_csv_has_no_column_that_is_not_in_the_table() -> None:
    assert {*EXPORTED} - {quantity.key for quantity in OF_OPS} == {"expected_s"}  # the minimum time under corrections


@every("name, quantity", names_of(OF_REPORTS))
def test_a_quantity_of_a_report_is_one_of_conditions_by_every_name_it_has(name: str, quantity: OfReport, train: Report) -> None:
    (condition,) = parse_conditions(f"{name} == baseline")
    assert condition.quantity
    assert (condition.quantity.name, condition.quantity.dimension) == (quantity.name, quantity.unit)
    if quantity.name not in (
        "findings",
        "peak memory",
        "donated memory",
        "excess",
        "exposed",
    ):  # a profile has none
        (found,) = rl.check(train, [condition], baseline=rl.baseline(train, [condition])).checks
        assert found.holds, found.why


def test_no_name_means_two_quantities() -> None:
    for table, named in ((OF_OPS, OP), (OF_REPORTS, REPORT)):
        names = [name for quantity in table for name in (quantity.name, *quantity.aliases)]
        assert len({*names}) == len(names)
        assert len(named) == len(table)
