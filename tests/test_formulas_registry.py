"""The registry and the laws that every formula keeps."""

from collections.abc import Callable
from fractions import Fraction
from inspect import signature
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline import formulas
from roofline.cost import Cost
from roofline.errors import FormulaError
from roofline.formulas import FORMULAS, GROUPS, Formula, all_formulas, conv2d, formula, lookup, matmul
from roofline.formulas.notation import Dim, Level, Link
from roofline.formulas.vocabulary import DIMENSIONS, OPTIONS
from roofline.ledger import Ledger
from roofline.resource import LINK_UNITS, MEMORY_UNITS

EVERY = every("entry", all_formulas())
# Spatial axes are counted position by position, so they have no fractions.
WHOLE = {("conv1d", "length"), *((name, axis) for name in ("conv2d", "conv3d") for axis in ("depth", "height", "width"))}


@EVERY
def test_rows_and_work_sum_to_the_cost(entry: Formula) -> None:
    ledger = entry(*entry.example)
    by_level: dict[str, Dim] = {str(resource): amount for resource, amount in ledger.work.amounts}
    for row in ledger.rows:
        by_level[str(row.level)] = by_level.get(str(row.level), 0) + row.bytes
    assert {str(resource): amount for resource, amount in ledger.cost.amounts} == {k: v for k, v in by_level.items() if v}


@EVERY
def test_a_loop_is_a_product(entry: Formula) -> None:
    ledger = entry(*entry.example)
    assert (3 * ledger).cost == 3 * ledger.cost
    assert (ledger + ledger).cost == 2 * ledger.cost


@EVERY
def test_a_larger_dimension_never_costs_less(entry: Formula) -> None:
    small = entry(*entry.example).cost
    for place, size in enumerate(entry.example):
        grown = [*entry.example]
        grown[place] = 2 * size
        large = entry(*grown).cost
        for resource in small:
            assert large.known(resource) >= small.known(resource), (entry.dimensions[place].name, resource)


@EVERY
def test_whole_sizes_give_exact_amounts(entry: Formula) -> None:
    for _, amount in entry(*entry.example).cost.amounts:
        assert isinstance(amount, int)


@EVERY
def test_fractions_and_huge_numbers_stay_exact(entry: Formula) -> None:
    # The solver asks for both; a float anywhere would lose digits or overflow.
    for place, parameter in enumerate(entry.dimensions):
        for size in (2**200, Fraction(2**70 + 1, 3)):
            if isinstance(size, Fraction) and (entry.name, parameter.name) in WHOLE:
                continue
            sizes: list[Dim] = [*entry.example]
            sizes[place] = size
            for _, amount in entry(*sizes).cost.amounts:
                assert isinstance(amount, (int, Fraction)), parameter.name


@EVERY
def test_floats_are_accepted(entry: Formula) -> None:
    exact, rounded = entry(*entry.example).cost, entry(*(float(size) for size in entry.example)).cost
    for resource in exact:
        assert float(rounded.known(resource)) == pytest.approx(float(exact.known(resource)))


@EVERY
@every("size", [0, -3, float("inf"), float("nan"), "4", True, None])
def test_a_dimension_is_a_positive_number(entry: Formula, size: object) -> None:
    name = entry.dimensions[0].name
    with pytest.raises(FormulaError, match=f"^{entry.name}: {name} is {size}; a dimension is a positive number$"):
        entry(size, *entry.example[1:])  # type: ignore[arg-type]


@EVERY
def test_every_formula_says_what_it_is(entry: Formula) -> None:
    assert entry.summary.endswith(".") or entry.summary.endswith(":"), "a first line is a sentence"
    assert len(entry.example) == len(entry.dimensions)
    assert entry.group in GROUPS
    assert all(parameter.meaning for parameter in entry.parameters)
    assert entry(*entry.example).name == entry.name


@EVERY
def test_options_are_formats_numbers_switches_or_choices(entry: Formula) -> None:
    for parameter in entry.options:
        assert parameter.kind in ("dim", "format", "int", "float", "bool", "choice")
        assert not parameter.required, "an option has a sensible default"
        parameter.check(entry.name, parameter.default)


@EVERY
def test_every_choice_is_priced(entry: Formula) -> None:
    for parameter in entry.options:
        for choice in parameter.choices:
            if (entry.name, parameter.name) == ("sharded_matmul", "gather"):
                continue  # depends on the dimension that is split; tested with the dense products
            assert entry(*entry.example, **{parameter.name: choice}).cost is not None


@EVERY
def test_every_switch_is_priced(entry: Formula) -> None:
    for parameter in entry.options:
        if parameter.kind == "bool":
            assert entry(*entry.example, **{parameter.name: not parameter.default}).cost is not None


@EVERY
def test_every_format_can_be_set(entry: Formula) -> None:
    for parameter in entry.options:
        if parameter.kind == "format":
            assert entry(*entry.example, **{parameter.name: "float32"}).cost is not None


def test_no_meaning_is_left_over() -> None:
    assert set(DIMENSIONS) == {parameter.name for entry in all_formulas() for parameter in entry.dimensions}
    assert set(OPTIONS) == {parameter.name for entry in all_formulas() for parameter in entry.options}


def test_every_formula_is_exported_under_its_name() -> None:
    for entry in all_formulas():
        assert getattr(formulas, entry.name) is entry.function
        assert entry.name in formulas.__all__


def test_every_known_link_can_carry_an_exchange() -> None:
    assert get_args(Link) == LINK_UNITS


def test_every_known_memory_can_be_a_level() -> None:
    assert get_args(Level) == MEMORY_UNITS


def test_names_aliases_and_framework_names_find_one_formula() -> None:
    for name in ("matmul", "gemm", "GEMM", "dot-general", "aten::mm"):
        assert lookup(name).function is matmul
    assert lookup("conv").function is conv2d


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(FormulaError, match="no formula named 'matmull'; did you mean 'matmul'"):
        lookup("matmull")
    with pytest.raises(FormulaError, match="known: add, all_gather"):
        lookup("zzz")


def test_a_name_is_registered_once() -> None:
    def another(n: Dim) -> Ledger:
        """Another."""
        return Ledger("another")

    for name, aliases in (("matmul", ()), ("another", ("gemm",))):
        with pytest.raises(ValueError, match="already used by the formula 'matmul'"):
            formula(name, group="dense", example=(1,), aliases=aliases)(another)
    assert "another" not in FORMULAS
    with pytest.raises(FormulaError, match="no formula named 'another'"):
        lookup("another")


def test_a_signature_the_command_line_cannot_read_is_refused() -> None:
    def odd(n: Dim, *, shape: tuple[int, ...] = ()) -> Ledger:
        return Ledger("odd")

    def misplaced(n: str) -> Ledger:
        return Ledger("misplaced")

    for function in (odd, misplaced):
        with pytest.raises(TypeError, match="cannot be annotated"):
            formula("odd", group="dense", example=(1,))(function)  # type: ignore[arg-type]


def test_the_signature_is_the_functions_own() -> None:
    assert [*signature(matmul).parameters][:4] == ["m", "k", "n", "dtype"]
    assert lookup("matmul").usage == "matmul M K N"


@every(
    ("call", "message"),
    [
        (lambda: matmul(8, -3, 8), "matmul: k is -3; a dimension is a positive number"),
        (lambda: matmul(8, 8, 8, weights="int9"), "matmul: weights: no number format named 'int9'; did you mean "),
        (lambda: matmul(8, 8, 8, dtype=8), "matmul: dtype: 8 is not a number format"),
        (lambda: lookup("matmul")(8, 8), "matmul: missing a required argument: 'n'; write: matmul M K N"),
        (lambda: lookup("matmul")(8, 8, 8, weight="int8"), "did you mean 'weights'"),
        (lambda: lookup("dot")(8, unit="matrx"), "dot: unit is 'matrx'; did you mean 'matrix'"),
        (lambda: lookup("dot")(8, unit="zzz"), "dot: unit is 'zzz'; choose one of vector, matrix"),
        (lambda: lookup("conv2d")(1, 1, 1, 8, 8, stride=0), "conv2d: stride is 0; it is a positive number"),
        (lambda: lookup("conv2d")(1, 1, 1, 8, 8, stride=1.5), "conv2d: stride is 1.5; it is a whole number"),
        (lambda: lookup("conv2d")(1, 1, 1, 8, 8, padding=-1), "conv2d: padding is -1; it is 0 or more"),
        (lambda: lookup("attention")(1, 1, 8, 8, 8, causal=1), "attention: causal is 1; give True or False"),
        (
            lambda: lookup("attention")(1, 6, 8, 8, 8, kv_heads=4),
            "attention: 6 heads cannot be divided among 4 kv_heads; choose a divisor of 6",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(call: Callable[[], Ledger], message: str) -> None:
    with pytest.raises(FormulaError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.lists(st.integers(1, 10**6), min_size=3, max_size=3), st.integers(1, 50))
def test_matmul_is_linear_in_each_dimension_but_for_the_tensors_without_it(sizes: list[int], times: int) -> None:
    m, k, n = sizes
    assert matmul(times * m, k, n).work == times * matmul(m, k, n).work
    assert matmul(m, k, n).cost.bytes() == 2 * (m * k + k * n + m * n)


def test_costs_of_formulas_are_known() -> None:
    assert all(entry(*entry.example).cost.is_known for entry in all_formulas())
    assert Cost.of({}) == Ledger("nothing").cost
