"""Damaged programs and bombs: any bytes give a module or a `SourceError` with its place, nothing else, and soon."""

import gzip
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from every import every
from hlo_programs import DATA, instructions, load
from roofline.errors import SourceError
from roofline.hlo.ir.module import HloModule
from roofline.hlo.read import parse
from roofline.hlo.read.backend_config import backend_config, known_trip_count
from roofline.sources.programs import prepared

ACCESSORS = """
metadata dot window convolution slices padding replica_groups source_target_pairs operand_precision operand_aliases frontend_attributes
literal backend_config_text custom_call_target fusion_kind dimensions
"""
PROGRAMS = [
    name
    for name in sorted(path.name.removesuffix(".gz") for path in DATA.glob("*.gz"))
    if not name.startswith(("random", "linear", "elementwise"))
]
MANY = 10**5


def read(data: bytes | str, where: str = "damaged") -> HloModule | None:
    """The module, every attribute asked for; ``None`` when it was refused as it should be."""
    refusal, program = "", None
    try:
        program = parse(data, where)
    except SourceError as error:
        refusal = str(error)
    if program is None:
        assert refusal.startswith(f"{where}: ")
        assert "\n" not in refusal
        return None
    for i in instructions(program):
        for name in ACCESSORS.split():
            try:
                value = getattr(i, name)
                if name == "replica_groups" and value is not None:
                    assert isinstance(value.groups, tuple)
                if name == "backend_config_text":
                    assert isinstance(backend_config(i), dict)
                    known_trip_count(i)
            except SourceError as error:
                refusal = str(error)
            assert not refusal or i.name in refusal
            refusal = ""
    return program


@given(st.sampled_from(PROGRAMS), st.floats(0, 1))
def test_a_program_cut_off_anywhere_is_read_or_refused(name: str, share: float) -> None:
    data = load(name)
    read(data[: int(len(data) * share)])


@given(
    st.sampled_from(PROGRAMS),
    st.lists(
        st.tuples(
            st.floats(0, 1), st.integers(0, 40), st.binary(max_size=12) | st.sampled_from([b"{", b"}", b'"', b"(", b")", b"9" * 30, b"\n"])
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_a_program_with_bytes_replaced_is_read_or_refused(name: str, injuries: list[tuple[float, int, bytes]]) -> None:
    data = load(name)
    for share, length, new in injuries:
        at = int(len(data) * share)
        data = data[:at] + new + data[at + length :]
    read(data)


@given(st.sampled_from([name for name in PROGRAMS if not name.endswith(".pb")]), st.randoms(use_true_random=False))
def test_a_program_with_lines_shuffled_or_lost_is_read_or_refused(name: str, source: object) -> None:
    lines = load(name).decode().split("\n")
    for _ in range(3):
        one, other = source.randrange(len(lines)), source.randrange(len(lines))  # type: ignore[attr-defined]
        lines[one], lines[other] = lines[other], lines[one]
        del lines[source.randrange(len(lines))]  # type: ignore[attr-defined]
    read("\n".join(lines))


def hlo(line: str) -> str:
    return f"HloModule m\nENTRY e {{\n  p = f32[2]{{0}} parameter(0)\n  ROOT x = f32[2]{{0}} {line}\n}}\n"


def mlir(line: str) -> str:
    return f"module @m {{\n func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{\n{line}\n return %a : tensor<4xf32>\n }}\n}}\n"


# Each of these would take minutes if anything in the readers were quadratic, or overflow the stack if it recursed.
BOMBS = {
    "open parentheses": hlo("add(" + "(" * MANY),
    "nested braces": hlo("add(p, p), metadata=" + "{" * MANY + "}" * MANY),
    "escaped quotes": hlo('add(p, p), metadata={op_name="' + '\\"' * MANY + '"}'),
    "quotes without end": hlo('add(p, p), metadata={op_name="' + '\\"' * MANY),
    "names inside a string": hlo('add(p, p), metadata={"' + 'abc=\\"' * MANY + '"}'),
    "arrows": "HloModule m\nENTRY e (" + "->" * MANY + " {\n",
    "comments": hlo("add(" + "*/" * MANY + "/* " * MANY + ")"),
    "a long word": hlo("add(p, p), window={" + "a" * MANY + "}, dimensions={" + "1" * MANY + "}"),
    "many attributes": hlo("add(p, p)" + ", a=1" * MANY),
    "deep tuple": hlo("x").replace("f32[2]{0}", "(" * MANY + ")" * MANY),
    "many dimensions": hlo("add(p, p)").replace("[2]{0}", "[" + "1," * MANY + "1]"),
    "a long constant": hlo("constant({" + "1,\n" * MANY + "1})"),
    "commas to the end": "HloModule m\nENTRY e {\n p = f32[] parameter(0),\n" + ",\n" * MANY,
    "blank lines": "\n" * MANY,
    "json in json": hlo('custom-call(p), custom_call_target="x", backend_config={"a":' + "[" * MANY + "]" * MANY + "}"),
    "lists in lists": hlo('custom-call(p), custom_call_target="x", backend_config={a = ' + "[" * MANY + "]" * MANY + "}"),
    "a world of devices": hlo("all-reduce(p), replica_groups=[1000000000,1000000000]<=[1000000000,1000000000]"),
    "numbered files": "HloModule m\nFileNames\n" + '1 "x"\n' * MANY,
    "mlir brackets": mlir("%0 = stablehlo.constant dense<" + "[" * MANY + "]" * MANY + "> : tensor<4xf32>"),
    "mlir tuples": mlir("%0 = stablehlo.foo %a : " + "tuple<" * MANY + "tensor<f32>" + ">" * MANY),
    "mlir quotes": mlir('%0 = stablehlo.constant dense<"' + '\\"' * MANY),
    "mlir regions": mlir('"stablehlo.case"(%a) ({\n' * MANY),
    "mlir modules": "module {\n" * MANY,
    "mlir blanks": mlir("\n" * MANY + "stablehlo.add" + " \n" * MANY),
    "mlir callsites": mlir("%0 = stablehlo.abs %a : tensor<4xf32> loc(" + "callsite(" * MANY + '"f":1:1' + ' at "g":2:2)' * MANY + ")"),
    "mlir aliases": "".join(f"#loc{n} = loc(#loc{n + 1})\n" for n in range(MANY))
    + mlir("%0 = stablehlo.abs %a : tensor<4xf32> loc(#loc0)"),
    "mlir copies of one element": mlir(
        '%0 = "stablehlo.collective_permute"(%a) <{source_target_pairs = dense<0> : tensor<999999999x2xi64>}> '
        ": (tensor<4xf32>) -> tensor<4xf32>"
    ),
    "a number without end": b"\n\x7f\x00" + b"\xff" * MANY,
    "messages in messages": b"\n\x7f" * MANY + b"\0",
}


@every("name", BOMBS)
def test_bombs_do_not_go_off(name: str) -> None:
    read(BOMBS[name], "bomb")


DUMPS = sorted(DATA.parent.glob("h200/*.hlo.txt.gz"))
CUTS = 8  # of each kind in each file


@every("path", DUMPS)
def test_a_dump_cut_at_any_line_is_noticed(path: Path) -> None:
    # Cut between two computations, before the ENTRY, it reads like a program that is complete and does nearly nothing.
    text = gzip.decompress(path.read_bytes()).decode().rstrip()
    ends = [match.end() for match in re.finditer("\n", text)]
    between = [end for end in ends if text[:end].rstrip().endswith("}")]
    assert between
    for end in (*between[:: len(between) // CUTS + 1], between[-1], *ends[:: len(ends) // CUTS + 1]):
        assert read(text[:end], "cut") is None, text[max(0, end - 80) : end]


def test_a_fragment_written_by_hand_needs_no_entry() -> None:
    for header in ("", "HloModule m\n", "HloModule m, is_scheduled=true\n"):
        found = read(header + "%f (p: f32[2]) -> f32[2] {\n  ROOT %p = f32[2]{0} parameter(0)\n}\n", "fragment")
        assert found is not None
        assert found.entry_computation.name == "f"
        said = [note for note in prepared(found)[2] if "marks no computation as ENTRY: its last one, f, is used" in note]
        assert len(said) == (1 if header else 0)  # such a text may be what is left of a longer one
