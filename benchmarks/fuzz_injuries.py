"""Ways to damage a file for `fuzz.py`, each with one source of chance: blind ones, and ones that know the format."""

import base64
import random
import re

NUMBERS = (
    *("0", "-1", "1e400", "-0.0", "NaN", "Infinity", "9" * 400, "9" * 5000, "18446744073709551616", "1e308", "0x10", "1_000"),
    *("\u0663", ""),
)
WORDS = (
    *("", "\x1b[2J", "\u202e", "\ud800", "=1+1", "/dev/zero", "../../etc/passwd", "a" * 5000, "\0", "null", "ENTRY", "{", "}"),
    *('"', "'", "\\"),
)
JSON_VALUES = (
    *("null", "true", "[]", "{}", '""', '"\\ud800"', '"=1+1"', "-1", "1e400", "NaN", "-Infinity", "9" * 400, "9" * 5000),
    "[" * 50 + "]" * 50,
    *('{"a": {"a": 1}}', "1.5", '"x"', "0", "1e308", "-0.0"),
)
# Patterns of parts of a program's text, and what they are exchanged for; where that is empty, for another part of the program like it.
PROGRAM_PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r", \w+=(?:\{[^{}]*\}|[^\s,{}]+)", ("",)),
    (r"(?<=[{,\[x:_=])\d+(?=[},\]x:_])", ("0", "1", "2", "3", "5", "7", "16")),
    (r"(?<=[(\s])%[\w.\-]+(?=[,)])", ()),
    (r"%[\w.\-]+, (?=%)", ("",)),
    (r"(?<= )[\w\-]+(?=\(%)", ()),
    (r"[a-z]+\d+\[[\d,]*\](?:\{[\d,]*)?", ()),
)


def blind(data: bytes, source: random.Random) -> bytes:
    """Bytes cut off, removed, changed, repeated or moved."""
    at, length = source.randrange(len(data) + 1), source.choice((1, 1, 2, 8, 64, 512))
    kind = source.randrange(6)
    piece = data[at : at + length]
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[at + length :]
    if kind == 2:
        return data[:at] + source.randbytes(min(length, 8)) + data[at + length :]
    if kind == 3:
        return data[:at] + piece * source.choice((2, 3, 300)) + data[at:]
    if kind == 4:
        to = source.randrange(len(data) + 1)
        return data[:to] + piece + data[to:]
    return data[:at] + source.choice((b"{", b"}", b"(", b"[", b"\n", b'"', b",", b"\0", b"\xff")) * source.choice((1, 3, 2000)) + data[at:]


def text_tokens(data: bytes, source: random.Random) -> bytes:
    """A number or a word exchanged for an odd one or for another of the text; a line lost or repeated."""
    text = data.decode("utf-8", "surrogateescape")
    kind = source.randrange(4)
    if kind == 3:
        lines = text.split("\n")
        one, other = source.randrange(len(lines)), source.randrange(len(lines))
        lines[one] = source.choice((lines[other], "", lines[one] + "\n" + lines[one]))
        return "\n".join(lines).encode("utf-8", "surrogatepass")
    found = list(re.finditer(r"-?\d+(?:\.\d+)?" if kind == 0 else r"[\w.\-]+", text))
    if not found:
        return blind(data, source)
    match = source.choice(found)
    new = source.choice(NUMBERS if kind == 0 else WORDS) if kind < 2 else source.choice(found)[0]
    return (text[: match.start()] + new + text[match.end() :]).encode("utf-8", "surrogatepass")


def program_parts(data: bytes, source: random.Random) -> bytes:
    """A program that parses and does not fit together: an attribute or operand less, another opcode, small number, operand or shape."""
    text = data.decode("utf-8", "surrogateescape")
    pattern, replacements = source.choice(PROGRAM_PARTS)
    found = list(re.finditer(pattern, text))
    if not found:
        return blind(data, source)
    match = source.choice(found)
    new = source.choice(replacements or found)
    return (text[: match.start()] + (new if isinstance(new, str) else new[0]) + text[match.end() :]).encode("utf-8", "surrogateescape")


def json_values(data: bytes, source: random.Random) -> bytes:
    """A value of JSON, or a key, exchanged for an odd one."""
    text = data.decode("utf-8", "replace")
    found = list(re.finditer(r'(?<=[:\[,])\s*(?:"[^"\\]*"|-?\d[\d.eE+\-]*|true|false|null|\[\]|\{\})', text))
    if not found:
        return blind(data, source)
    match = source.choice(found)
    return (text[: match.start()] + source.choice(JSON_VALUES) + text[match.end() :]).encode()


def proto_fields(data: bytes, source: random.Random) -> bytes:
    """A field of a protobuf, at any depth, removed, repeated, or with another number or other bytes."""
    places = fields_of(data)
    for _ in range(source.randrange(8)):  # into a message inside
        inner = [one for one in places if one[1] == 2 and one[3] - one[2] > 1 and one[0] < 16]  # whose tag is one byte
        if not inner:
            break
        _, _, begin, end, start = source.choice(inner)
        changed = proto_fields(data[begin:end], source)
        return data[:start] + varint(data[start] & 0xF8 | 2) + varint(len(changed)) + changed + data[end:]
    if not places:
        return blind(data, source)
    _number, wire, begin, end, start = source.choice(places)
    kind = source.randrange(4)
    if kind == 0:
        return data[:start] + data[end:]
    if kind == 1:
        return data[:end] + data[start:end] * source.choice((1, 5, 200)) + data[end:]
    if kind == 2 and wire == 0:
        return data[:begin] + varint(source.choice((0, 1, 127, 2**31, 2**32, 2**63, 2**64 - 1, source.randrange(2**64)))) + data[end:]
    return data[:begin] + source.randbytes(end - begin) + data[end:]


def kernel_code(data: bytes, source: random.Random) -> bytes:
    """Damage inside the code of a Pallas kernel, which stays as long as it was, so that what surrounds it can be read."""
    places = [match.span(1) for match in re.finditer(rb'"body":"([A-Za-z0-9+/]+=*)"', data)]
    if not places:
        return blind(data, source)
    begin, end = source.choice(places)
    code = base64.b64decode(data[begin : begin + (end - begin) // 4 * 4])
    damaged = blind(code, source)[: len(code)].ljust(len(code), b"\0")
    return data[:begin] + base64.b64encode(damaged) + data[end:]


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def fields_of(data: bytes) -> list[tuple[int, int, int, int, int]]:
    """Number, wire type, begin and end of the value, and start of each field, as far as they go."""
    found, at = [], 0

    def number(at: int) -> tuple[int, int]:
        value = shift = 0
        while at < len(data) and shift < 70:
            value |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value, at
        return -1, at

    while at < len(data):
        start = at
        tag, at = number(at)
        wire = tag & 7
        if tag < 8 or wire not in (0, 1, 2, 5):
            break
        begin = at
        if wire == 0:
            value, at = number(at)
            if value < 0:
                break
        elif wire == 2:
            length, begin = number(at)
            at = begin + length
            if length < 0 or at > len(data):
                break
        else:
            at += 8 if wire == 1 else 4
            if at > len(data):
                break
        found.append((tag >> 3, wire, begin, at, start))
    return found
