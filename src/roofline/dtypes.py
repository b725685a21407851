"""Number formats: how many bits one element takes, and what every framework calls it.

>>> dtype("bfloat16") is dtype("bf16")
True
>>> dtype("int4").bytes(8192 * 8192)
33554432
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeVar

from msgspec import Struct

from .errors import FormulaError, did_you_mean

Elements = TypeVar("Elements", int, float, Fraction, int | float | Fraction)


class DType(Struct, frozen=True):
    """A number format: ``bits`` as stored in memory, and the ``rate`` format whose hardware roof it runs under.

    All 8-bit floats share the fp8 roof; tf32 is stored in 32 bits and has a roof of its own. A format such as bf16x3 computes an fp32
    product in several passes (3) of a narrower format, at 1/3 of that format's rate.
    """

    name: str
    bits: int
    rate: str

    def bytes(self, elements: Elements) -> Elements:
        """Bytes of this many packed elements, rounded up to whole bytes when the count is whole."""
        if isinstance(elements, int):
            return -(-elements * self.bits // 8)
        return elements * self.bits / 8

    @property
    def is_complex(self) -> bool:
        """Whether an element is a pair of real numbers."""
        return self.name.startswith("complex")

    def __str__(self) -> str:
        return self.name


# name, bits, roof, other spellings (numpy and jax, torch, XLA's HLO)
_TABLE: tuple[tuple[str, int, str, str], ...] = (
    ("bf16", 16, "bf16", "bfloat16"),
    ("fp16", 16, "fp16", "f16 float16 half"),
    ("fp32", 32, "fp32", "f32 float32 float"),
    ("tf32", 32, "tf32", "tensorfloat32"),
    ("tf32x3", 32, "tf32x3", ""),
    ("bf16x3", 32, "bf16x3", ""),
    ("bf16x6", 32, "bf16x6", ""),
    ("bf16x9", 32, "bf16x9", ""),
    ("fp64", 64, "fp64", "f64 float64 double"),
    ("fp8", 8, "fp8", "f8 float8"),
    ("fp8_e4m3", 8, "fp8", "f8e4m3fn float8_e4m3fn f8e4m3 float8_e4m3 e4m3"),
    ("fp8_e4m3b11", 8, "fp8", "f8e4m3b11fnuz float8_e4m3b11fnuz"),
    ("fp8_e4m3fnuz", 8, "fp8", "f8e4m3fnuz float8_e4m3fnuz"),
    ("fp8_e5m2", 8, "fp8", "f8e5m2 float8_e5m2 e5m2"),
    ("fp8_e5m2fnuz", 8, "fp8", "f8e5m2fnuz float8_e5m2fnuz"),
    ("fp8_e3m4", 8, "fp8", "f8e3m4 float8_e3m4"),
    ("fp8_e8m0", 8, "fp8", "f8e8m0fnu float8_e8m0fnu e8m0"),
    ("bfp8", 8, "bfp8", ""),
    ("fp6", 6, "fp6", "f6 f6e2m3fn float6_e2m3fn f6e3m2fn float6_e3m2fn"),
    ("fp4", 4, "fp4", "f4 f4e2m1fn float4_e2m1fn nvfp4 mxfp4"),
    ("int64", 64, "int64", "s64 i64"),
    ("uint64", 64, "int64", "u64"),
    ("int32", 32, "int32", "s32 i32 int"),
    ("uint32", 32, "int32", "u32"),
    ("int16", 16, "int16", "s16 i16"),
    ("uint16", 16, "int16", "u16"),
    ("int8", 8, "int8", "s8 i8"),
    ("uint8", 8, "int8", "u8"),
    ("int4", 4, "int4", "s4 i4"),
    ("uint4", 4, "int4", "u4"),
    ("int2", 2, "int4", "s2 i2"),
    ("uint2", 2, "int4", "u2"),
    ("int1", 1, "int4", "s1 i1"),
    ("uint1", 1, "int4", "u1"),
    ("bool", 8, "int8", "pred mask"),
    ("complex64", 64, "fp32", "c64"),
    ("complex128", 128, "fp64", "c128"),
)
DTYPES: dict[str, DType] = {name: DType(name, bits, rate) for name, bits, rate, _ in _TABLE}
_SPELLED = {spelling: DTYPES[name] for name, _, _, others in _TABLE for spelling in (name, *others.split())}


def dtype(name: str | DType) -> DType:
    """The format with this name in any framework's spelling."""
    if isinstance(name, DType):
        return name
    found = _SPELLED.get(name.lower().removeprefix("torch.").removeprefix("jnp."))
    if found is None:
        raise FormulaError(f"no number format named {name!r}{did_you_mean(name, _SPELLED) or '; known: ' + ', '.join(DTYPES)}")
    return found


def is_dtype(name: str) -> bool:
    """Whether a number format has this name in some framework's spelling."""
    return name.lower() in _SPELLED


def passes_of(rate: str) -> tuple[str, int]:
    """The format that runs a product, and in how many passes.

    >>> passes_of("bf16x3"), passes_of("bf16")
    (('bf16', 3), ('bf16', 1))
    """
    base, _, passes = rate.partition("x")
    return (base, int(passes)) if passes.isdecimal() else (rate, 1)


def passes_note(rate: str) -> str:
    """The note on a product that runs in several passes; empty for a single pass."""
    base, passes = passes_of(rate)
    return f"runs as {passes} passes of {base}, at 1/{passes} of its rate; FLOP counted once" if passes > 1 else ""


def one_pass_note(number: DType, kind: str) -> str:
    """The note on an fp32 product that a TPU runs in one bf16 pass; empty for others."""
    if number.rate != "fp32" or kind != "bf16":
        return ""
    return "fp32 at default precision runs as 1 pass of bf16; 3 passes at high (bf16x3), 6 at highest (bf16x6)"


def wider(*formats: DType) -> DType:
    """The format a product of these is computed in: the one with the most bits, a float before an integer, then the first.

    >>> wider(dtype("bf16"), dtype("int8")).name, wider(dtype("int8"), dtype("fp8")).name
    ('bf16', 'fp8')
    """
    return max(formats, key=lambda one: (one.bits, "int" not in one.rate))
