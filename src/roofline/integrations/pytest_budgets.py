"""The objects of the pytest fixture: reports on functions with budget checks, and baselines stored next to the test."""

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from msgspec.structs import replace

from ..analysis.budgets import check, read_conditions
from ..checking import BudgetCheck, Check
from ..checking.baselines import Baseline, baseline_of
from ..checking.conditions import Condition
from ..errors import RooflineError, UsageError
from ..render.budgets import broken_text
from ..report import Report
from ..sources.baseline_json import read_baseline, write_baseline
from .functions import function_report
from .measuring import measured_report

FOLDER = "roofline_baselines"
UPDATE = "--roofline-update"
LONGEST_NAME = 100  # characters of a file name
_UNSAFE = re.compile(r"[^\w.,=+\[\]-]+")


class ReportMaker:
    """The fixture: makes reports on functions, each with its own baseline."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._made = 0

    def __call__(self, function: Callable[..., Any], chip: str = "h100", **options: Any) -> Callable[..., "BudgetedReport"]:
        """A function of the same arguments that returns the report on one call of it.

        ``options`` go to `roofline.jax.analyze` (``donate_argnums=0``) or `roofline.torch.analyze` (``backward=True``).
        """

        def report(*args: Any, **kwargs: Any) -> BudgetedReport:
            __tracebackhide__ = True
            self._made += 1
            file = baseline_file(self._request.node, self._made)
            update = bool(self._request.config.getoption(UPDATE))
            return BudgetedReport(function, chip, options, args, kwargs, file, self._request.config.rootpath, update)

        return report


def baseline_file(node: Any, number: int) -> Path:
    """The baseline file of a test's first, second … report: next to the test, named after the test."""
    name = node.nodeid.partition("::")[2].replace("::", ".") or node.name
    safe = _UNSAFE.sub("-", name)
    if safe != name or len(safe) > LONGEST_NAME:
        safe = f"{safe[:LONGEST_NAME]}-{crc32(name.encode()):08x}"  # so that long names stay distinct
    test: Path = node.path
    return test.parent / FOLDER / test.stem / f"{safe}{f'-{number}' if number > 1 else ''}.json"


class BudgetedReport:
    """A report on a function with a `check` method; all other attributes are those of ``report``."""

    def __init__(
        self,
        function: Callable[..., Any],
        chip: str,
        options: dict[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        file: Path,
        root: Path,
        update: bool,
    ) -> None:
        self._function, self._chip, self._options, self._args, self._kwargs = function, chip, options, args, kwargs
        self._file, self._shown, self._update = file, str(file.relative_to(root) if file.is_relative_to(root) else file), update
        self._checked: list[Condition] = []
        self.report = self._on_chip(chip)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.report, name)

    def _on_chip(self, chip: str) -> Report:
        return function_report(self._function, chip=chip, **self._options)(*self._args, **self._kwargs)

    @cached_property
    def measured(self) -> Report | str:
        """The report on the function measured on the local device, or the reason why that is not possible."""
        return measured_report(self._function, self._chip, self._options, self._args, self._kwargs)

    def check(self, *conditions: str) -> BudgetCheck:
        """Fail the test if a condition is broken, with the ops that broke it; skip it if all hold but one needs a device."""
        __tracebackhide__ = True
        found = self._result(conditions)
        if isinstance(found, str):
            pytest.fail(found)
        without_device = [one for one in found.not_known if one.measured]
        wrong = [*found.broken, *(one for one in found.not_known if not one.measured)]
        if wrong:
            pytest.fail(broken_text(wrong))
        if without_device:
            pytest.skip("; ".join(f"{one.condition}: {one.why}" for one in without_device))
        return found

    def _result(self, conditions: Sequence[str]) -> BudgetCheck | str:
        """The checked conditions, or an error in one of them; a separate function, so that pytest shows no chained exceptions."""
        try:
            read = read_conditions(conditions)
            self._checked += read
            if self._update:
                self._write()
            return self._checks(read)
        except RooflineError as error:
            return str(error).replace("with --update", f"with {UPDATE}")

    def _checks(self, conditions: Sequence[Condition]) -> BudgetCheck:
        """The checked conditions: measured ones on the measured report, if there is one."""
        baseline, found = self._baseline(), []
        for one in conditions:
            if one.is_measured and isinstance(self.measured, str):
                found.append(Check(condition=one.text, holds=None, measured=True, why=self.measured))
                continue
            if one.of_baseline and baseline is None:
                raise UsageError(f"condition {one.text!r} needs the baseline {self._shown}, which does not exist; write it with {UPDATE}")
            if one.is_measured and isinstance(self.measured, Report):  # its kernels are the compiler's, unlike the baseline's
                found += check(self.measured, one.text, baseline=replace(baseline, ops=()) if baseline else None).checks
            else:
                found += check(self.report, one.text, baseline=baseline, on_chip=self._on_chip).checks
        return BudgetCheck(checks=tuple(found))

    def _baseline(self) -> Baseline | None:
        return replace(read_baseline(self._file), file=self._shown) if self._file.exists() else None

    def _write(self) -> None:
        """Write the baseline with all conditions so far; without a device, earlier measured values are kept."""
        static, timed = ([one for one in self._checked if one.is_measured == measured] for measured in (False, True))
        new = baseline_of(self.report, static)
        asked = {one.quantity.text for one in timed if one.quantity and one.of_baseline}
        if asked:
            old = self._baseline() if isinstance(self.measured, str) else baseline_of(self.measured, timed)
            kept = {name: amount for name, amount in (old.quantities if old else {}).items() if name in asked}
            new = replace(new, quantities={**new.quantities, **kept})
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_baseline(self._file, new)
