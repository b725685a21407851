"""Files of ``jax.export``: a flatbuffer of the function's signature and shardings, with the program as a portable artifact inside.

A flatbuffer begins with the offset of its root table, whose first word is the offset of its vtable, the list of field offsets. New fields
are only appended (jax/_src/export/serialization.fbs), so the number of the program's field is the same in every version.
"""

import struct

from .mlir import MAGIC

_VERSION, _FUNCTION_NAME, _MODULE = 0, 1, 13  # numbers of fields of ``Exported``
MAX_VERSION = 1000


def module_range(data: bytes, whole: bool = True) -> tuple[int, int] | None:
    """Where the program begins and ends; ``None`` for data that is not of ``jax.export``.

    With ``whole`` false, data is the head of a file, and the program may begin after it.
    """
    try:
        table = _word(data, 0)
        fields = table - struct.unpack_from("<i", data, table)[0]
        if fields < 0:
            return None
        fields_size, table_size = struct.unpack_from("<HH", data, fields)
        if fields_size % 2 or fields_size < 4 + 2 * (_MODULE + 1) or table_size < 8:
            return None
        places = struct.unpack_from(f"<{fields_size // 2 - 2}H", data, fields + 4)
        if any(place >= table_size for place in places) or not places[_MODULE] or not places[_FUNCTION_NAME]:
            return None
        version = struct.unpack_from("<H", data, table + places[_VERSION])[0] if places[_VERSION] else 0
        if version > MAX_VERSION:
            return None
        at = table + places[_MODULE]
        vector = at + _word(data, at)
        if not whole and vector + 4 + len(MAGIC) > len(data):
            return vector + 4, vector + 4
        start, size = vector + 4, _word(data, vector)
    except struct.error:
        return None
    if not data.startswith(MAGIC, start) or (whole and start + size > len(data)):
        return None
    return start, start + size


def _word(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])
