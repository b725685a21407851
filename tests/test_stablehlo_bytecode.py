"""MLIR bytecode becomes the same program as its text: plain bytecode, portable artifacts of several versions, files of jax.export."""

import gzip
import math
import re
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from hlo_programs import load
from roofline.errors import RooflineError, SourceError
from roofline.hlo.ir.module import HloModule
from roofline.hlo.read import parse_all, recognise
from roofline.hlo.read.jax_export import module_range
from roofline.hlo.read.mlir.bytecode import Cursor, read_bytecode
from roofline.hlo.read.mlir.bytecode_entries import Entries
from roofline.hlo.read.mlir.elements import Elements, parse_elements
from roofline.hlo.read.mlir.types import Type, parse_type
from roofline.hlo.read.mlir.writing import Bare, quoted, written
from roofline.hlo.read.stablehlo.conversion import attributes_of
from roofline.hlo.read.stablehlo.vhlo import to_stablehlo, versioned
from roofline.machines import load as load_machine
from roofline.sources import programs

DATA = Path(__file__).parent / "data" / "bytecode"
FILES = sorted(path.name.removesuffix(".mlirbc.gz") for path in DATA.glob("*.mlirbc.gz"))


def data(name: str) -> bytes:
    return gzip.decompress((DATA / f"{name}.mlirbc.gz").read_bytes())


def text_of(name: str) -> bytes:
    return load(re.sub(r"\.\d+\.\d+\.\d+$", "", name) + ".stablehlo")


def plain(value: object) -> object:
    """A value that compares: floats to the digits that text prints, configurations without the types of their numbers."""
    if isinstance(value, complex) and not isinstance(value, (int, float)):
        return "complex"
    if isinstance(value, float):
        return "nan" if math.isnan(value) else f"{value:.5g}"
    if isinstance(value, str):
        return re.sub(r"\d+\.\d+(?:e[+-]\d+)?", lambda match: f"{float(match[0]):.5g}", re.sub(r" : \w+", "", value))
    if isinstance(value, (tuple, list)):
        return tuple(plain(item) for item in value)
    return value


def described(module: HloModule) -> list[object]:
    """All that a program says, but names: text abbreviates reducers, and so has none for what is in them."""
    found: list[object] = [module.name, module.num_partitions, module.replica_count, module.aliases]
    for place, computation in enumerate(module.computations):
        for i in computation:
            assert isinstance(i.raw, dict)
            given = {name: plain(value) for name, value in i.raw.items() if name != "metadata"}
            found.append((place, i.opcode, i.shape, i.operands, i.calls, given))
    return found


@every("name", FILES)
def test_bytecode_gives_the_program_of_its_text(name: str) -> None:
    (text,), (bytecode,) = parse_all(text_of(name), name), parse_all(data(name), name)
    assert described(bytecode) == described(text)


@pytest.mark.parametrize("name", ["scan_layers", "scan_layers.0.9.0", "conv_grouped.1.10.0", "pjit_mlp", "shard_map_collectives"])
def test_bytecode_costs_what_its_text_costs(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.mlir").write_bytes(text_of(name))
    (tmp_path / "a.mlirbc.gz").write_bytes((DATA / f"{name}.mlirbc.gz").read_bytes())
    text, bytecode = (programs.read(tmp_path / file, load_machine("h200")).workload for file in ("a.mlir", "a.mlirbc.gz"))
    assert text.ops
    assert [(op.name, op.count, op.cost) for op in bytecode.ops] == [(op.name, op.count, op.cost) for op in text.ops]


@every("name", [name for name in FILES if name.startswith("locations")])
def test_scopes_and_source_lines_are_those_of_the_text(name: str) -> None:
    (text,), (bytecode,) = parse_all(text_of(name), name), parse_all(data(name), name)
    named = [(i.opcode, i.op_name) for computation in text.computations for i in computation if i.op_name]
    assert len(named) > 5
    # Text has no locations for the reducers it abbreviates; bytecode has them all.
    assert set(named) <= {(i.opcode, i.op_name) for computation in bytecode.computations for i in computation}
    assert text.frames == bytecode.frames
    assert text.frames.frames


def test_a_file_of_jax_export_is_read_by_the_program_it_holds() -> None:
    raw = (DATA / "exported.jax").read_bytes()
    (exported,), (text,) = parse_all(raw, "exported.jax"), parse_all((DATA / "exported.stablehlo").read_bytes(), "text")
    assert recognise(raw[:200]) == recognise(raw) == "bytecode"
    assert described(exported) == described(text)
    place = module_range(raw)
    assert place is not None
    assert module_range(raw[: place[1] - 1]) is None  # cut inside the program
    assert module_range(b"\0" * 400) is None


def test_a_newer_version_of_an_operation_is_named() -> None:
    raw = data("scan_layers.1.0.0").replace(b"add_v1\0", b"add_v9\0")
    with pytest.raises(SourceError, match=r"f\.bc: operation \d+: vhlo\.add_v9 is newer than VHLO 1\.20\.0, the newest supported version"):
        parse_all(raw, "f.bc")
    assert versioned("dot_general_v2") == ("dot_general", 2)
    assert versioned("cross-replica-sum_v1") == ("cross-replica-sum", 1)


def test_a_newer_container_is_named() -> None:
    with pytest.raises(SourceError, match=r"f\.bc: MLIR bytecode of version 7; the newest supported version is 6"):
        parse_all(b"ML\xefR\x0fMLIR\0", "f.bc")


@every("cut", [4, 5, 6, 40, 400, -1])
def test_a_file_that_is_cut_is_an_error_in_one_line(cut: int) -> None:
    with pytest.raises(SourceError) as caught:
        parse_all(data("scan_layers.1.0.0")[:cut], "f.bc")
    assert str(caught.value).startswith("f.bc: ")
    assert "\n" not in str(caught.value)


@given(st.sampled_from(["scan_layers", "scan_layers.0.9.0", "cond_switch.1.10.0", "shard_map_collectives"]), st.data())
def test_damaged_bytes_give_a_program_or_an_error(name: str, drawn: st.DataObject) -> None:
    raw = bytearray(data(name))
    for _ in range(drawn.draw(st.integers(1, 4))):
        raw[drawn.draw(st.integers(4, len(raw) - 1))] = drawn.draw(st.integers(0, 255))
    with suppress(RooflineError):
        parse_all(bytes(raw), "f.bc")


def number(value: int) -> bytes:
    """A small number as the container writes it."""
    assert value < 2**14
    return bytes([value << 1 | 1]) if value < 128 else struct.pack("<H", value << 2 | 2)


def section(code: int, content: bytes) -> bytes:
    return bytes([code]) + number(len(content)) + content


def container(attributes: list[bytes]) -> bytes:
    """A file with these builtin attributes and an empty block."""
    strings = number(1) + number(8) + b"builtin\0"
    offsets = number(len(attributes)) + number(0) + number(0) + number(len(attributes))
    offsets += b"".join(number(len(entry) << 1 | 1) for entry in attributes)
    parts = [section(0, strings), section(1, number(1) + number(0) + number(0)), section(2, b"".join(attributes)), section(3, offsets)]
    return b"ML\xefR" + number(6) + b"\0" + b"".join(parts) + section(4, number(0))


def test_attributes_that_stand_for_too_much_are_refused() -> None:
    # Each list holds the one before it twice: 40 entries would be 2^40 values.
    doubled = [number(0) + number(0)] + [number(0) + number(2) + 2 * number(place) for place in range(40)]
    values = Entries(read_bytecode(container(doubled)), {})
    assert values.attribute(3) == [[[[], []], [[], []]], [[[], []], [[], []]]]
    with pytest.raises(SourceError, match="expand to more than a file of this size can contain"):
        values.attribute(40)


def test_attributes_in_a_circle_are_refused() -> None:
    values = Entries(read_bytecode(container([number(0) + number(1) + number(0)])), {})
    with pytest.raises(SourceError, match="in a cycle"):
        values.attribute(0)


def test_a_region_with_more_values_than_the_file_has_bytes_is_refused() -> None:
    raw = data("scan_layers")
    at = raw.index(b"\x07\x04")  # one isolated region, a section of operations
    length = Cursor(raw, at + 2)
    length.number()
    broken = raw[: length.at] + raw[length.at : length.at + 1] + b"\x00" + b"\xff" * 8 + raw[length.at + 10 :]
    with pytest.raises(SourceError, match="more values than bytes"):
        parse_all(broken, "f.bc")


def test_numbers_are_read_with_their_prefix() -> None:
    assert Cursor(b"\x0b").number() == 5
    assert Cursor(number(300)).number() == 300
    assert Cursor(b"\x00" + (2**40).to_bytes(8, "little")).number() == 2**40
    assert [Cursor(number(raw)).signed() for raw in (0, 1, 2, 3)] == [0, -1, 1, -2]


@every(
    ("kind", "raw", "elements"),
    [
        ("tensor<3xi64>", struct.pack("<3q", 1, -2, 3), (1, -2, 3)),
        ("tensor<4xi32>", struct.pack("<i", 7), (7, 7, 7, 7)),
        ("tensor<2xui8>", b"\xff\x00", (255, 0)),
        ("tensor<2xi4>", b"\xff\x07", (-1, 7)),
        ("tensor<2xf32>", struct.pack("<2f", 0.5, math.inf), (0.5, math.inf)),
        ("tensor<bf16>", b"\x80\x3f", (1.0,)),
        ("tensor<3xi1>", b"\xff", (True, True, True)),
        ("tensor<3xi1>", b"\x05", (True, False, True)),
        ("tensor<2xi1>", b"\x01\x00", (True, False)),
        ("tensor<9xf8E4M3FN>", b"\0" * 9, ()),
        ("tensor<99999xf32>", b"\0" * 4 * 99999, ()),
    ],
)
def test_dense_elements_are_those_that_text_has(kind: str, raw: bytes, elements: tuple[object, ...]) -> None:
    array = parse_type(kind)
    decoded = Entries(read_bytecode(container([])), {}).elements(array, raw)
    assert decoded.all == elements
    assert parse_elements(f'"0x{raw.hex()}"', array) == decoded
    if elements and array.element != "i1":
        assert parse_elements(str(list(elements)), array).all == elements


def test_values_are_written_as_text_has_them() -> None:
    value = {"a": [1, True, Bare("@f")], "odd name": 'say "x"', "b": {"c": 0.5}}
    assert written(value) == '{a = [1, true, @f], "odd name" = "say \\22x\\22", b = {c = 5.000000e-01}}'
    assert quoted("\udcff") == '"\\FF"'  # a byte that is not text


def test_defaults_that_vhlo_spells_out_are_left_out() -> None:
    from roofline.hlo.read.mlir.operations import Operation

    given = {"dimension": -1, "is_stable": False}
    assert to_stablehlo(Operation("vhlo.sort_v1", 0, attributes=given)).attributes == {}
    numbers = [Elements(Type("tensor", (count,), (Type("i64"),)), values) for count, values in ((1, (1,)), (0, ()))]
    gather = {"offset_dims": numbers[0], "collapsed_slice_dims": numbers[1], "index_vector_dim": 0}
    assert attributes_of(to_stablehlo(Operation("vhlo.gather_v2", 0, attributes=gather)), "gather", [], []) == {
        "offset_dims": (1,),
        "index_vector_dim": 0,
    }
