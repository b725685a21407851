"""The result of an acceptance check: what it expected and found, and the problems, each with the input that is wrong."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

SCHEMA = "roofline.validation/1"
CLASSIFICATION, TIMES, LEVER, FORMATS, DISTRIBUTED = (
    "classification",
    "time bounds",
    "lever",
    "format thresholds",
    "distributed flip",
)


class Problem(Struct, frozen=True, kw_only=True):
    """A disagreement: the input that is wrong (such as ``bytes``, ``peak`` or ``clock``), a message, and the ops concerned."""

    input: str
    message: str
    ops: tuple[int, ...] = ()


class AcceptanceCheck(Struct, frozen=True, kw_only=True):
    """One check: what was expected and found (``saw``); ``holds`` is ``None`` where it could not be made, as ``notes`` explain."""

    name: str
    holds: bool | None
    expected: str
    saw: str
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


class Validation(Struct, frozen=True, kw_only=True):
    """The five checks of a program on a machine; ``holds`` is whether none failed."""

    schema: str = SCHEMA
    source: str
    machine: str
    checks: tuple[AcceptanceCheck, ...]

    @property
    def failed(self) -> tuple[AcceptanceCheck, ...]:
        return tuple(one for one in self.checks if one.holds is False)

    @property
    def holds(self) -> bool:
        return not self.failed

    def check(self, name: str) -> AcceptanceCheck:
        return next(one for one in self.checks if one.name == name)


def made_check(
    name: str, expected: str, saw: str, problems: Iterable[Problem] = (), notes: Sequence[str] = (), *, checked: bool = True
) -> AcceptanceCheck:
    """A check that fails where there are problems; its ``holds`` is ``None`` where nothing could be ``checked``."""
    found = tuple(problems)
    return AcceptanceCheck(
        name=name, holds=False if found else True if checked else None, expected=expected, saw=saw, problems=found, notes=tuple(notes)
    )
