"""Options that hold named values, `--read jobs=4 cache=no`, and former options, which say what to type instead."""

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ...errors import UnitError, UsageError, clean, did_you_mean


class TakesOptions(Protocol):
    """A parser, or a group of its options."""

    def add_argument(self, *names: str, **how: Any) -> argparse.Action: ...


class Value(NamedTuple):
    """A named value of an option, as its help shows it: ``jobs=N``, or a word alone: ``salvage``.

    Capitals in the name stand for one of several names: ``max-WHAT=N`` accepts ``max-rows=1M``. ``several`` are separated by commas, or
    given one by one. ``own_option`` is an option of this value alone.
    """

    example: str
    meaning: str
    read: Callable[[str], object] = str
    several: bool = False
    default: object = None
    own_option: str = ""

    @property
    def name(self) -> str:
        """The name, for a family of names with its dash: ``max-``."""
        return re.sub("[A-Z].*", "", self.example.partition("=")[0])

    @property
    def place(self) -> str:
        """Where the namespace of the arguments has it."""
        return self.name.removesuffix("-").replace("-", "_")

    @property
    def is_word(self) -> bool:
        return "=" not in self.example

    @property
    def initial(self) -> object:
        """What it is where it is not given."""
        return False if self.is_word else self.default


class NamedValues(argparse.Action):
    """An option that takes named values: in words of their own, in one quoted word, or in several options of the same name."""

    def __init__(self, option_strings: Sequence[str], dest: str, values: Sequence[Value], help: str) -> None:
        lines = [f"{help}:", *(f"{value.example}: {value.meaning}" for value in values)]
        super().__init__(option_strings, dest, default=dest, metavar="NAME=VALUE", help="\n".join(lines))
        self.option, self.values = option_strings[0], {value.name: value for value in values}

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, text: Any, option: str | None = None) -> None:
        alone = "|".join(value.name for value in self.values.values() if value.is_word) or "$^"
        for word in re.split(rf"\s+(?=[a-z]+(?:-[\w./]+)?=|(?:{alone})(?:\s|$))", text.strip()):
            self.take(namespace, word)

    def take(self, namespace: argparse.Namespace, word: str) -> None:
        """Keep one named value."""
        name, equals, text = (part.strip() for part in word.partition("="))
        value = self._value(name)
        if value is None or bool(equals) == value.is_word or (equals and not text):
            known = did_you_mean(name, self.values) if value is None else ""
            raise UsageError(f"{self.option} {word}: write {', '.join(value.example for value in self.values.values())}{known}")
        if value.is_word:
            setattr(namespace, value.place, True)
            return
        try:
            read: list[object] = [value.read(part.strip()) for part in (text.split(",") if value.several else [text])]
        except (argparse.ArgumentTypeError, UnitError) as error:
            raise UsageError(f"{self.option} {word}: {error}") from None
        if value.name.endswith("-"):
            read = [f"{name.removeprefix(value.name)}={text}"]
        listed = value.several or value.name.endswith("-")
        setattr(namespace, value.place, [*(getattr(namespace, value.place) or []), *read] if listed else read[0])

    def _value(self, name: str) -> Value | None:
        family = re.match("[a-z]+-(?=.)", name)
        return self.values.get(name) or (self.values.get(family[0]) if family else None)

    def has(self, word: str) -> bool:
        """Whether a word that follows the option is one of its values, or almost."""
        name, equals, _ = word.partition("=")
        value = self._value(name)
        return value.is_word != bool(equals) if value else bool(equals and did_you_mean(name, self.values))


class OwnOption(argparse.Action):
    """A named value as an option of its own, without a line in help: ``--mesh fsdp=4 tensor=4`` is ``--compile mesh=fsdp=4,tensor=4``."""

    def __init__(self, option_strings: Sequence[str], dest: str, whole: NamedValues, value: Value) -> None:
        super().__init__(option_strings, dest, nargs=0 if value.is_word else None, default=dest, help=argparse.SUPPRESS)
        self.option, self.whole, self.value = option_strings[0], whole, value

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, text: Any, option: str | None = None) -> None:
        name = self.value.name
        self.whole.take(namespace, name if self.value.is_word else f"{name}{'' if name.endswith('-') else '='}{text}")

    def has(self, word: str) -> bool:
        """Whether a word that follows the option is a value of it too: those that are written like ``axis=4``."""
        return self.value.several and re.fullmatch(r"[A-Za-z_]\w*=\d.*", word) is not None


def named_values(
    parser: argparse.ArgumentParser, option: str, summary: str, values: Sequence[Value], group: TakesOptions | None = None
) -> None:
    """Add an option with named values."""
    whole = (group or parser).add_argument(option, dest=argparse.SUPPRESS, action=NamedValues, values=values, help=summary)
    for value in values:
        parser.set_defaults(**{value.place: value.initial})
        if value.own_option:
            parser.add_argument(value.own_option, dest=argparse.SUPPRESS, action=OwnOption, whole=whole, value=value)


def spread(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """The words of a command, with the name of the option before each of its values: ``--read jobs=4 --read cache=no``."""
    if any(action.nargs == argparse.REMAINDER for action in parser._actions):  # words of another program follow
        return list(words)
    made: list[str] = []
    option: NamedValues | OwnOption | None = None
    for place, word in enumerate(words):
        if word == "--":
            return [*made, *words[place:]]
        if option and made[-1] != option.option:
            if option.has(word):
                made.append(option.option)
            else:
                option = None
        action = parser._option_string_actions.get(word)
        option = action if isinstance(action, NamedValues | OwnOption) else option
        made.append(word)
    return made


class Former(argparse.Action):
    """An option of earlier releases: the option that replaces it, and how its values are written there."""

    def __init__(
        self,
        option_strings: Sequence[str],
        dest: str,
        option: str,
        becomes: str | Callable[[list[str]], list[str]],
        refines: bool,
    ) -> None:
        takes_value = not isinstance(becomes, str) or "{}" in becomes
        super().__init__(option_strings, dest, nargs=None if takes_value else 0, default=dest, help=argparse.SUPPRESS)
        self.option, self.becomes, self.refines = option, becomes, refines
        self.typed = ""
        self.given: list[str] = []

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, text: Any, option: str | None = None) -> None:
        if text == "":
            parser.error(f"{option} is empty")
        self.typed = option or self.option_strings[0]
        self.given.append(text if isinstance(text, str) else "")

    @property
    def words(self) -> list[str]:
        """What to type after the option that replaces this one."""
        if isinstance(self.becomes, str):
            return [self.becomes.replace("{}", text) for text in self.given]
        return self.becomes(self.given)


def former(parser: TakesOptions, *names: str, option: str, becomes: str | Callable[[list[str]], list[str]], refines: bool = False) -> None:
    """Add an option of earlier releases, of which ``{}`` is the value, or which a function writes from all its values.

    Where the present option takes one value and was given too, that one stays, unless this ``refines`` it.
    """
    parser.add_argument(*names, dest=argparse.SUPPRESS, action=Former, option=option, becomes=becomes, refines=refines)


def replace_former(parser: argparse.ArgumentParser, namespace: argparse.Namespace) -> None:
    """Keep the values of former options as if the present ones had been given, and say what to type."""
    used = [option for option in parser._actions if isinstance(option, Former) and option.given]
    present: dict[str, list[str]] = {}
    for old in used:
        present.setdefault(old.option, []).extend(old.words)
    instead: list[str] = []
    for option, words in present.items():
        action = parser._option_string_actions[option]
        if isinstance(action, NamedValues):
            for word in words:
                action.take(namespace, word)
            instead += [option, *words]
        elif isinstance(present_value := getattr(namespace, action.dest), list):
            action(parser, namespace, " ".join(words), option)
            instead += [option, " ".join(words)]
        elif present_value is None or any(old.refines for old in used if old.option == option):
            setattr(namespace, action.dest, parser._get_value(action, words[-1]))
            instead += [option, words[-1]]
    if used:
        typed = ", ".join(old.typed for old in used)
        sys.stderr.write(clean(f"roofline: {typed} will go; {f'type: {shlex.join(instead)}' if instead else 'leave it out'}") + "\n")
