"""Budget files: TOML with conditions and the name of their baseline.

require = ["step < 30 ms", "hbm of layer*/attn <= 1.1x baseline"]
baseline = "baselines/train.json"       # relative to this file; the default is this file's name with .baseline.json
"""

import tomllib
from pathlib import Path
from typing import NamedTuple

from ..errors import UsageError, did_you_mean
from .files import all_of

KEYS = ("require", "baseline")


class BudgetFile(NamedTuple):
    """The conditions of a budget file, and the path of their baseline, which need not exist yet."""

    conditions: tuple[str, ...]
    baseline: Path


def read_budget(path: str | Path) -> BudgetFile:
    """The budget in a file."""
    file = Path(path)
    try:
        table = tomllib.loads(all_of(file).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    for key in table:
        if key not in KEYS:
            raise UsageError(f"{path}: unknown key {key!r}{did_you_mean(key, KEYS) or '; keys: ' + ', '.join(KEYS)}")
    listed, baseline = table.get("require", []), table.get("baseline", f"{file.stem}.baseline.json")
    listed = [listed] if isinstance(listed, str) else listed
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise UsageError(f'{path}: require is a list of conditions: require = ["step < 30 ms"]')
    if not isinstance(baseline, str) or not baseline:
        raise UsageError(f'{path}: baseline is the name of a file: baseline = "baseline.json"')
    return BudgetFile(tuple(listed), file.parent / baseline)
