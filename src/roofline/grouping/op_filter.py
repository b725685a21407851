"""The page's filter language for ops of a report: ``bound=hbm time>1%``, ``category:fusion or (scope:attn -copy)``.

    expression = any { "or" any }        any = one { ["and"] one }        one = ["not" | "-"] ( "(" expression ")" | condition )
    condition  = field operator value | /regular expression/flags | "quoted words" | pattern with * | word

A word matches a part of the name, the label or the scope; a word with ``*`` is a pattern for the scope and everything below it
(``layer*/attn``). Steps and devices are not fields here: `selection.narrow` selects the parts of ops that ran there.
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from typing import Any, NamedTuple, NoReturn

from ..errors import UnitError, UsageError, did_you_mean, excerpt
from ..quantities import OP, OP_ALIASES, OfOp
from ..report import OpInfo
from ..units import BINARY, DECIMAL, EXAMPLES, parse

Totals = Mapping[str, float]
Test = Callable[[OpInfo, Totals], bool]
Words = Callable[[str], bool]

SHARE = "share"  # of the self time of all ops that are filtered

FIELDS = {name: quantity for name, quantity in OP.items() if quantity.of or name == SHARE}
NUMBERS = {name: quantity for name, quantity in FIELDS.items() if quantity.is_number}
TEXTS = {name: quantity for name, quantity in FIELDS.items() if not quantity.is_number}
ALIASES = {alias: name for alias, name in OP_ALIASES.items() if alias not in FIELDS}
PAGE_FIELDS = ("unknown", "step", "device")  # the page alone has them
DEEPEST = 50  # nested parentheses
SUGGESTED = 8  # most values in an error
_NONE = "none"
_QUOTED = r'"(?:[^"\\]|\\.)*"?'
_REGEX = r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\]?)*(?:/[a-z]*)?"
_WORD = r'[^\s()"]+'
_TOKEN = re.compile(
    rf"\s+|(?P<open>\()|(?P<close>\))|(?P<minus>-(?=[^\s)]))|(?P<quoted>{_QUOTED})|(?P<regex>{_REGEX})"
    rf"|(?P<field>[a-z_]+)(?P<operator><=|>=|!=|[<>=:])|(?P<word>{_WORD})",
    re.IGNORECASE,
)
_VALUE = re.compile(rf"{_QUOTED}|{_REGEX}|{_WORD}", re.IGNORECASE)
_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "u": re.UNICODE}
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    ":": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}


class FilterError(UsageError):
    """A filter with a syntax error: the ``reason``, and the character position ``at``, counted from 0."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(f"filter, character {at + 1}: {reason}")
        self.reason, self.at = reason, at


class _Token(NamedTuple):
    kind: str
    at: int
    text: str
    operator: str = ""
    value: str = ""
    value_at: int = 0


def filtered(ops: Iterable[OpInfo], text: str) -> tuple[OpInfo, ...]:
    """The ops that pass a filter, in their order; a syntax error names the position."""
    test, rows = parse_filter(text), tuple(ops)
    totals = {
        "self": sum(op.weight_s for op in rows),
        "minimum": sum(op.floor_s or 0.0 for op in rows),
        "lost": sum(op.lost_s or 0.0 for op in rows),
        "flops": sum(op.flops or 0.0 for op in rows),
        "bytes": sum(op.bytes.get("hbm") or 0.0 for op in rows),
        "count": sum(op.count for op in rows),
    }
    return tuple(op for op in rows if test(op, totals))


def check_values(text: str, ops: Sequence[OpInfo], known: Mapping[str, Iterable[str]]) -> None:
    """Raise an error for a value that no op has in a condition with ``=`` on one of the fields of ``known``, which has further values.

    What ops must not be, after "not", may be anything.
    """
    for field, value, at in _required_values(_tokens(text)):
        name = ALIASES.get(field.lower(), field.lower())
        if name not in known or value.startswith("/"):
            continue
        there = list(dict.fromkeys(value for op in ops for value in _values(TEXTS[name], op)))
        for word in [re.sub(r"\\(.)", r"\1", value[1:-1])] if value.startswith('"') else filter(None, value.split(",")):
            if word.casefold() not in {value.casefold() for value in (*there, *known[name], _NONE)}:
                others = did_you_mean(word, (*there, *known[name])) or f"; there is: {', '.join(there[:SUGGESTED]) or 'none'}"
                _fail(f"{field}={word}: no op has it{others}", at)


def _required_values(tokens: Sequence[_Token]) -> Iterator[tuple[str, str, int]]:
    """Field, value and position of the conditions with ``=`` that are not negated."""
    negated, inside = False, 0  # how deep in parentheses after "not"
    for token in tokens:
        if inside:
            inside += {"open": 1, "close": -1}.get(token.kind, 0)
        elif negated and token.kind == "open":
            inside = 1
        elif token.kind == "condition" and token.operator == "=" and not negated:
            yield token.text, token.value, token.at
        negated = token.kind in ("not", "minus")


def parse_filter(text: str) -> Test:
    """The test function of a filter; an empty filter accepts everything."""
    tokens = _tokens(text)
    if not tokens:
        return lambda op, totals: True
    test = _parse_joined(tokens, 0)
    if tokens:
        _fail("unmatched closing parenthesis", tokens[0].at)
    return test


def _fail(message: str, at: int) -> NoReturn:
    raise FilterError(message, at)


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            _fail(f"unexpected {excerpt(text[at])}", at)
        start, at = at, match.end()
        if match["field"] is not None:
            value = _VALUE.match(text, at)
            if value is None:
                _fail(f"{match[0]} needs a value", at)
            tokens.append(_Token("condition", start, match["field"], match["operator"], value[0], at))
            at = value.end()
        elif match["word"] is not None:
            lower = match["word"].lower()
            tokens.append(_Token(lower if lower in ("and", "or", "not") else "word", start, match["word"]))
        elif match.lastgroup is not None:
            tokens.append(_Token(match.lastgroup, start, match[0]))
    return tokens


def _parse_joined(tokens: list[_Token], depth: int, word: str = "or") -> Test:
    """Tests joined by "or", each made of tests joined by "and", which may be left out."""
    is_or = word == "or"
    ends = ("close",) if is_or else ("close", "or")
    tests: list[Test] = []
    while not tests or (tokens and tokens[0].kind not in ends):
        if tests and tokens[0].kind == word:
            at = tokens.pop(0).at
            if not tokens:
                _fail(f'nothing after "{word}"', at)
        tests.append(_parse_joined(tokens, depth, "and") if is_or else _parse_term(tokens, depth))
    holds = any if is_or else all
    return tests[0] if len(tests) == 1 else lambda op, totals: holds(test(op, totals) for test in tests)


def _parse_term(tokens: list[_Token], depth: int) -> Test:
    token = tokens.pop(0)
    if depth > DEEPEST:
        _fail("nested too deeply", token.at)
    if token.kind in ("not", "minus"):
        if not tokens:
            _fail(f'nothing after "{token.text}"', token.at)
        inner = _parse_term(tokens, depth + 1)
        return lambda op, totals: not inner(op, totals)
    if token.kind == "open":
        if not tokens:
            _fail("missing closing parenthesis", token.at)
        inside = _parse_joined(tokens, depth + 1)
        if not tokens or tokens.pop(0).kind != "close":
            _fail("missing closing parenthesis", token.at)
        return inside
    if token.kind == "condition":
        return _condition(token)
    if token.kind in ("word", "quoted", "regex"):
        if token.kind == "word" and "*" in token.text:
            return _scope_test(token.text)
        matches = _text_test(token.text, token.at, exact=False)
        return lambda op, totals: any(map(matches, (op.name, op.label, op.scope)))
    _fail("unexpected closing parenthesis" if token.kind == "close" else f'nothing before "{token.text}"', token.at)


def _scope_test(pattern: str) -> Test:
    """A test that the scope, or one of its parents, matches the pattern part by part."""
    parts = [re.compile(translate(part), re.IGNORECASE) for part in pattern.strip("/").split("/")]

    def test(op: OpInfo, totals: Totals) -> bool:
        there = op.scope.split("/")
        starts = range(len(there) - len(parts) + 1)
        return any(all(part.match(there[start + place]) for place, part in enumerate(parts)) for start in starts)

    return test


def _condition(token: _Token) -> Test:
    name = ALIASES.get(token.text.lower(), token.text.lower())
    if name in NUMBERS:
        return _number_test(name, token)
    if name in PAGE_FIELDS:
        _fail(f"{name} is a field of the page only", token.at)
    if name not in TEXTS:
        every = f"; fields: {', '.join(FIELDS)}; only on the page: {', '.join(PAGE_FIELDS)}"
        _fail(f"unknown field '{token.text}'{did_you_mean(name, FIELDS) or every}", token.at)
    if token.operator[0] in "<>":
        _fail(f"{token.text} is text; compare it with : or =", token.at + len(token.text))
    words = [token.value] if token.value[0] in '"/' else [word for word in token.value.split(",") if word]
    if not words:
        _fail("missing value", token.value_at)
    exact, field = token.operator != ":", TEXTS[name]
    tests = [_text_test(word, token.value_at, exact) for word in words]
    wants_none = exact and any(word.lower() == _NONE for word in words)

    def holds(op: OpInfo, totals: Totals) -> bool:
        values = _values(field, op)
        return any(test(value) for value in values for test in tests) if values else wants_none

    return (lambda op, totals: not holds(op, totals)) if token.operator == "!=" else holds


def _values(field: OfOp, op: OpInfo) -> list[str]:
    """The texts that an op has of a field."""
    assert field.of
    found = field.of(op)
    return [value for value in ((found,) if isinstance(found, str) else found or ()) if value]


def _text_test(word: str, at: int, exact: bool) -> Words:
    """A test of a string: a regular expression between slashes, quoted words, or a plain word."""
    if word.startswith("/") and len(word) > 1:
        source, slash, flags = word[1:].rpartition("/")
        if not slash:
            _fail("missing closing / of the regular expression", at)
        if unknown := set(flags) - set(_FLAGS):
            _fail(f"a regular expression takes the flags i, m, s and u, not {min(unknown)}", at)
        try:
            pattern = re.compile(source, sum(_FLAGS[flag] for flag in set(flags)))
        except (re.error, OverflowError, RecursionError):
            _fail(f"{word} is not a valid regular expression", at)
        return lambda text: pattern.search(text) is not None
    if word.startswith('"'):
        if len(word) < 2 or not re.fullmatch(r'"(?:[^"\\]|\\.)*"', word, re.DOTALL):
            _fail("missing closing quote", at)
        word = re.sub(r"\\(.)", r"\1", word[1:-1], flags=re.DOTALL)
    wanted = word.casefold()
    return (lambda text: text.casefold() == wanted) if exact else (lambda text: wanted in text.casefold())


def _number_test(name: str, token: _Token) -> Test:
    """A comparison of a number; an unknown value fails every comparison except "differs"."""
    field = NUMBERS[name]
    dimension, whole = field.unit, field.of_total
    differs, compared = token.operator == "!=", COMPARE[token.operator]

    def value_of(op: OpInfo, totals: Totals) -> Any:
        if field.of is None:
            return op.weight_s / totals["self"] if totals["self"] else None
        return field.of(op)

    if token.value.lower() == _NONE and token.operator in ("=", ":", "!="):
        return lambda op, totals: (value_of(op, totals) is None) != differs
    is_share = token.value.endswith("%") and dimension != "1"
    if is_share and not whole:
        _fail(f"{name} has no total to take a percentage of", token.value_at)
    wanted = _amount(token.value, "1" if is_share else dimension, token.value_at)

    def test(op: OpInfo, totals: Totals) -> bool:
        value = value_of(op, totals)
        if value is None:
            return differs
        return compared(value, wanted * totals[whole] if is_share else wanted)

    return test


def _amount(text: str, dimension: str, at: int) -> float:
    """A quantity, or a bare number with a prefix: 1G."""
    prefixes = {**DECIMAL, **BINARY}
    prefix = next((one for one in sorted(prefixes, key=len, reverse=True) if one and text.endswith(one)), "")
    try:
        if prefix and re.fullmatch(r"[\d.,_]+", text.removesuffix(prefix)):
            return parse(text.removesuffix(prefix), "1") * prefixes[prefix]
        return parse(text, dimension or "1")
    except UnitError:
        _fail(_not_a_quantity(text, dimension), at)


def _not_a_quantity(text: str, dimension: str) -> str:
    if not dimension:
        return f"'{text}' is not a number"
    quantity = "number" if dimension == "1" else f"quantity in {dimension}"
    return f"'{text}' is not a {quantity}; write it like '{EXAMPLES[dimension]}'"
