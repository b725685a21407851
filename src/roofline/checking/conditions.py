"""Conditions on a report: the language of budgets.

    conditions = condition { ("and" | ", " | ";" | new line) condition }
    condition  = "no" ("findings" | ["finding"] KIND) | quantity ["of" ops] ["on" CHIP] (operator limit | growth)
    operator   = "<" | "<=" | ">" | ">=" | "==" | "=" | "!="
    limit      = amount | [factor] "baseline" [("+" | "-") percentage]
    growth     = ("+" | "-") percentage

``ops`` is a filter, as on the page (`op_filter`). For a ratio (mfu), a percentage is the value itself; for anything else, a share of the
whole report's amount. A text that cannot be read is an error that names the word.
"""

import re
from math import isfinite
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from ..errors import RooflineError, UnitError, UsageError, did_you_mean, excerpt
from ..grouping.op_filter import FilterError, parse_filter
from ..quantities import REPORT, REPORT_ALIASES
from ..resource import HBM, Resource, check_known
from ..units import parse, parse_count, plain

ALIASES = {"bytes": HBM.name, **REPORT_ALIASES}
LONGEST = 2000  # characters of a condition
_OPERATOR = re.compile(r"<=|>=|==|!=|[<>=]")
_BASELINE = re.compile(
    r"(?:(?P<factor>[\d.,_]+)\s*(?P<unit>x|%|\*|×)?\s*(?:of\s+)?)?baseline(?:\s*(?P<sign>[+-])\s*(?P<more>[\d.,_]+)\s*%)?", re.IGNORECASE
)
_BARE = re.compile(r"\d+(\.\d*)?|\.\d+", re.ASCII)  # a number without a unit
_QUOTES = ('"', "/")
_SEPARATOR = re.compile(r"(?:[;\n]|,\s)\s*(?:and(?=\s))?|(?:^|\s+)and(?=\s|$)", re.IGNORECASE)
# `time +5%`: at most 5% more than in the baseline; `mfu -2%`: at most 2% less
_GROWTH = re.compile(r"(?P<quantity>.*\S)\s*(?P<sign>[+-])\s*(?P<more>[\d.,_]+)\s*%", re.DOTALL)


class Quantity(Struct, frozen=True, kw_only=True):
    """The left side of a condition: a quantity of the whole report, or ``of`` the ops that pass a filter, ``on`` another chip."""

    name: str
    of: str = ""
    on: str = ""

    @property
    def text(self) -> str:
        return f"{self.name}{f' of {self.of}' if self.of else ''}{f' on {self.on}' if self.on else ''}"

    @property
    def dimension(self) -> str:
        """``s``, ``FLOP``, ``B``, ``hop``, ``FLOP/B``, ``1`` for a ratio, empty for a plain number."""
        if self.name in REPORT:
            return REPORT[self.name].unit
        return "" if self.is_throughput else Resource(self.name).measure

    @property
    def is_throughput(self) -> bool:
        return self.name.endswith("/s")

    @property
    def is_measured(self) -> bool:
        """Whether it needs a run on a device."""
        return REPORT[self.name].measured if self.name in REPORT else self.is_throughput

    @property
    def is_whole(self) -> bool:
        """Whether it cannot be asked of some ops."""
        return self.name in REPORT and REPORT[self.name].whole

    @property
    def is_of_step(self) -> bool:
        """Whether a percentage of it refers to the step."""
        return self.name in REPORT and REPORT[self.name].of_step


class Condition(Struct, frozen=True, kw_only=True):
    """One condition.

    Without a quantity, there must be no finding of the kind ``absent``, or of any kind if that is empty. The limit is ``number``, in base
    units; with ``of_baseline`` it is a factor on the baseline's value, with ``of_whole`` on the whole report's.
    """

    text: str
    quantity: Quantity | None = None
    operator: str = ""
    number: float = 0.0
    of_baseline: bool = False
    of_whole: bool = False
    absent: str = ""

    @property
    def is_measured(self) -> bool:
        return self.quantity is not None and self.quantity.is_measured


def parse_conditions(text: str, kinds: tuple[str, ...] = (), time: str = "time") -> tuple[Condition, ...]:
    """The conditions of a text, all of which must hold; ``kinds`` are the valid kinds of findings, if given.

    ``time`` is the quantity that the word refers to in a growth such as ``time +5%``.
    """
    return tuple(_growth(part, kinds, time) or _condition(part, kinds) for part in split_conditions(text))


def _growth(text: str, kinds: tuple[str, ...], time: str) -> Condition | None:
    """The condition on a change since the baseline: at most so much more, or at most so much less."""
    match = _GROWTH.fullmatch(text)
    if match is None or _OPERATOR.search(_masked(match["quantity"])):
        return None
    name = time if match["quantity"].lower() == "time" else match["quantity"]
    sign = "<=" if match["sign"] == "+" else ">="
    condition = _condition(f"{name} {sign} baseline {match['sign']} {match['more']}%", kinds)
    return replace(condition, text=text if name == match["quantity"] else f"{text} ({name})")


def split_conditions(text: str) -> list[str]:
    """The conditions in a text; separators inside parentheses, quotes and regular expressions are ignored."""
    if len(text) > LONGEST:
        raise UsageError(f"condition {excerpt(text)}: longer than {LONGEST:,} characters")
    hidden = _masked(text)
    parts, start = [], 0
    for found in [*_SEPARATOR.finditer(hidden), None]:
        end = found.start() if found else len(text)
        part = text[start:end]
        if part.strip():
            parts.append(part.strip())
        elif found and found[0].strip().lower() == "and":
            _fail(text, "and", hidden.lower().index("and", found.start()), "nothing before it")
        if found and not text[found.end() :].strip() and "and" in found[0].lower():
            _fail(text, "and", hidden.lower().index("and", found.start()), "nothing after it")
        start = found.end() if found else end
    if not parts:
        raise UsageError("condition: empty; write one like 'step < 30 ms'")
    return parts


def _masked(text: str) -> str:
    """The text with dots in place of parentheses, quotes and regular expressions."""
    return _mask(text)[0]


def _mask(text: str) -> tuple[str, int | None]:
    """The text with dots in place of parentheses and quotes, and the position of an unclosed one."""
    made, depth, quote, opened = [], 0, "", 0
    for place, letter in enumerate(text):
        inside = depth or quote
        if quote:
            quote = "" if letter == quote and text[place - 1] != "\\" else quote
        elif letter == '"' or (letter == "/" and (not place or text[place - 1] in " (:=") and "/" in text[place + 1 :]):
            quote = inside = letter
            opened = opened if depth else place
        elif letter in "()":
            opened = place if letter == "(" and not depth else opened
            depth = max(depth + (1 if letter == "(" else -1), 0)
            inside = True
        made.append("." if inside else letter)
    return "".join(made), opened if depth or quote else None


def _fail(text: str, word: str, at: int, message: str) -> NoReturn:
    raise UsageError(f"condition {excerpt(text, 120)}, at {excerpt(word, 40)} (character {at + 1}): {message}")


def _condition(text: str, kinds: tuple[str, ...]) -> Condition:
    if re.match(r"no\b", text, re.IGNORECASE):
        return _absence(text, kinds)
    hidden, opened = _mask(text)
    if opened is not None:
        _fail(text, text[opened:].split()[0], opened, f"the {'quote' if text[opened] in _QUOTES else 'parenthesis'} is not closed")
    signs = list(_OPERATOR.finditer(hidden))
    spaced = [one for one in signs if hidden[max(one.start() - 1, 0)].isspace()]
    has_filter = re.search(r"\sof\s", hidden, re.IGNORECASE)
    chosen = (spaced or signs)[-1:] if has_filter else signs[:1]
    if not chosen:
        hint = "; a filter with 'and' or commas goes into parentheses" if has_filter else ""
        _fail(text, text.split()[-1], text.rindex(text.split()[-1]), f"no comparison; write one like 'step < 30 ms'{hint}")
    sign = chosen[0]
    _check_single(text, hidden, sign, signs)
    left, right = text[: sign.start()].rstrip(), text[sign.end() :].strip()
    if not right:
        _fail(text, sign[0], sign.start(), "nothing to compare with; write it like 'step < 30 ms'")
    quantity = _quantity(text, left)
    number, of_baseline, of_whole = _limit(text, right, text.rindex(right), quantity)
    operator = "==" if sign[0] == "=" else sign[0]
    return Condition(text=text, quantity=quantity, operator=operator, number=number, of_baseline=of_baseline, of_whole=of_whole)


def _check_single(text: str, hidden: str, sign: re.Match[str], signs: list[re.Match[str]]) -> None:
    """Raise an error for a second comparison: conditions are joined by "and", and comparisons in a filter have no spaces."""
    either = re.search(r"\sor\s", hidden[sign.end() :], re.IGNORECASE)
    if either:
        _fail(text, "or", sign.end() + either.start() + 1, "conditions are joined by 'and'; 'or' is for the ops after 'of'")
    spaced = [one for one in signs if hidden[one.end() : one.end() + 1].isspace() and hidden[max(one.start() - 1, 0)].isspace()]
    others = [one for one in signs if one.start() > sign.start()] or [one for one in spaced if one.start() < sign.start()]
    if others:
        hint = "; of a filter, write it without spaces: time>1%" if others[0].start() < sign.start() else ""
        _fail(text, others[0][0], others[0].start(), f"one comparison is enough; join conditions by 'and'{hint}")


def _absence(text: str, kinds: tuple[str, ...]) -> Condition:
    words = text.lower().split()[1:]
    if words in (["findings"], ["finding"]):
        return Condition(text=text)
    kind = words[-1] if words else ""
    if not words or len(words) > 2 or (len(words) == 2 and words[0] not in ("finding", "findings")):
        _fail(text, text.split()[-1], text.rindex(text.split()[-1]), "write it like 'no finding dense-experts' or 'no findings'")
    if kinds and kind not in kinds:
        known = did_you_mean(kind, kinds) or f"; kinds: {', '.join(kinds)}"
        _fail(text, kind, text.lower().rindex(kind), f"no such finding{known}")
    return Condition(text=text, absent=kind)


def _quantity(text: str, left: str) -> Quantity:
    words = re.fullmatch(r"(?P<name>.*?)(?:\s+of\s+(?P<of>.*?))?(?:\s+on\s+(?P<on>\S+))?", left, re.IGNORECASE | re.DOTALL)
    word = " ".join((words["name"] if words else left).lower().split())
    name = ALIASES.get(word, word)
    if not name:
        _fail(text, text.split()[0], 0, "no quantity before it; write it like 'step < 30 ms'")
    if (last := left.split()[-1]).lower() in ("of", "on"):
        _fail(text, last, left.rindex(last), f"nothing after it; {'name ops: hbm of attn' if last.lower() == 'of' else 'name a chip'}")
    of, on = ((words["of"] or "").strip(), words["on"] or "") if words else ("", "")
    if name not in REPORT and not (name.endswith("/s") and name[:-2].isidentifier()):
        _check_resource(text, name)
    if of and words:
        if Quantity(name=name).is_whole:
            _fail(text, of, words.start("of"), f"{name} is of the whole program; leave out 'of …'")
        try:
            parse_filter(of)
        except FilterError as error:
            at = min(error.at, len(of) - 1)
            _fail(text, of[at:].split()[0].rstrip(")") or ")", words.start("of") + at, error.reason)
    if on and name in REPORT and REPORT[name].measured:
        _fail(text, on, text.rindex(on), f"{name} is measured here; write 'expected step on {on}' or 'minimum time on {on}'")
    return Quantity(name=name, of=of, on=on)


def _check_resource(text: str, name: str) -> None:
    try:
        check_known(Resource(name), (), "")
    except RooflineError:
        known = [*REPORT, *ALIASES, "hbm", "l2", "nvlink", "ici", "host", "matrix/bf16", "matrix/fp32"]
        hint = did_you_mean(name, known) or f"; quantities: {', '.join(REPORT)}, hbm and other memories and links, matrix/bf16, …"
        _fail(text, name, 0, f"no such quantity{hint}")


def _limit(text: str, right: str, at: int, quantity: Quantity) -> tuple[float, bool, bool]:
    """The number, and whether it is a factor on the baseline's or on the whole report's value."""
    if "baseline" in right.lower():
        match = _BASELINE.fullmatch(right)
        if match is None:
            _fail(text, right, at, "write it like 'baseline', '1.1x baseline' or 'baseline + 5%'")
        try:
            factor = parse(match["factor"] or "1", "1") / (100 if match["unit"] == "%" else 1)
            more = parse(match["more"] or "0", "1") / 100
        except UnitError as error:
            _fail(text, right, at, str(error))
        return factor * (1 - more if match["sign"] == "-" else 1 + more), True, False
    try:
        number, of_whole = _amount(text, right, at, quantity)
    except UnitError as error:
        meant = next((hint for word in right.split() if (hint := did_you_mean(word, ["baseline"]))), "")
        _fail(text, right, at, f"{excerpt(right)} is not an amount{meant}" if meant else str(error))
    if not isfinite(number):
        _fail(text, right, at, "not a finite amount")
    return number, False, of_whole


def _amount(text: str, right: str, at: int, quantity: Quantity) -> tuple[float, bool]:
    """The number of a limit without a baseline, and whether it is a share of the whole report's value."""
    dimension = quantity.dimension
    if right.endswith("%"):
        if dimension != "1" and not quantity.of and not quantity.is_of_step:
            hint = f"'{quantity.name} of … < {right}' or '{quantity.name} < baseline + {right}'"
            _fail(text, right, at, f"{quantity.name} is a total, which has no percentage; write {hint}")
        return parse(right, "1"), dimension != "1"
    number = float(right) if _BARE.fullmatch(right) else None
    if number and quantity.is_of_step:
        _fail(text, right, at, f"write '{right}%' of the step, or a time like '{right} ms'")
    if number and number > 1 and dimension == "1":
        _fail(text, right, at, f"{quantity.name} is a ratio, 1 is 100%; write '{right}%' or '{plain(100 * number)}%'")
    if not dimension:
        return (0.0 if right == "0" else parse_count(right)), False
    return parse(right, dimension), False
