r"""The protobuf wire format without a schema: the fields that a plan lists, or all of them; native code does the work.

A message is a run of tagged fields; the tag's low three bits say how the value is stored: 0 a varint, 1 eight bytes, 2 a length and that
many bytes, 5 four bytes. The messages read here have no groups (3 and 4).

A **plan** is like a format of `struct`, for messages: a list of field numbers and types, from which ``unpack`` makes a tuple.

    i    a signed number    t      text; bytes that are not UTF-8 show as \xEF     b    bytes
    f    a float            (…)    a message, by a plan of its own                 m    where a message begins and ends in the data
    d    a double           *      suffix: every occurrence, else the last         ?    last suffix: None if it is absent

Without ``?`` an absent field has proto3's default: 0, empty, a message of absent fields. Field 0 is the message itself.

>>> unpack("1t 2(1i 2i* 0b)* 3i 4i? 5i*", b"\n\x02hi" b"\x12\x06\x08\x05\x12\x02\x06\x07" b"\x12\x00")
('hi', ((5, (6, 7), b'\x08\x05\x12\x02\x06\x07'), (0, (), b'')), 0, None, ())

A field whose stored type differs from the plan, or any field that is cut off, is `Malformed`, with the byte.
"""

from ...errors import SourceError

try:
    from ._wire import fields, set_most, unpack
except ImportError as error:
    raise SourceError(f"the native program reader is not built ({error}); run: pip install -e .   (needs a C compiler)") from None

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Field = tuple[int, int, int, int]  # of ``fields``: number, kind, then the value and 0, or where the bytes start and end

__all__ = ["BYTES", "FIXED32", "FIXED64", "VARINT", "Field", "fields", "set_most", "unpack"]
