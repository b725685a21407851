"""A report that can be shared: names, paths, hosts and scopes are replaced by pseudonyms.

A pseudonym depends on the name and a key alone, so one name has one pseudonym in every report that is anonymized with that key, and reports
can still be compared. Words that XLA itself uses (opcodes, ``fusion.12``, ``while/body``) and common ones (``train``,
``step``) stay, as do numbers after a name (``layer_3``).
"""

import hmac
import re
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import PurePosixPath

import msgspec

from ..dtypes import DTYPES
from ..errors import MachineError
from ..hlo.ir.opcodes import OPCODES
from ..machines.catalogue import catalogue_card
from ..report import Report

SHAPES = "shapes and number formats in notes"
REMAINS = f"chip and device names, opcodes, common words (train, step, forward), {SHAPES}, counts, times, costs, line numbers"
NOTE = f"anonymized: names, paths, hosts and scopes are pseudonyms; what remains: {REMAINS}"
_OWN_WORDS = frozenset(
    word
    for opcode in (
        *(*OPCODES, "fusion", "wrapped", "loop", "input", "kernel", "start", "done", "update", "body", "cond", "condition"),
        *("jit", "pjit", "jvp", "vmap", "transpose", "checkpoint", "rematted_computation", "computation", "branch", "scan", "remat"),
        *("dot_general", "conv_general_dilated", "mul", "sub", "div", "max", "min", "neg", "exp", "log", "sqrt", "rsqrt", "integer_pow"),
        *("reduce_sum", "reduce_max", "broadcast_in_dim", "convert_element_type", "dynamic_slice", "dynamic_update_slice", "custom"),
        *(
            "call",
            "main",
            "entry",
            "train",
            "step",
            "eval",
            "forward",
            "backward",
            "memcpy",
            "memset",
            "memcpyh2d",
            "memcpyd2h",
            "memcpyd2d",
        ),
        *("h2d", "d2h", "d2d", "parameter", "argument", "arg", "param", "output", "temp"),
    )
    for word in re.split(r"[^a-z0-9]+", opcode.lower())
)
# Words of the sentences about host activity, which also name functions.
_WORDS_OF_ACTIVITIES = frozenset(
    (
        *("a", "already", "and", "argument", "between", "boolean", "by", "called", "calls", "capture", "code", "compiled"),
        *("copies", "device", "for", "from", "host", "indexes", "it", "kernels", "launched", "launches", "length", "mask"),
        *("not", "of", "on", "one", "or", "program", "programs", "python", "reads", "recorded", "roofline", "shapes", "that"),
        *("the", "to", "value", "waits", "was", "were", "which", "whose", "with", "with_stack", "true", "work", "lambda", "item"),
        *("float", "int", "bool", "tolist", "numpy", "cpu", "device_get", "block_until_ready", "synchronize"),
    )
)
_FUNCTION = re.compile(r"[^\W\d][\w.]*")
_NUMBERED = re.compile(r"(?P<base>.*?)(?P<number>[._-]?\d+(?:[._]\d+)*)?", re.DOTALL)
_PIECE = re.compile(r"[^\s/()\[\]<>{}'\"`,;:=]+")
_PLACE = re.compile(r"(?P<file>.*?)(?P<line>(?::\d+)*)", re.DOTALL)
_PATH_IN_TEXT = re.compile(r"(?:[\w.+~-]*/)+[\w.+~-]+|[\w+~-]+\.(?:py|pyx|cc|cpp|cu|c|h|pb|gz|json|jsonl|csv|txt|hlo|mlir|parquet|toml)\b")
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")  # digits would look like the number of a layer
_SHORTEST = 3  # shorter pieces of a name are not searched for in messages


def anonymized(report: Report, key: str = "") -> Report:
    """The report with pseudonyms for names; a note in it says so, and what remains."""
    names = _Names(key)
    data = msgspec.to_builtins(report)
    _walk(data, names)
    data["input"]["notes"] = [*data["input"]["notes"], NOTE]
    return msgspec.convert(data, Report)


class _Names:
    """The pseudonyms of one report."""

    def __init__(self, key: str) -> None:
        self._key = key.encode("utf-8", "surrogatepass")
        self.pieces: dict[str, str] = {}  # pieces of names that messages may repeat
        self._known: re.Pattern[str] | None = None  # matches all pieces; compiled when the first message is read

    def pseudonym(self, word: str, kind: str) -> str:
        digest = hmac.new(self._key, word.encode("utf-8", "surrogatepass"), sha256).hexdigest()[:8]
        found = f"{kind}-{digest.translate(_LETTERS)}"
        if len(word) >= _SHORTEST:
            self.pieces[word] = found
        return found

    def name(self, text: str, kind: str = "op") -> str:
        """The name with a pseudonym for each piece that is not a word of XLA; numbers after it stay."""
        return _PIECE.sub(lambda piece: self._piece(piece[0], kind), text)

    def _piece(self, word: str, kind: str) -> str:
        if all(part in _OWN_WORDS or part.isdigit() or not part for part in re.split(r"[^a-z0-9]+", word.lower())):
            return word
        match = _NUMBERED.fullmatch(word)
        base, number = (match["base"], match["number"] or "") if match else (word, "")
        if not base or len(number) > 8:
            base, number = word, ""
        found = self.pseudonym(base, kind) + number
        if len(word) >= _SHORTEST:
            self.pieces[word] = found
        return found

    def path(self, text: str, kind: str = "file") -> str:
        """A pseudonym for a path; its last extension and the line number after it stay."""
        match = _PLACE.fullmatch(text)
        file, line = (match["file"], match["line"]) if match else (text, "")
        if not file:
            return text
        suffix = PurePosixPath(file).suffix
        found = self.pseudonym(file, kind) + (suffix if suffix[1:].isalnum() and len(suffix) < 9 else "")
        for known in (file, PurePosixPath(file).name, PurePosixPath(file).stem):
            if len(known) >= _SHORTEST:
                self.pieces.setdefault(known, found)
        return found + line

    def activity(self, text: str) -> str:
        """What the host did: pseudonyms for functions but those of Python's own library."""
        found = _FUNCTION.sub(lambda word: word[0] if _is_public(word[0]) else self.pseudonym(word[0], "function"), text)
        if found != text:
            self.pieces[text] = found  # messages repeat the whole activity, including names too short to search for
        return found

    def text(self, words: str) -> str:
        """A message in which paths, and names that occur elsewhere in the report, are replaced."""
        if self._known is None:
            longest_first = sorted(self.pieces, key=len, reverse=True)
            self._known = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, longest_first)) or '(?!)'})(?![A-Za-z0-9])")
        words = self._known.sub(lambda match: self.pieces[match[0]], words)
        return _PATH_IN_TEXT.sub(lambda match: match[0] if _is_no_path(match[0]) else self.pseudonym(match[0], "path"), words)


def _is_public(word: str) -> bool:
    """Whether a word of an activity is the report's own, a number format, or a function of Python's library."""
    module, dot, _ = word.partition(".")
    return word.lower() in _WORDS_OF_ACTIVITIES or word in DTYPES or bool(dot and module in sys.stdlib_module_names)


def _is_no_path(word: str) -> bool:
    """Whether a word with a slash is no path: a pseudonym, the FILE of an example, a unit (B/s) or a resource (matrix/bf16)."""
    parts = re.split(r"[/.]", word)
    return (
        parts[0] == "FILE"
        or any(re.search(r"-[a-p]{8}", part) for part in parts)
        or re.fullmatch(r"\w{1,12}/(?:s|B|hop|\w{2,5}\d{0,2})", word) is not None
    )


Rule = Callable[["_Names", str], str]
# Rules by the last keys of the path to a value; list indices are not part of the path.
_RULES: dict[tuple[str, ...], Rule] = {
    ("input", "files"): lambda names, text: names.path(text, "input"),
    ("input", "hosts"): lambda names, text: names.pseudonym(text, "host"),
    ("devices", "host"): lambda names, text: names.pseudonym(text, "host") if text else text,
    ("ops", "name"): _Names.name,
    ("ops", "module"): lambda names, text: names.name(text, "program"),
    ("ops", "scope"): lambda names, text: names.name(text, "scope"),
    ("ops", "location"): _Names.path,
    ("collectives", "array"): _Names.name,
    ("collectives", "location"): _Names.path,
    ("collectives", "axes"): lambda names, text: names.name(text, "axis"),
    ("variants", "mesh"): lambda names, text: names.name(text, "axis"),
    ("variants", "reason"): lambda names, text: "",
    ("steps", "name"): lambda names, text: names.name(text, "step"),
    ("steps", "title"): lambda names, text: "",  # made again from the name
    ("idle", "location"): _Names.path,
    ("idle", "activity"): _Names.activity,
    ("tensor",): _Names.name,
}
_TEXTS = ("label", "does", "message", "notes", "note", "summary", "title", "where", "activity", "levers", "why")
_NAMES_IN = ("memory", "timeline")  # keys under which names and scopes are those of arrays


def _walk(data: dict[str, object], names: _Names) -> None:
    """Replace the names first, then their occurrences in messages."""
    _machine(data, names)
    _each(data, (), lambda place, text: _named(place, text, names))
    _each(data, (), lambda place, text: names.text(text) if place[-1] in _TEXTS else text)


def _named(place: tuple[str, ...], text: str, names: _Names) -> str:
    if place[-2:-1] == ("facts",):
        return text if text in DTYPES else names.name(text)
    for end, rule in _RULES.items():
        if place[-len(end) :] == end:
            return rule(names, text)
    if place[0] in _NAMES_IN and place[-1] in ("name", "scope", "location", "program"):
        return names.path(text) if place[-1] == "location" else names.name(text)
    return text


def _machine(data: dict[str, object], names: _Names) -> None:
    """Replace the name of a machine that is not in the catalogue, since the user chose it."""
    machine = data["machine"]
    assert isinstance(machine, dict)
    try:
        catalogue_card(str(machine["name"]))
    except MachineError:
        machine["name"] = names.pseudonym(str(machine["name"]), "machine")
        machine["title"] = names.pseudonym(str(machine["title"]), "machine") if machine["title"] else ""


def _each(value: object, place: tuple[str, ...], change: Callable[[tuple[str, ...], str], str]) -> object:
    """Change every string in a tree of JSON values in place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            value[key] = _each(inner, (*place, key), change)
    elif isinstance(value, list | tuple):
        return [_each(inner, place, change) for inner in value]
    elif isinstance(value, str) and place:
        return change(place, value)
    return value
