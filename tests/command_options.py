"""The options of a command that take a value, as a person types them."""

import argparse
from collections.abc import Iterator

from roofline.cli.options.named_values import NamedValues

FAMILIES = {"max-": "max-rows", "sustained-": "sustained-hbm", "xla-": "xla-key"}  # a name of each family of names


def settings(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """What stands before the value of each option that help shows: ``--top=``, ``--read=jobs=``; and its action."""
    for action in parser._actions:
        if not action.option_strings or action.nargs == 0 or action.help == argparse.SUPPRESS:
            continue
        option = action.option_strings[-1]
        if isinstance(action, NamedValues):
            for value in action.values.values():
                if not value.is_word:
                    yield f"{option}={FAMILIES.get(value.name, value.name)}=", action
        elif not isinstance(action, argparse.BooleanOptionalAction):
            yield f"{option}=", action
