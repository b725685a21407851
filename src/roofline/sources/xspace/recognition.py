"""Recognises XSpace profiles by their first bytes."""

from pathlib import Path

# Tags of XPlane's fields: number * 8 + wire type.
PLANE_ID, PLANE_NAME, PLANE_LINES, PLANE_EVENT_METADATA, PLANE_STAT_METADATA, PLANE_STATS = 0x08, 0x12, 0x1A, 0x22, 0x2A, 0x32
PLANE_TAGS = (PLANE_ID, PLANE_NAME, PLANE_LINES, PLANE_EVENT_METADATA, PLANE_STAT_METADATA, PLANE_STATS)


def sniff(head: bytes, path: Path | str = "") -> bool:
    """Whether these are the first (unpacked) bytes of an XSpace: field 1, a plane, whose first fields are an optional id and a name."""
    if not head.startswith(b"\n"):
        return False
    try:
        length, at = _varint(head, 1)
        end = min(at + length, len(head))
        if head[at] == PLANE_ID:
            _, at = _varint(head, at + 1)
        if head[at] != PLANE_NAME:
            return False
        length, at = _varint(head, at + 1)
    except IndexError:
        return False
    name = head[at : at + length].decode("utf-8", "replace")
    at += length
    return bool(name) and name.isprintable() and at <= end and (at == end or head[at] in PLANE_TAGS)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
