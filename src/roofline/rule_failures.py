"""Rules that fail on a program: each costs what it would have said there and a note, never the report.

Files that cannot be read are no such failures: they raise a `RooflineError`, which passes.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

FAILED = "the rule for {rule} failed on {where} ({error}); please report it"
# What a program that no rule expects leads to; a RecursionError is a RuntimeError.
UNEXPECTED = (LookupError, ValueError, ArithmeticError, TypeError, AttributeError, AssertionError, RuntimeError)

are_raised = False  # set by tests and by benchmarks/fuzz.py, to which a rule that fails is a bug
Given = TypeVar("Given")
Result = TypeVar("Result")


class RuleFailures:
    """The rules that failed on one program or trace, each with one note."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Such as "the rule for one hot products failed on jit_step (IndexError); please report it"."""
        return tuple(self._notes)

    def attempt(self, rule: str, function: Callable[..., Result], *given: Any) -> Result | None:
        """What a function returns; where it fails, a note on the rule, and ``None``."""
        try:
            return function(*given)
        except UNEXPECTED as error:
            if are_raised:
                raise
            self._notes[FAILED.format(rule=rule, where=self._where, error=type(error).__name__)] = None
            return None

    def evidence(self, rules: Iterable[Callable[[Given], Iterable[Result]]], given: Given) -> Iterator[Result]:
        """What some rules find, in their order; one that fails finds nothing."""
        for rule in rules:
            yield from self.attempt(rule_name(rule), _found, rule, given) or ()


def _found(rule: Callable[[Given], Iterable[Result]], given: Given) -> tuple[Result, ...]:
    return tuple(rule(given))


def rule_name(rule: Callable[..., object]) -> str:
    """A rule as a note names it.

    >>> rule_name(RuleFailures.attempt)
    'attempt'
    """
    return rule.__name__.strip("_").replace("_", " ")
