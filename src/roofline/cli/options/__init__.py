"""Options that commands share: which chip, which corrections, where the output goes."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from textwrap import wrap
from typing import Any, NoReturn

from ...dtypes import is_dtype
from ...errors import MachineError, RooflineError, UnitError, UsageError
from ...files.input_limits import parse_limits, set_limits
from ...machine import Machine
from ...machines import load, parse_settings
from ...machines.catalogue import is_path
from ...machines.detection import DEFAULT_CHIP, machine_for
from ...placement import Corrections
from ...resource import Resource, check_known
from ...sources import PROFILE, PROGRAM, find
from ...sources.target import Target
from ...units import parse, parse_count
from ...workload import Device
from ..streams import text_width
from .named_values import TakesOptions, Value, former, named_values, replace_former, spread

BROKEN, NOT_KNOWN = 3, 2  # exit status for a condition that is broken, or cannot be decided
CHIP_VARIABLE = "ROOFLINE_CHIP"
PRICE = r"^[$€]|\s*[$€A-Z]*\s*/\s*(h|hour)$|\s*[$€A-Z]{1,3}$"  # a currency and what it is paid for, beside the number
OUTPUTS = ("json", "csv", "parquet", "output", "markdown")  # options that name a file to write


def check_outputs(options: Mapping[str, object]) -> None:
    """Raise an error for an output that is also an input, or that two options write."""
    outputs = {option: name for option in OUTPUTS if isinstance(name := options.get(option), str) and name != "-"}
    for (one, name), (other, same) in combinations(outputs.items(), 2):
        if os.path.realpath(name) == os.path.realpath(same):
            raise UsageError(f"--{one} and --{other} both write {name}; give one of them another file")
    for option, name in outputs.items():
        if os.path.isfile(name):
            for value in (value for given, value in options.items() if given not in OUTPUTS):
                for word in value if isinstance(value, list) else [value]:
                    if isinstance(word, str) and is_input(name, word):
                        raise UsageError(f"--{option} {name}: also an input; write to another file")


def is_input(name: str, word: str) -> bool:
    """Whether a file is the one that a word names, or a profile or program in the folder that it names."""
    try:
        if os.path.isdir(word):
            inside = os.path.commonpath([os.path.realpath(name), os.path.realpath(word)]) == os.path.realpath(word)
            return inside and find(name) in (PROFILE, PROGRAM)
        return os.path.samefile(name, word)
    except (OSError, ValueError, RooflineError):  # no such file
        return False


class Parser(argparse.ArgumentParser):
    """An argument parser that raises one-line `UsageError`s."""

    def __init__(self, command: str, summary: str, example: str) -> None:
        super().__init__(
            prog=f"roofline {command}",
            description=summary,
            epilog=f"example:\n  {example}",
            formatter_class=lambda prog: _Help(prog, width=text_width() - 2),
            allow_abbrev=False,
        )
        self.command = command

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args(spread(self, args), namespace)
        if unknown:
            self._refuse(unknown)
        replace_former(self, found)
        for name, value in vars(found).items():
            if "" in (value if isinstance(value, list) else [value]) and value != self.get_default(name):
                self.error(f"{name.replace('_', '-')} is empty")
        check_outputs(vars(found))
        set_limits(parse_limits(getattr(found, "max", None) or []))
        return found

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Raise an error for words that are not arguments, with the option that was probably meant."""
        from difflib import get_close_matches  # only needed for a wrong name

        message = f"unrecognized arguments: {' '.join(unknown)}"
        option = next((word for word in unknown if word.startswith("--")), "").partition("=")[0].replace("_", "-").strip("-")
        names = [name.removeprefix("--") for name in self._option_string_actions if name.startswith("--")]
        for meant in get_close_matches(option, names, n=1, cutoff=0.7):
            raise UsageError(f"{self.command}: {message}; did you mean --{meant}?")
        self.error(message)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help with errors raised, which argparse suppresses."""
        if message:
            (file or sys.stdout).write(message)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.command}: {message}; see: {self.prog} --help")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help in which a line of the description, and of the help of an option, stays a line."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return [part for line in text.splitlines() for part in wrap(line, width, subsequent_indent="  ", break_on_hyphens=False)]


def at_least(least: int) -> Callable[[str], int]:
    """The type of an option that takes a whole number of at least this."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number ≥ {least}")
        return int(text)

    return number


def machine_options(parser: argparse.ArgumentParser, *, chip: bool = True) -> None:
    """Options for the machine and changes to it."""
    group = parser.add_argument_group("chip")
    if chip:
        group.add_argument(
            "--chip",
            metavar="NAME|FILE",
            help="chip name, slice of a TPU (v6e:4x4), local (this computer's CPU) or machine file (TOML); default: "
            f"${CHIP_VARIABLE}, else the device named in the profile, else {DEFAULT_CHIP}",
        )
    group.add_argument("--set", metavar="RESOURCE=RATE", action="append", default=[], help='override or add a rate: --set hbm="7.2 TB/s"')
    group.add_argument("--per-device", action="store_true", help="use the limits of one framework device, not of the whole chip")


def correction_options(parser: argparse.ArgumentParser) -> None:
    """Corrections of the ideal roofline; all off by default."""
    group = parser.add_argument_group("corrections (all off by default)")
    named_values(parser, "--correct", "correct the ideal roofline", CORRECTIONS, group)
    for name in ("communication", "overlap", "launches", "limit"):
        former(group, f"--{name}", option="--correct", becomes=f"{name}={{}}")
    former(group, "--sustained", option="--correct", becomes=_sustained_words)


def _sustained_words(given: list[str]) -> list[str]:
    return [f"sustained-{text}" if "=" in text else f"sustained={text}" for text in given]


CORRECTIONS = (
    Value("sustained=FRACTION", "sustained fraction of all peak rates, such as 0.85", several=True),
    Value("sustained-RESOURCE=FRACTION", "of one: sustained-matrix=0.8"),
    Value("communication=FRACTION", "fraction of time spent communicating, without overlap", default="0"),
    Value("overlap=FRACTION", "how far units overlap: 1 fully (minimum time, the default), 0 not at all (serial time)", default="1"),
    Value("launches=N", "number of kernel launches; each takes one launch latency", default="0"),
    Value("limit=NAME", "a named lower ceiling of the chip, such as 'limit=no FMA'"),
)


def screen_options(parser: argparse.ArgumentParser) -> None:
    """How much of a report the terminal shows."""
    parser.add_argument("--top", type=at_least(0), metavar="N", help="ops to show in the table (default: up to 10, as fit one screen)")
    parser.add_argument("--details", action="store_true", help="show findings in whole sentences with all levers, and all facts and notes")


def throughput_options(parser: TakesOptions) -> None:
    """The option for how many tokens, samples or requests a step handles."""
    parser.add_argument(
        "--per-step",
        action="append",
        default=[],
        metavar="WORD=N",
        help="how many tokens, samples or requests one step handles on all devices together, for its throughput: --per-step tokens=8192 "
        "or 8k; may be repeated",
    )
    parser.add_argument("--price", metavar="DOLLARS", help="price of one chip for an hour, for the throughput per dollar (with --per-step)")


def amount(option: str, text: str | None, unit: str = "") -> float | None:
    """The number of an option's words, without the unit that may stand beside it."""
    try:
        return None if text is None else parse_count(re.sub(unit, "", text))
    except UnitError as error:
        raise UsageError(f"{option} {text}: {error}") from None


def chosen_price(args: argparse.Namespace) -> float | None:
    """The price of an hour of one chip."""
    price = amount("--price", args.price, PRICE)
    if price is not None and not args.per_step:
        raise UsageError(f"--price {args.price}: give a price above 0, with --per-step tokens=N")
    return price


def chosen_throughput(args: argparse.Namespace) -> dict[str, float]:
    """The numbers per step that the options give, by word."""
    found: dict[str, float] = {}
    for given in args.per_step:
        word, equals, number = (part.strip() for part in given.partition("="))
        if not equals or not word.isidentifier():
            raise UsageError(f"--per-step {given}: give a word and a number, such as tokens=8192")
        if word in found:
            raise UsageError(f"--per-step {given}: {word} is given twice")
        try:
            found[word] = parse_count(number)
        except UnitError as error:
            raise UsageError(f"--per-step {given}: {error}") from None
    return found


def output_options(parser: argparse.ArgumentParser, *, figure: bool = True, page: bool = False) -> None:
    """Options for outputs besides the terminal."""
    group = parser.add_argument_group("output")
    group.add_argument("--json", metavar="FILE", help="write the full result as JSON; - is standard output")
    group.add_argument("--csv", metavar="FILE", help="write the table as CSV; - is standard output")
    group.add_argument("--parquet", metavar="FILE", help="write the table as Parquet; - is standard output")
    if figure:
        figure_options(group, page=page)


def anonymize_options(parser: argparse.ArgumentParser) -> None:
    """Options for sharing a report."""
    group = parser.add_argument_group("sharing")
    group.add_argument(
        "--anonymize",
        action="store_true",
        help="replace names, paths, hosts and scopes by pseudonyms in every output, and list what remains: --anonymize -o run.html",
    )
    group.add_argument(
        "--anonymize-key",
        metavar="WORD",
        help="secret key of the pseudonyms: reports made with the same key have the same pseudonyms, and without the key no one can "
        "check a guess at a name (default: none)",
    )


FIGURES = (".svg", ".png", ".pdf")
PAGES = (".html", ".htm")
MARKDOWN = (".md", ".markdown")


def figure_options(parser: TakesOptions, *, required: bool = False, page: bool = False) -> None:
    """Options for the file of a figure or page, and for a figure's background."""
    kinds = "write a web page (.html), Markdown (.md) or a figure (.svg, .png, .pdf)" if page else "write a figure (.svg, .png, .pdf)"
    kind = _figure_or_page if page else _figure
    parser.add_argument("-o", "--output", action=_Once, type=kind, required=required, metavar="FILE", help=kinds)
    parser.add_argument(
        "--dark", dest="theme", action="store_const", const="dark", default="light", help="use colours for a dark background"
    )


class _Once(argparse.Action):
    """An option that may be given only once, because a second file would not be written."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        if getattr(namespace, self.dest):
            parser.error(f"{option_string} is given twice; give it once, and use --json, --csv or --parquet for further files")
        setattr(namespace, self.dest, values)


def _figure(name: str) -> str:
    """Reject an unsupported format before any work is done."""
    if not name.lower().endswith(FIGURES):
        raise UsageError(f"{name}: not a figure format; use {', '.join(FIGURES)}")
    return name


def _figure_or_page(name: str) -> str:
    if not is_page(name) and not is_markdown(name) and not name.lower().endswith(FIGURES):
        kind = name.lower().rpartition(".")[2]
        data = f"; write data with --{kind} {name}" if kind in ("json", "csv", "parquet") else ""
        raise UsageError(f"{name}: -o writes .html for a page, .md for Markdown, {', '.join(FIGURES)} for a figure{data}")
    return name


def is_markdown(name: str) -> bool:
    """Whether a file of this name is Markdown."""
    return name.lower().endswith(MARKDOWN)


def is_page(name: str) -> bool:
    """Whether a file of this name is a page."""
    return name.lower().endswith(PAGES)


def names_machine(args: argparse.Namespace) -> bool:
    """Whether these options name a machine other than the input's own."""
    return bool(args.chip or args.set or args.per_device)


def chosen_machine(args: argparse.Namespace, devices: Sequence[Device] = ()) -> Machine:
    """The machine these options name; without a name, the first device that a recording came from, else the default."""
    name = args.chip or os.environ.get(CHIP_VARIABLE)
    if name:
        with chip_name(name):
            machine = load(name)
    else:
        machine = machine_for(devices)
    if args.per_device:
        machine = machine.per_device()
    if args.set:
        rates = parse_settings(args.set)
        for resource in rates:
            check_known(Resource(resource), rated(machine), "--set")
        machine = machine.override(rates)
    if getattr(args, "limit", None):
        with wrong_value("--correct limit"):
            machine = machine.limited(args.limit)
    return machine


def machine_of(args: argparse.Namespace, usual: Machine | None = None) -> Target:
    """The machine these options name, else how to find that of an input's devices, ``usual`` where it has none."""
    if args.chip or os.environ.get(CHIP_VARIABLE):
        return chosen_machine(args)
    return partial(_machine_of, args, usual)


def _machine_of(args: argparse.Namespace, usual: Machine | None, devices: Sequence[Device]) -> Machine:
    return usual if usual and not devices else chosen_machine(args, devices)


@contextmanager
def chip_name(name: str) -> Iterator[None]:
    """Raise a usage error for an unknown chip, but not for a missing or wrong machine file."""
    try:
        yield
    except MachineError as error:
        if is_path(name):
            raise
        raise UsageError(str(error)) from None


def chip_and_format(word: str) -> tuple[str, str]:
    """The chip and the number format in ``NAME:FORMAT``; the format is empty where there is none."""
    name, colon, number_format = word.rpartition(":")
    return (name, number_format) if colon and is_dtype(number_format) else (word, "")


def rated(machine: Machine) -> list[str]:
    """The resources a machine has a rate for."""
    return [ceiling.resource.name for ceiling in machine.ceilings]


@contextmanager
def wrong_value(option: str) -> Iterator[None]:
    """Turn a `MachineError` about the value of an option into a usage error."""
    try:
        yield
    except MachineError as error:
        raise UsageError(f"{option}: {error}") from None


def is_corrected(args: argparse.Namespace) -> bool:
    """Whether these options contain any correction."""
    return bool(args.sustained) or (args.communication, args.overlap, args.launches) != ("0", "1", "0")


def chosen_corrections(args: argparse.Namespace) -> Corrections:
    """The corrections that these options give."""
    return Corrections(
        sustained=_sustained(args.sustained),
        communication=_fraction(args.communication, "--correct communication"),
        overlap=_fraction(args.overlap, "--correct overlap"),
        launches=quantity(args.launches, "1", "--correct launches"),
    )


def _sustained(words: Sequence[str]) -> float | dict[str, float] | None:
    if not words:
        return None
    if len(words) == 1 and "=" not in words[0]:
        return _fraction(words[0], "--correct sustained")
    fractions = {}
    for word in words:
        name, equals, fraction = word.partition("=")
        if not equals:
            raise UsageError(f"--correct sustained={word}: give one fraction for all resources, or sustained-RESOURCE=FRACTION for each")
        fractions[Resource(name).name] = _fraction(fraction, f"--correct sustained-{name}")
    return fractions


def _fraction(text: str, option: str) -> float:
    value = quantity(text, "1", option)
    if value > 1:
        raise UsageError(f"{option} {text}: not between 0 and 1; write 0.85 or 85%")
    return value


def quantity(text: str, dimension: str, option: str) -> float:
    """The value of an option that takes a quantity."""
    try:
        return parse(text, dimension)
    except UnitError as error:
        raise UsageError(f"{option}: {error}") from None
