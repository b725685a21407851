"""Conditions, limits, budgets and baselines that nobody meant: an answer or one line."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

import roofline as rl
from roofline.analysis.budgets import check_change, read_conditions
from roofline.checking import BudgetCheck
from roofline.checking.conditions import ALIASES, Quantity, parse_conditions
from roofline.errors import RooflineError
from roofline.grouping.op_filter import FIELDS
from roofline.quantities import REPORT
from roofline.render.budgets import check_text
from roofline.report import Report
from test_checking import program, run

EXAMPLES = 80
NUMBERS = st.one_of(
    st.integers(-(10**30), 10**30).map(str),
    st.floats().map(str),
    st.sampled_from(["0", "1.1x", "1,000", "1e999", "0x1", "५", "1_0", ".", "--3", "∞"]),
)
UNITS = st.sampled_from(["", "s", " ms", " GB", " GiB", "%", " FLOP", " TFLOP", "k", " FLOP/B", " tokens", "x baseline", " baseline"])
AMOUNTS = st.one_of(
    st.builds("{}{}".format, NUMBERS, UNITS), st.sampled_from(["baseline", "baseline + 5%", "90% of baseline", "baseline -"])
)
OPERATORS = st.sampled_from(["<", "<=", ">", ">=", "==", "=", "!=", "<>", "=<", "+", "-"])
FILTERS = st.one_of(
    st.builds("{}{}{}".format, st.sampled_from(sorted(FIELDS)), st.sampled_from([":", "=", "<", "!="]), st.text(max_size=6)),
    st.sampled_from(
        ["attn", "layer*/attn", "*", "(a or b)", "-copy", "/a|b/i", '"x y"', "not", "((((", "/(/", '"', "a and b", "**/*", "/"]
    ),
)
NAMES = st.one_of(st.sampled_from([*REPORT, *ALIASES, "hbm", "matrix/bf16", "tokens/s", "nvlink", "vector"]), st.text(max_size=8))
PLACES = st.one_of(
    st.just(""), st.builds(" of {}".format, FILTERS), st.builds(" on {}".format, st.sampled_from(["h100", "nowhere", "", "v5e"]))
)
CONDITIONS = st.one_of(
    st.builds("{}{} {} {}".format, NAMES, PLACES, OPERATORS, AMOUNTS),
    st.builds("{}{}{}{}".format, NAMES, PLACES, OPERATORS, AMOUNTS),
    st.builds(
        "no {}".format, st.one_of(st.text(max_size=8), st.sampled_from(["findings", "above-roof", "finding wide-format", "finding"]))
    ),
    st.text(max_size=30),
)
# Those that can be read, with the amounts of the right unit and numbers of any size
_OF_UNIT = {"s": ("s", "ms", "µs"), "FLOP": ("FLOP", "GFLOP"), "B": ("B", "GiB"), "": ("", "k"), "1": ("%", ""), "FLOP/B": ("FLOP/B",)}
READABLE = st.sampled_from([*REPORT, "hbm", "matrix/bf16", "tokens/s"]).flatmap(
    lambda name: st.builds(
        "{}{} {} {}".format,
        st.just(name),
        st.just("")
        if Quantity(name=name).is_whole
        else st.sampled_from(["", " of layer*/attn", " of (fusion or bound=hbm)", " of nowhere*", " of time>1%"]),
        st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
        st.one_of(
            st.builds(
                "{}{}".format,
                st.one_of(st.integers(0, 10**40), st.floats(0, 1e308).map("{:.20f}".format), st.sampled_from(["1e300", "1e-300"])),
                st.sampled_from(_OF_UNIT[Quantity(name=name).dimension]).map(lambda unit: f" {unit}" if unit != "%" else unit),
            ),
            st.builds("{}x baseline".format, st.integers(0, 10**40)),
            st.builds("baseline {} {}%".format, st.sampled_from("+-"), st.integers(0, 10**40)),
        ),
    )
)
JOINED = st.sampled_from([", ", " and ", ";", "\n", " "])
TEXTS = st.one_of(
    READABLE,
    st.builds(lambda some, by: by.join(some), st.lists(READABLE, min_size=1, max_size=3), JOINED),
    st.builds(lambda some, by: by.join(some), st.lists(CONDITIONS, min_size=1, max_size=3), JOINED),
)


def one_line(asked: Callable[[], object]) -> None:
    """An answer whose every condition is one line, or an error that is one."""
    try:
        found = asked()
        lines = [check_text(one) for one in found.checks] if isinstance(found, BudgetCheck) else ["read"]
    except RooflineError as error:
        lines = [str(error)]
    assert lines
    assert all(line.strip() and "\n" not in line for line in lines)


def with_tokens() -> Report:
    return rl.price([rl.formulas.matmul(64, 64, 64)], rl.chip("h100"))


@given(TEXTS, st.sampled_from([program, run, with_tokens]), st.booleans())
def test_conditions(text: str, made: Callable[[], Report], kept: bool) -> None:
    report = made()

    def asked() -> BudgetCheck:
        baseline = rl.baseline(report, parse_conditions(text)) if kept else None
        return rl.check(report, text, baseline=baseline, on_chip=lambda chip: run())

    one_line(asked)


@given(TEXTS)
def test_reading_what_was_read_gives_the_same(text: str) -> None:
    """A condition's own text stands for it, so that a file may keep it."""
    try:
        read = parse_conditions(text)
    except RooflineError:
        return
    for one in read:
        assert parse_conditions(one.text) == (one,)


@given(
    st.one_of(TEXTS, st.builds("{}{}{}{}%".format, NAMES, PLACES, st.sampled_from([" +", "-", "+ "]), NUMBERS)),
    st.sampled_from(["step", "time"]),
)
def test_limits(text: str, time: str) -> None:
    one_line(lambda: check_change([run()], [run()], read_conditions(text, time)))
    one_line(lambda: check_change([program()], [program(), program()], read_conditions(text, time)))


VALUES = st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=4), st.lists(st.integers(), max_size=2), st.just({}))
