"""Parsing and formatting of quantities with units: the only module that handles prefixes.

Inside, everything is in base units: seconds, bytes, FLOP, FLOP/s, B/s, Hz, W. G is 10⁹ and Gi is 2³⁰, always. People write
the unit with the value (``"3.35 TB/s"``); a bare number is in base units.

    >>> parse("3.35 TB/s", "B/s")
    3350000000000.0
    >>> show(3.35e12, "B/s")
    '3.35 TB/s'
"""

import math
import re

from .errors import UnitError, excerpt

DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
SMALL = {"m": 10**3, **dict.fromkeys("uµμ", 10**6), "n": 10**9, "p": 10**12}  # how many make one base unit

LEAST_PERCENT = 1e-4  # a smaller share is shown as less than this
# The prefixes that people read, largest first: of seconds, and of everything else.
_DOWN: dict[str, float] = {"": 1, **{prefix: 1 / SMALL[prefix] for prefix in "mµnp"}}
_UP: dict[str, float] = {prefix: DECIMAL[prefix] for prefix in ("E", "P", "T", "G", "M", "k", "")}

# spelling -> (dimension, numerator, denominator of its size in base units). OP is what vendors call FLOP for integers.
_SPELLINGS: dict[str, tuple[str, int, int]] = {
    **dict.fromkeys(("FLOP", "FLOPs", "OP", "OPs"), ("FLOP", 1, 1)),
    **dict.fromkeys(("FLOP/s", "FLOPS", "FLOPs/s", "OP/s", "OPS"), ("FLOP/s", 1, 1)),
    **dict.fromkeys(("B", "byte", "bytes"), ("B", 1, 1)),
    "bit": ("B", 1, 8),
    "B/s": ("B/s", 1, 1),
    "bit/s": ("B/s", 1, 8),
    "s": ("s", 1, 1),
    "min": ("s", 60, 1),
    "h": ("s", 3600, 1),
    "Hz": ("Hz", 1, 1),
    "W": ("W", 1, 1),
    "FLOP/B": ("FLOP/B", 1, 1),
    **dict.fromkeys(("hop", "hops"), ("hop", 1, 1)),
    "hop/s": ("hop/s", 1, 1),
    "%": ("1", 1, 100),
    **dict.fromkeys(("x", ""), ("1", 1, 1)),
}
_UNPREFIXED = {"min", "h", "%", "x", "", "FLOP/B", "hop", "hops"}
EXAMPLES = {
    "FLOP": "2.2 TFLOP",
    "FLOP/s": "989 TFLOP/s",
    "B": "12 GB",
    "B/s": "3.35 TB/s",
    "s": "3.1 ms",
    "Hz": "1.98 GHz",
    "W": "700 W",
    "FLOP/B": "240 FLOP/B",
    "hop": "3 hops",
    "hop/s": "1e6 hop/s",
    "1": "85%",
}
_PLAIN = re.compile(r"\s*[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?\s*")  # a bare number, the usual cell of a large table
_NUMBER = (
    r"(?is)\s*(?:(?P<digits>[+-]?(?:\d[\d_,]*\.?\d*|\.\d+))(?P<exponent>[eE][+-]?\d+)?|(?P<infinite>[+-]?inf(?:inity)?))"
    r"\s*(?P<unit>.*?)\s*\Z"
)
_LONGEST = 400  # characters of a quantity, its unit included
_LONGEST_EXPONENT = len("e+308")  # longer exponents exceed a float, and exact arithmetic with them would not end


def _units() -> dict[str, tuple[str, int, int]]:
    """Every accepted unit with its prefixes: dimension, and numerator and denominator of its size in base units."""
    table: dict[str, tuple[str, int, int]] = {}
    large, bytes_too = DECIMAL.items(), {**DECIMAL, **BINARY}.items()
    for spelling, (dimension, many, of) in _SPELLINGS.items():
        table[spelling] = (dimension, many, of)
        if spelling in _UNPREFIXED:
            continue
        if dimension == "s":
            table |= {prefix + spelling: (dimension, many, of * parts) for prefix, parts in SMALL.items()}
        else:
            prefixes = bytes_too if dimension in ("B", "B/s") else large
            table |= {prefix + spelling: (dimension, many * scale, of) for prefix, scale in prefixes}
    return table


UNITS = _units()


def parse(value: str | float, dimension: str) -> float:
    """A quantity in the base unit of ``dimension``; a bare number already is in it, and FLOP and bytes need only their prefix.

    Negative, NaN and wrongly dimensioned quantities are a `UnitError`.

    >>> parse("12 GiB", "B")
    12884901888.0
    >>> parse("400 Gbit/s", "B/s")
    50000000000.0
    >>> parse("2T", "FLOP"), parse("4 Gi", "B")
    (2000000000000.0, 4294967296.0)
    >>> parse("3 GHz", "B/s")
    Traceback (most recent call last):
    roofline.errors.UnitError: '3 GHz' is in Hz, not in B/s; write it like '3.35 TB/s'
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise UnitError(f"{value!r} is not a quantity; write it like '{EXAMPLES[dimension]}'")
    if isinstance(value, str) and len(value) > _LONGEST:
        raise UnitError(f"{excerpt(value)} is longer than any quantity; write it like '{EXAMPLES[dimension]}'")
    if isinstance(value, str) and not value.isdecimal() and (" " in value or not _PLAIN.fullmatch(value)):
        digits, divisor, unit = _split(value, dimension)
        found, many, of = _lookup(unit, value, dimension) if unit else (dimension, 1, 1)
        if found != dimension:
            raise UnitError(f"{value!r} is in {found}, not in {dimension}; write it like '{EXAMPLES[dimension]}'")
        # Exact until the end: 3.1 ms is 0.0031, not 0.0031000000000000003.
        try:
            number = digits * many / (divisor * of)
        except OverflowError:
            raise UnitError(f"{value!r} is larger than any quantity; write it like '{EXAMPLES[dimension]}'") from None
    else:
        try:
            number = float(value)
        except OverflowError:  # a whole number of more than 308 digits
            raise UnitError(f"a number above 1e308 is larger than any quantity; write it like '{EXAMPLES[dimension]}'") from None
        if isinstance(value, str) and math.isinf(number):
            raise UnitError(f"{value!r} is larger than any quantity; write it like '{EXAMPLES[dimension]}'")
    if math.isnan(number) or number < 0:
        raise UnitError(f"{value!r} is negative or not a number; a quantity is 0 or more, like '{EXAMPLES[dimension]}'")
    return number


def parse_count(text: str) -> float:
    """A count above 0, with or without a prefix.

    >>> parse_count("8192"), parse_count("8k"), parse_count("8Ki"), parse_count("1.5 M")
    (8192.0, 8000.0, 8192.0, 1500000.0)
    """
    number = text.strip()
    prefix = next((prefix for prefix in (*BINARY, *filter(None, DECIMAL)) if number.endswith(prefix)), "")
    try:
        found = parse(number.removesuffix(prefix).strip(), "1") * {**DECIMAL, **BINARY}[prefix]
    except UnitError:
        found = 0.0
    if not 0 < found < math.inf:
        raise UnitError(f"{text!r} is not a number above 0; write it like '8192', '8k' or '8Ki'")
    return found


def _split(text: str, dimension: str) -> tuple[float, int, str]:
    """The number as an exact numerator and denominator, and the unit after it."""
    number, _, unit = text.partition(" ")
    mantissa, exponent, power = number.partition("e")
    whole, _, rest = mantissa.partition(".")
    plain = whole.isdecimal() and (whole + rest + power).isdecimal() and bool(power) == bool(exponent)
    if plain and len(power) < _LONGEST_EXPONENT and unit in UNITS:
        return int(whole + rest) * 10 ** int(power or 0), 10 ** len(rest), unit  # "3.35 TB/s", as nearly all are written
    match = re.match(_NUMBER, text)
    if match is None or len(match["exponent"] or "") > _LONGEST_EXPONENT:
        raise UnitError(f"{text!r} is not a quantity; write it like '{EXAMPLES[dimension]}'")
    if match["infinite"]:
        return float(match["infinite"]), 1, match["unit"]
    whole, _, rest = match["digits"].replace(",", "").replace("_", "").partition(".")
    scale, digits = int((match["exponent"] or "e0")[1:]) - len(rest), int(whole + rest)
    return (digits * 10**scale, 1, match["unit"]) if scale >= 0 else (digits, 10**-scale, match["unit"])


def _lookup(unit: str, value: object, dimension: str) -> tuple[str, int, int]:
    if unit in UNITS:
        return UNITS[unit]
    if dimension in ("FLOP", "B") and (unit in DECIMAL or unit in BINARY) and unit + dimension in UNITS:
        return UNITS[unit + dimension]
    if re.fullmatch(r"[kKMGTP]i?b(/s|ps)?", unit):
        better = unit.replace("ps", "/s")
        raise UnitError(f"{value!r}: {unit!r} may mean bits or bytes; write {better.replace('b', 'bit')!r} or {better.replace('b', 'B')!r}")
    raise UnitError(f"{value!r}: unknown unit {unit!r}; write it like '{EXAMPLES[dimension]}'")


def show(value: float | None, dimension: str, digits: int = 4) -> str:
    """A quantity for people, with a decimal prefix and ``digits`` significant digits; unknown is an en dash.

    >>> show(0.0031, "s"), show(989.4e12, "FLOP/s"), show(None, "B"), show(41943040, "B")
    ('3.1 ms', '989.4 TFLOP/s', '–', '41.94 MB')
    >>> show(0.00017, "s", 2), show(23616.2, "s")
    ('170 µs', '23,620 s')
    """
    if value is None:
        return "–"
    if dimension == "1":
        return f"{value:.{digits}g}"
    if value == 0 or math.isinf(value):
        return f"{value:g} {dimension}"
    if dimension in ("FLOP/B", "hop"):
        return f"{plain(value, digits)} {dimension}"
    prefix, scale = _prefix(abs(value), dimension, digits)
    return f"{plain(float(f'{value / scale:.{digits}g}'), max(digits, 4))} {prefix}{dimension}"  # 170 µs at two digits, not 1.7e+02


def rounded(value: float | None, digits: int) -> float | None:
    """A number rounded to ``digits`` significant digits for `show`, so that an estimate does not look exact.

    >>> rounded(0.00027731, 2), show(rounded(0.00027731, 2), "s")
    (0.00028, '280 µs')
    """
    return None if value is None else float(f"{value:.{digits}g}")


def _prefix(magnitude: float, dimension: str, digits: int) -> tuple[str, float]:
    for prefix, scale in (_DOWN if dimension == "s" else _UP).items():
        # 999.96 GB at four digits reads "1000 GB": step up to the next prefix instead.
        if float(f"{magnitude / scale:.{digits}g}") >= 1:
            return prefix, scale
    return prefix, scale


def plain(value: float, digits: int = 4) -> str:
    """A bare number for people: grouped when large, never in exponent form below 10¹⁵.

    >>> plain(5461.333), plain(0.4999), plain(17179869184)
    ('5,461', '0.4999', '17,179,869,184')
    """
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}" if abs(value) < DECIMAL["P"] else f"{value:.{digits}g}"
    return f"{value:.{digits}g}"


def approximate(value: float, digits: int = 3) -> str:
    """A large number for people, with ``digits`` significant digits.

    >>> approximate(290573.2), approximate(1_046_063_520), approximate(12.34)
    ('291,000', '1.05 billion', '12.3')
    """
    for words, scale in (("trillion", DECIMAL["T"]), ("billion", DECIMAL["G"]), ("million", DECIMAL["M"])):
        if value >= scale:
            return f"{value / scale:.{digits}g} {words}"
    return plain(rounded(value, digits) or 0.0)


def percent(fraction: float | None) -> str:
    """A share for people: two significant digits below 10%, whole percents above.

    >>> percent(0.005), percent(0.922), percent(404.29), percent(None), percent(5.7e-7)
    ('0.5%', '92%', '40,429%', '–', '<0.0001%')
    """
    if fraction is None:
        return "–"
    share = 100 * fraction
    if 0 < share < LEAST_PERCENT:
        return f"<{LEAST_PERCENT:.4f}%"
    return f"{share:,.0f}%" if share >= 9.95 or share == 0 else f"{share:.2g}%"


def signed_percent(part: float) -> str:
    """A percentage with its sign.

    >>> signed_percent(-0.05)
    '−5%'
    """
    return f"{'−' if part < 0 else '+'}{percent(abs(part))}"


def number_of(number: int, noun: str) -> str:
    """A number of things.

    >>> number_of(1, "op"), number_of(12345, "op")
    ('1 op', '12,345 ops')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
