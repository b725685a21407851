"""HloProto bytes: the same module as the text that the same compiler printed, and errors that name their byte."""

import gzip

import pytest

from every import every
from hlo_programs import SHARED, differences, embedded, instructions, load, module, names
from protobufs import integer, message, number
from roofline.errors import SourceError
from roofline.hlo.ir.attributes import Alias
from roofline.hlo.ir.module import HloModule
from roofline.hlo.read import parse
from roofline.hlo.read.backend_config import backend_config
from roofline.hlo.read.proto import parse_proto

F32_2 = (integer(2, 11), message(3, number(2)), message(5, message(1, number(0))))  # f32[2]{0}


def instruction(name: str, opcode: str, identity: int, *parts: bytes, shape: tuple[bytes, ...] = F32_2) -> bytes:
    return message(2, message(1, name.encode()), message(2, opcode.encode()), message(3, *shape), integer(35, identity), *parts)


def computation(name: str, identity: int, root: int, *parts: bytes) -> bytes:
    return message(3, message(1, name.encode()), *parts, integer(5, identity), integer(6, root))


def wrapped(*computations: bytes, entry: int = 1, extra: bytes = b"") -> bytes:
    return message(1, b"m") + message(2, b"main") + b"".join(computations) + integer(6, entry) + extra


PARAMETER = instruction("p", "parameter", 1)


@every("name", sorted(set(names("pb")) & set(names("hlo"))))
def test_text_and_protobuf_of_one_program_agree(name: str) -> None:
    assert differences(module(f"{name}.hlo"), module(f"{name}.pb")) == []


@pytest.mark.parametrize(("capture", "program"), [("jax_train", "jit_train_step"), ("jax_scan", "jit_step"), ("jax_custom", "jit_step")])
def test_the_module_in_a_capture_is_the_one_the_compiler_printed(capture: str, program: str) -> None:
    folder = SHARED / "h200"
    if not (folder / f"{capture}.xplane.pb").exists():
        pytest.skip("the captures are not here")
    text = parse(gzip.decompress((folder / f"{capture}.hlo.txt.gz").read_bytes()), capture)
    (data,) = [data for name, data in embedded(folder / f"{capture}.xplane.pb") if name.startswith(f"{program}(")]
    proto = parse(data, capture)
    assert differences(text, proto) == []
    assert proto.id is not None


@pytest.mark.parametrize("capture", ["h200/jax_matmuls.xplane.pb", "h200/jax_fusion.xplane.pb", "third_party/tpu_v6e_psum.xplane.pb"])
def test_every_module_of_a_capture_can_be_read(capture: str) -> None:
    if not (SHARED / capture).exists():
        pytest.skip("the captures are not here")
    programs = list(embedded(SHARED / capture))
    assert programs
    for name, data in programs:
        program = parse(data, name)
        assert program.name == name.partition("(")[0]
        for i in instructions(program):
            assert None not in [i.attribute(attribute) for attribute in i.attributes]


def test_host_memory_on_a_tpu_is_memory_space_five() -> None:
    capture = SHARED / "third_party" / "tpu_v6e_psum.xplane.pb"
    if not capture.exists():
        pytest.skip("the capture is not here")
    (program,) = [parse(data, name) for name, data in embedded(capture) if name.startswith("jit_f(")]
    assert {leaf.memory_space for i in program.entry_computation for leaf in i.shape.leaves} == {0, 2, 5}
    assert {leaf.layout.tiles for i in program.entry_computation for leaf in i.shape.leaves if leaf.layout and leaf.dims} == {((8, 128),)}


def test_the_groups_of_a_tpu_all_reduce_are_pairs() -> None:
    capture = SHARED / "third_party" / "tpu_v6e_psum.xplane.pb"
    if not capture.exists():
        pytest.skip("the capture is not here")
    (program,) = [parse(data, name) for name, data in embedded(capture) if name.startswith("jit__psum(")]
    (reduce,) = [i for i in instructions(program) if i.opcode.startswith("all-reduce") and i.replica_groups]
    # [4,2]<=[2,4]T(1,0)
    assert reduce.replica_groups is not None
    assert reduce.replica_groups.groups == ((0, 4), (1, 5), (2, 6), (3, 7))


def test_a_module_may_come_in_an_hlo_proto_or_a_snapshot() -> None:
    bare = load("cond_switch.pb")
    one = parse_proto(bare)
    for data in (message(1, bare), message(1, bare) + message(3, b""), message(1, message(1, bare)) + message(4, b"gpu")):
        assert [c.name for c in parse(data)] == [c.name for c in one]


def test_the_schedule_orders_the_instructions() -> None:
    body = computation("main", 1, 3, PARAMETER, instruction("b", "negate", 2, integer(36, 1)), instruction("a", "abs", 3, integer(36, 1)))
    schedule = message(7, message(1, integer(1, 1), message(2, message(1, number(1) + number(3) + number(2)))))
    program = parse_proto(wrapped(body, extra=schedule))
    assert [i.name for i in program.entry_computation] == ["p", "a", "b"]
    assert (program.is_scheduled, program.entry_computation.root) == (True, 1)


def test_backend_configs_may_be_kept_in_payloads() -> None:
    by_number = instruction("c", "custom-call", 2, message(99, integer(2, 1)))
    by_value = instruction("d", "custom-call", 3, message(99, message(1, b'{"b":2}')))
    program = parse_proto(wrapped(computation("main", 1, 2, by_number, by_value), extra=message(22, b"{}") + message(22, b'{"a":1}')))
    assert [backend_config(i) for i in program.entry_computation] == [{"a": 1}, {"b": 2}]
    lost = parse_proto(wrapped(computation("main", 1, 2, by_number)))
    with pytest.raises(SourceError, match="no payload 1"):
        assert lost.entry_computation[0].backend_config_text


def test_what_proto3_leaves_out_is_still_there() -> None:
    body = computation(
        "main", 1, 2, PARAMETER, instruction("g", "get-tuple-element", 2, integer(36, 1)), instruction("f", "fft", 3, integer(36, 1))
    )
    p, g, f = parse_proto(wrapped(body)).entry_computation
    assert (p.integer("parameter_number"), g.integer("index"), f.word("fft_type")) == (0, 0, "FFT")


def test_replica_groups_of_every_age() -> None:
    iota = (integer(1, 4), integer(2, 2), message(3, number(2) + number(4)), message(4, number(1) + number(0)))
    mesh = message(1, message(1, message(1, b"x"), integer(2, 2)), message(1, message(1, b"y"), integer(2, 4)))
    spellings = [
        message(49, message(1, number(0) + number(4))) + message(49, message(1, number(1) + number(5))),
        message(87, message(1, message(1, number(0) + number(4))), message(1, message(1, number(1) + number(5)))),
        message(87, message(2, *iota)),
        message(92, *iota),
        message(93, mesh, message(2)),
    ]
    for spelling in spellings:
        program = parse_proto(wrapped(computation("main", 1, 2, PARAMETER, instruction("r", "all-reduce", 2, integer(36, 1), spelling))))
        groups = program.entry_computation[1].replica_groups
        assert groups is not None
        assert groups.groups[:2] == ((0, 4), (1, 5))


def test_shardings_are_spelled_as_text_spells_them() -> None:
    tiled = (integer(1, 3), message(3, number(2) + number(1) + number(4)), message(9, number(8)), integer(6, 1))
    cases = {
        "{replicated}": message(40),
        "{maximal device=3}": message(40, integer(1, 1), message(4, number(3))),
        "{manual}": message(40, integer(1, 4)),
        "{devices=[2,1,4]<=[8] last_tile_dim_replicate}": message(40, *tiled),
        "{devices=[2]0,1}": message(40, integer(1, 3), message(3, number(2)), message(4, number(0) + number(1))),
        "{devices=[1,2]<=[2] last_tile_dims={manual}}": message(
            40, integer(1, 3), message(3, number(1) + number(2)), message(9, number(2)), message(8, number(4))
        ),
        "{{replicated}, {manual}}": message(40, integer(1, 2), message(5), message(5, integer(1, 4))),
        "{mesh['x'=2], [{'x'}, {?}], replicated={'x'}}": message(
            40,
            message(
                14, message(2, message(1, message(1, b"x"), integer(2, 2))), message(3, message(1), integer(2, 1)), message(3), message(4)
            ),
        ),
    }
    for text, sharding in cases.items():
        program = parse_proto(wrapped(computation("main", 1, 1, instruction("p", "parameter", 1, sharding))))
        assert program.entry_computation[0].word("sharding") == text


def test_aliases_and_devices_come_from_the_module() -> None:
    alias = message(8, message(1, message(1, number(0)), integer(2, 1), message(3, number(2)), integer(4, 2)))
    program = parse_proto(wrapped(computation("main", 1, 1, PARAMETER), extra=alias + message(15, integer(1, 2), integer(2, 4))))
    assert program.aliases == (Alias((0,), 1, (2,)),)
    assert (program.replica_count, program.num_partitions) == (2, 4)


DEEP = b""
for _ in range(2000):
    DEEP = integer(2, 13) + message(4, DEEP)


@every(
    ("data", "complaint"),
    [
        (b"\x0a\x05abc\x12", "cut off"),
        (load("cond_switch.pb")[:-40], "cut off"),
        (bytes(100), "number 0"),
        (message(1, b"m") + message(2, b"main"), "no computation"),
        (wrapped(computation("main", 1, 9, PARAMETER)), "root's id 9"),
        (wrapped(computation("main", 1, 1)), "is empty"),
        (wrapped(computation("main", 1, 1, PARAMETER), entry=7), "entry's id 7"),
        (wrapped(computation("main", 1, 1, PARAMETER, PARAMETER)), "one id"),
        (wrapped(computation("a", 1, 1, PARAMETER), computation("b", 1, 1, PARAMETER)), "second computation"),
        (wrapped(computation("main", 1, 2, PARAMETER, instruction("n", "negate", 2, integer(36, 5)))), "uses the instruction 5"),
        (wrapped(computation("main", 1, 2, PARAMETER, instruction("n", "call", 2, integer(38, 5)))), "calls the computation 5"),
        (wrapped(computation("main", 1, 2, PARAMETER, instruction("n", "call", 2, integer(38, 1)))), "calls itself"),
        (wrapped(computation("main", 1, 1, instruction("p", "parameter", 1, shape=(integer(2, 99),)))), "element type"),
        (wrapped(computation("main", 1, 1, instruction("p", "parameter", 1, shape=(DEEP,)))), "nested deeper"),
        (wrapped(computation("main", 1, 1, instruction("p", "parameter", 1, shape=(integer(2, 11), integer(3, -5))))), "0 or more"),
        (wrapped(computation("main", 1, 1, instruction("p", "parameter", 1, shape=(integer(2, 11), integer(3, 2**61))))), "int64"),
        (wrapped(computation("main", 1, 1, instruction("p", "parameter", 1, shape=(integer(2, 11), integer(3, 1) * 10**5)))), "dimensions"),
        (wrapped(computation("main", 1, 1, instruction("p", "parameter", 1, integer(9, 3)))), "not numbered"),
        (wrapped(computation("main", 1, 1, PARAMETER), extra=message(7, message(1, integer(1, 1), message(2)))), "schedule"),
    ],
)
def test_what_is_wrong_is_said_with_its_byte(data: bytes, complaint: str) -> None:
    with pytest.raises(SourceError, match=complaint) as caught:
        parse_proto(data, "m.pb")
    assert str(caught.value).startswith("m.pb: byte ")


def test_both_forms_give_equal_shapes_and_need_no_library() -> None:
    text, proto = module("attention.hlo"), module("attention.pb")
    assert isinstance(text, HloModule)
    assert [i.shape for i in text.entry_computation] == [i.shape for i in proto.entry_computation]
    assert parse(load("attention.hlo").decode(), "attention.hlo") == text
