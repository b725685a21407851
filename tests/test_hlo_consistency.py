"""Programs that contradict themselves are refused once, by their readers, so that no rule has to expect them."""

import pytest

from every import every
from roofline.errors import SourceError
from roofline.hlo.ir.module import Computation
from roofline.hlo.read import parse


def entry(*lines: str) -> Computation:
    text = "\n".join(f"  {line}" for line in lines)
    return parse(f"HloModule m\n\nENTRY %main {{\n{text}\n}}\n", "m.hlo").entry_computation


@every(
    "line",
    [
        "%r = f32[4,8]{1,0} transpose(%x)",  # as number 90041921 of benchmarks/fuzz.py has it
        "%r = f32[4,8]{1,0} transpose(%x), dimensions={0,16}",
        "%r = f32[4,8]{1,0} transpose(%x), dimensions={1,1}",
        "%r = f32[4,8,1]{2,1,0} transpose(%x), dimensions={1,0}",
        "%r = f32[8,4,2]{2,1,0} broadcast(%x), dimensions={0}",
        "%r = f32[8,4,2]{2,1,0} broadcast(%x), dimensions={0,3}",
        "%r = f32[32]{0} copy(%x)",
        "%r = f32[9,4]{1,0} pad(%x, %zero)",
        "%r = f32[9,4]{1,0} pad(%x, %zero), padding=0_1",
        "%r = f32[16,4]{1,0} concatenate(%x, %x)",
        "%r = f32[16,4]{1,0} concatenate(%x, %x), dimensions={2}",
        "%r = f32[64]{0} concatenate(%x, %x), dimensions={0}",
        "%r = f32[8]{0} reduce(%x, %zero), dimensions={2}",
        "%r = f32[8]{0} reduce(%x, %zero), dimensions={1,1}",
        "%r = f32[8,4]{1,0} sort(%x), dimensions={5}",
        "%r = (f32[8,4]{1,0}, f32[8,4]{1,0}) tuple(%x)",
        "%r = f32[8,4]{1,0} get-tuple-element(%both), index=2",
        "%r = f32[8,4]{1,0} get-tuple-element(%both), index=-1",
        "%r = f32[8,4]{1,0} while(%x)",
    ],
)
def test_instructions_that_do_not_fit_their_operands_are_refused_with_their_place(line: str) -> None:
    before = ("%x = f32[8,4]{1,0} parameter(0)", "%both = (f32[8,4]{1,0}, f32[8,4]{1,0}) tuple(%x, %x)")
    before = (*before, "%zero = f32[] constant(0)")
    opcode = line.split("(%")[0].rpartition(" ")[2]
    with pytest.raises(SourceError, match=rf"^m.hlo: line 7: 'r' is {opcode} that does not fit"):
        entry(*before, f"ROOT {line}")


def test_instructions_that_fit_are_read() -> None:
    main = entry(
        "%x = f32[8,4]{1,0} parameter(0)",
        "%turned = f32[4,8]{1,0} transpose(%x), dimensions={1,0}",
        "%spread = f32[4,2,8]{2,1,0} broadcast(%turned), dimensions={0,2}",
        "%scalar = f32[] constant(0)",
        "%filled = f32[3]{0} broadcast(%scalar), dimensions={}",
        "%none = () tuple()",
        "%joined = f32[8,8]{1,0} concatenate(%x, %x), dimensions={1}",
        "%ordered = f32[8,4]{1,0} sort(%x), dimensions={1}",
        "%both = (f32[4,2,8]{2,1,0}, f32[3]{0}) tuple(%spread, %filled)",
        "ROOT %r = f32[3]{0} get-tuple-element(%both), index=1",
    )
    assert len(main) == 10


def test_an_attribute_that_cannot_be_read_is_an_error_where_it_is_asked_for() -> None:
    main = entry("%x = f32[8,4]{1,0} parameter(0)", "ROOT %r = f32[4,8]{1,0} transpose(%x), dimensions={one}")
    with pytest.raises(SourceError, match="line 5: r: dimensions"):
        main.root_instruction.dimensions  # noqa: B018


def test_instructions_are_put_after_their_operands() -> None:
    main = entry(
        "ROOT %r = f32[4]{0} add(%y, %x)",
        "%y = f32[4]{0} negate(%x), control-predecessors={%z}",
        "%z = f32[4]{0} parameter(1)",
        "%x = f32[4]{0} parameter(0)",
    )
    assert [one.name for one in main] == ["x", "y", "r", "z"]
    assert [one.operands for one in main] == [(), (0,), (1, 0), ()]
    assert (main.root_instruction.name, main[1].control, main.parameters) == ("r", (3,), (0, 3))


def test_an_instruction_that_needs_its_own_result_is_refused() -> None:
    with pytest.raises(SourceError, match=r"m.hlo: .*depends on its own result"):
        entry("%x = f32[4]{0} add(%r, %r)", "ROOT %r = f32[4]{0} negate(%x)")
