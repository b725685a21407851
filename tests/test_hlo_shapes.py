"""Shapes: what their spellings mean, how many bytes they take, and that absurd ones are refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.dtypes import dtype
from roofline.errors import FormulaError, SourceError
from roofline.hlo.ir.shapes import PRIMITIVE_TYPES, UNBOUNDED, Layout, Shape, parse_shape
from roofline.hlo.read.mlir.types import DYNAMIC, Type, element_type, parse_type


def shape(text: str) -> Shape:
    return parse_shape(text, {})


def test_an_array_has_elements_and_bytes() -> None:
    # 8 x 128 bf16 elements of 2 bytes.
    array = shape("bf16[8,128]{1,0}")
    assert (array.elements, array.bytes, array.rank, array.number) == (1024, 2048, 2, dtype("bf16"))


def test_a_scalar_is_one_element_and_an_empty_array_none() -> None:
    assert (shape("f32[]").elements, shape("f32[]").bytes) == (1, 4)
    assert (shape("f32[0,4]{1,0}").elements, shape("f32[0,4]{1,0}").bytes) == (0, 0)


def test_a_layout_says_order_tiles_memory_space_and_bits() -> None:
    layout = shape("s4[512,256]{0,1:T(8,128)(2,1)E(4)S(1)}").layout
    assert layout == Layout(minor_to_major=(0, 1), tiles=((8, 128), (2, 1)), memory_space=1, element_bits=4)


def test_bytes_follow_the_layouts_bits() -> None:
    # 10 elements of 4 bits are 5 bytes; with E(8) each takes a whole byte.
    assert shape("s4[10]{0:E(4)}").bytes == 5
    assert shape("s4[10]{0:E(8)}").bytes == 10


def test_tuples_nest_and_comments_are_passed_over() -> None:
    nested = shape("((f32[2]{0}, s32[]), /*index=1*/pred[3]{0}, token[], ())")
    assert [str(part) for part in nested.leaves] == ["f32[2]{0}", "s32[]", "pred[3]{0}", "token[]"]
    assert nested.bytes == 8 + 4 + 3


def test_dynamic_dimensions_count_their_bound_and_unbounded_ones_cannot_be_counted() -> None:
    bounded = shape("f32[<=10,4]{1,0}")
    assert (bounded.elements, bounded.dynamic, bounded.is_dynamic) == (40, (True, False), True)
    unbounded = shape("f32[?,4]")
    assert (unbounded.dims[0], unbounded.is_bounded) == (UNBOUNDED, False)
    with pytest.raises(FormulaError, match="without bound"):
        assert unbounded.elements


@every(
    "text",
    [
        "bf16[8,<=128]{1,0:T(8,128)(2,1)S(1)}",
        "(f32[2]{0}, (s32[], token[]))",
        "f32[]{:T(128)}",
        "opaque[]",
        "b(f32[4]{0})",
        "u8[4]{0:T(*,128)L(512)M(4)}",
    ],
)
def test_a_shape_prints_as_it_was_written(text: str) -> None:
    assert str(shape(text)) == text


def test_equal_spellings_are_one_object() -> None:
    known: dict[str, Shape] = {}
    assert parse_shape("f32[2]{0}", known) is parse_shape("(f32[2]{0}, f32[])", known).parts[0]


def test_every_primitive_type_has_a_number_format() -> None:
    for name in PRIMITIVE_TYPES.values():
        if name not in ("tuple", "token", "opaque", "buffer"):
            assert Shape(name).number.bits > 0


@every(
    ("text", "complaint"),
    [
        ("f32[1000000000000000,1000000000000000]", "more elements"),
        ("f32[-3]", "0 or more"),
        ("f32[" + "1," * 10**5 + "1]", "dimensions"),
        ("f32[" + "9" * 10**5 + "]", "whole number"),
        ("(" * 10**5, "nested deeper"),
        ("(f32[2]", "not a shape"),
        ("f32[2]{1}", "does not order"),
        ("f32[8,4]{1,0:T(8,0)}", "tile without elements"),
        ("f32[8]{0:T(-2)}", "tile without elements"),
        ("f32[8]{0:E(-4)}", "no size"),
        ("f32[2] junk", "after a shape"),
        ("q32[2]", "element type"),
        (")", "unmatched"),
        ("", "not a shape"),
    ],
)
def test_absurd_shapes_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(SourceError, match=complaint):
        shape(text)


def test_mlir_types_are_the_same_shapes() -> None:
    def shape_of(text: str) -> Shape:
        return parse_type(text).shape

    assert shape_of("tensor<8x?x16xbf16>") == Shape("bf16", (8, UNBOUNDED, 16), None, (False, True, False))
    assert shape_of("tensor<?x4xf32, #stablehlo.bounds<10, ?>>") == Shape("f32", (10, 4), None, (True, False))
    assert shape_of("tuple<tensor<i1>, !stablehlo.token>").parts == (Shape("pred"), Shape("token"))
    assert shape_of("tensor<2xcomplex<f64>>") == Shape("c128", (2,))
    assert shape_of("tensor<4x!quant.uniform<i8:f32, 0.5>>") == Shape("s8", (4,))


def test_arrays_that_are_not_tensors_are_read_too() -> None:
    assert parse_type("memref<4x?xf32, 3>") == Type("memref", (4, DYNAMIC), (Type("f32"),), " 3")
    pointers = parse_type("tensor<16x!tt.ptr<f32>>")
    assert (pointers.dims, pointers.element, pointers.shape) == ((16,), "!tt.ptr<f32>", Shape("opaque"))


@every("text", ["tensor<4xq7>", "tuple<" * 10**5 + ">" * 10**5, "tensor<99999999999999999999999xf32>", "tensor<"])
def test_absurd_types_are_refused(text: str) -> None:
    with pytest.raises(SourceError):
        parse_type(text).shape  # noqa: B018


def test_element_types_that_mlir_spells_differently() -> None:
    assert [element_type(name) for name in ("i1", "ui4", "si8", "f8E4M3B11FNUZ", "index")] == ["pred", "u4", "s8", "f8e4m3b11fnuz", "s64"]


ARRAYS = st.builds(
    lambda name, dims: Shape(name, tuple(dims), Layout(minor_to_major=tuple(reversed(range(len(dims))))) if dims else None),
    st.sampled_from([name for name in PRIMITIVE_TYPES.values() if name not in ("tuple", "token", "opaque", "buffer")]),
    st.lists(st.integers(0, 1000), max_size=5),
)


@given(
    st.recursive(
        ARRAYS, lambda inner: st.builds(lambda parts: Shape("tuple", parts=tuple(parts)), st.lists(inner, max_size=4)), max_leaves=12
    )
)
def test_any_shape_survives_being_written_and_read(original: Shape) -> None:
    assert shape(str(original)) == original
    # Packed bytes of a tuple are its arrays', each rounded up to whole bytes.
    assert original.bytes == sum(math.ceil(leaf.elements * leaf.number.bits / 8) for leaf in original.leaves)
