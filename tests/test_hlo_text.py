"""HLO text of several ages: structure, attributes, and errors that name their line."""

import pickle

import pytest

from every import every
from hlo_programs import instructions, module, names
from roofline.errors import SourceError
from roofline.hlo.ir.attributes import (
    Alias,
    ConvolutionDimensions,
    DotDimensions,
    Metadata,
    OperandAlias,
    PadRange,
    SliceRange,
    WindowDimension,
)
from roofline.hlo.ir.module import Call, HloModule, Instruction
from roofline.hlo.read import parse, parse_all, recognise
from roofline.hlo.read.backend_config import backend_config, known_trip_count
from roofline.hlo.read.text_attributes import parse_metadata


def entry(*lines: str, before: str = "", header: str = "HloModule m") -> HloModule:
    """A module whose entry has these instructions."""
    body = "\n".join(f"  {line}" for line in lines)
    return parse(f"{header}\n{before}\nENTRY main {{\n{body}\n}}\n", "m.hlo")


def last(*lines: str, before: str = "") -> Instruction:
    return entry(*lines, before=before).entry_computation.instructions[-1]


ADD = """
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT sum = f32[] add(x, y)
}
"""


def test_a_module_is_computations_of_instructions_tied_by_index() -> None:
    program = entry(
        "p = f32[4]{0} parameter(0)", "zero = f32[] constant(0)", "ROOT r = f32[] reduce(p, zero), dimensions={0}, to_apply=add", before=ADD
    )
    computation = program.entry_computation
    assert [i.opcode for i in computation] == ["parameter", "constant", "reduce"]
    assert (computation.root, computation.parameters) == (2, (0,))
    assert computation.root_instruction.operands == (0, 1)
    assert computation.root_instruction.calls == (Call("to_apply", 0),)
    assert program.computation("add") is program.computations[0]
    assert program.find("sum") == (program.computations[0], program.computations[0][2])


def test_percent_signs_operand_shapes_and_index_comments_change_nothing() -> None:
    plain = entry("a = f32[2]{0} parameter(0)", "b = (f32[2]{0}, s32[]) parameter(1)", "ROOT c = f32[2]{0} foo(a, b, a)")
    signs = entry("%a = f32[2]{0} parameter(0)", "%b = (f32[2]{0}, s32[]) parameter(1)", "ROOT %c = f32[2]{0} foo(%a, %b, /*index=2*/%a)")
    shapes = entry(
        "%a = f32[2]{0} parameter(0)",
        "%b = (f32[2]{0}, s32[]) parameter(1)",
        "ROOT %c = f32[2]{0} foo(f32[2]{0:T(8)} %a, (f32[2]{0}, s32[]) %b, f32[2] %a)",
    )
    bare = entry(
        "a = f32[2]{0} parameter(0)",
        "b = (f32[2]{0}, s32[]) parameter(1)",
        "ROOT c = f32[2]{0} foo(f32[2]{0:T(8)} a, (f32[2], s32[]) b, f32[2] a)",
    )
    for other in (signs, shapes, bare):
        assert [i.operands for i in other.entry_computation] == [i.operands for i in plain.entry_computation]
        assert [i.shape for i in other.entry_computation] == [i.shape for i in plain.entry_computation]


def test_the_header_says_schedule_aliases_and_partitions() -> None:
    program = entry(
        "ROOT p = f32[2,3] parameter(0)",
        header="HloModule jit_step, is_scheduled=true, input_output_alias={ {0}: (1, {}, may-alias), {1}: (0, {2}, must-alias) }, "
        "entry_computation_layout={(f32[2,3]{0,1:T(8,128)S(5)}, (s32[], /*index=1*/f32[])) -> f32[2,3]{1,0}}, "
        "replica_count=2, num_partitions=8, "
        'frontend_attributes={fingerprint="a\\"b",meshes={m = #sdy.mesh<["x"=2]>}}',
    )
    assert (program.name, program.is_scheduled, program.replica_count, program.num_partitions) == ("jit_step", True, 2, 8)
    assert program.aliases == (Alias((0,), 1), Alias((1,), 0, (2,)))
    assert program.frontend_attributes == {"fingerprint": 'a"b', "meshes": '{m = #sdy.mesh<["x"=2]>}'}


def test_stack_frames_lead_to_source_lines_and_never_loop() -> None:
    # Text prints a parent one too high: frame 1 is called its own parent and has none; frame 2's parent is frame 1.
    program = entry(
        'ROOT p = f32[] parameter(0), metadata={op_name="jit(f)/sin" stack_frame_id=2}',
        before='\nFileNames\n1 "/src/model.py"\n\nFunctionNames\n1 "<module>"\n2 "layer"\n\n'
        "FileLocations\n1 {file_name_id=1 function_name_id=1 line=9 end_line=9 column=0 end_column=4}\n"
        "2 {file_name_id=1 function_name_id=2 line=3 end_line=3 column=4 end_column=9}\n\n"
        "StackFrames\n1 {file_location_id=1 parent_frame_id=1}\n2 {file_location_id=2 parent_frame_id=2}\n\n",
    )
    root = program.entry_computation.root_instruction
    assert [(frame.function, frame.line) for frame in program.trace(root)] == [("layer", 3), ("<module>", 9)]
    assert program.location(root) == "/src/model.py:3"


def test_older_metadata_names_the_source_itself() -> None:
    program = entry('ROOT p = f32[] parameter(0), metadata={op_type="add" op_name="jit(f)/add" source_file="m.py" source_line=7}')
    assert program.entry_computation.root_instruction.metadata == Metadata(op_name="jit(f)/add", source_file="m.py", source_line=7)
    assert program.location(program.entry_computation.root_instruction) == "m.py:7"


def test_dot_convolution_and_window_attributes() -> None:
    p, q = "p = f32[2,4,4,8]{3,2,1,0} parameter(0)", "q = f32[3,3,4,8]{3,2,1,0} parameter(1)"
    dot = last(
        p,
        q,
        "d = f32[2] dot(p, q), lhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_batch_dims={0,1}, "
        "rhs_contracting_dims={3}, operand_precision={highest,default}, algorithm=dot_tf32_tf32_f32_x3",
    )
    assert dot.dot == DotDimensions(lhs_contracting=(3,), rhs_contracting=(3,), lhs_batch=(0, 1), rhs_batch=(0, 1))
    assert (dot.operand_precision, dot.word("algorithm")) == (("highest", "default"), "dot_tf32_tf32_f32_x3")
    window = "window={size=3x3 stride=2x1 pad=1_-1x0_2 lhs_dilate=1x2 rhs_dilate=3x1 rhs_reversal=0x1}"
    convolution = last(p, q, f"c = f32[2] convolution(p, q), {window}, dim_labels=b01f_01io->b01f, feature_group_count=2")
    assert convolution.window == (WindowDimension(3, 2, 1, -1, 1, 3, False), WindowDimension(3, 1, 0, 2, 2, 1, True))
    assert convolution.convolution == ConvolutionDimensions(
        input_batch=0,
        input_feature=3,
        input_spatial=(1, 2),
        kernel_input_feature=2,
        kernel_output_feature=3,
        kernel_spatial=(0, 1),
        output_batch=0,
        output_feature=3,
        output_spatial=(1, 2),
    )
    assert (convolution.feature_group_count, convolution.batch_group_count) == (2, 1)


def test_ranges_paddings_and_aliases() -> None:
    p = "p = f32[8,8]{1,0} parameter(0)"
    assert last(p, "s = f32[2,4]{1,0} slice(p), slice={[0:8:4], [4:8]}").slices == (SliceRange(0, 8, 4), SliceRange(4, 8))
    assert last(p, "s = f32[9,9]{1,0} pad(p, p), padding=0_1x-2_3_1").padding == (PadRange(0, 1), PadRange(-2, 3, 1))
    fusion = last(
        p,
        "f = (f32[8,8]{1,0}, f32[]) fusion(p), kind=kLoop, output_to_operand_aliasing={{0}: (0, {}), {1}: (0, {1})}, calls=add",
        before=ADD,
    )
    assert fusion.operand_aliases == (OperandAlias((0,), 0), OperandAlias((1,), 0, (1,)))
    assert fusion.fusion_kind == "kLoop"


@every(
    ("text", "groups"),
    [
        ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
        ("{}", ()),
        ("[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
        # Devices as a 2 x 4 grid read by columns: pairs that lie one above the other.
        ("[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['x'=2,'y'=4] {'x'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['x'=2,'y'=4] {'y'}", ((0, 1, 2, 3), (4, 5, 6, 7))),
        # The first of the two factors of y, then x: within a column of two, across both rows.
        ("mesh['x'=2,'y'=4] {'y':(1)2,'x'}", ((0, 4, 2, 6), (1, 5, 3, 7))),
        ("mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'y'}", ((0, 2), (1, 3))),
    ],
)
def test_replica_groups_in_every_spelling(text: str, groups: tuple[tuple[int, ...], ...]) -> None:
    reduce = last(
        "p = f32[2]{0} parameter(0)",
        f"r = f32[2]{{0}} all-reduce(p), channel_id=1, replica_groups={text}, use_global_device_ids=true, to_apply=add",
        before=ADD,
    )
    assert reduce.replica_groups is not None
    assert reduce.replica_groups.groups == groups
    assert (reduce.replica_groups.count, reduce.replica_groups.size) == (len(groups), max(map(len, groups), default=0))
    assert (reduce.integer("channel_id"), reduce.flag("use_global_device_ids")) == (1, True)


def test_backend_configs_are_json_quoted_json_or_mlir() -> None:
    p = "p = s32[] parameter(0)"
    plain = last(p, 'c = s32[] custom-call(p), custom_call_target="x", backend_config={"a":{"b":[1,"}"]}}')
    quoted = last(p, r'c = s32[] custom-call(p), custom_call_target="x", backend_config="{\"a\":{\"b\":[1,\"}\"]}}"')
    mlir = last(
        p,
        'c = s32[] custom-call(p), custom_call_target="x", backend_config={name = "}\\00", '
        "grid = [1, 2] : vector<2xi32>, f = 2.5 : f32, on}",
    )
    foreign = last(p, 'c = s32[] custom-call(p), custom_call_target="x", backend_config="field: 3"')
    assert backend_config(plain) == backend_config(quoted) == {"a": {"b": [1, "}"]}}
    assert backend_config(mlir) == {"name": "}\0", "grid": [1, 2], "f": 2.5, "on": True}
    assert (backend_config(foreign), foreign.backend_config_text) == ({}, "field: 3")


def test_a_while_knows_its_condition_its_body_and_sometimes_its_trip_count() -> None:
    loop = 'w = s32[] while(p), condition=cond, body=body, backend_config={"known_trip_count":{"n":"8"}}'
    computations = (
        "cond {\n p = s32[] parameter(0)\n ROOT c = pred[] compare(p, p), direction=LT\n}\nbody {\n ROOT p = s32[] parameter(0)\n}\n"
    )
    found = last("p = s32[] parameter(0)", loop, before=computations)
    assert (found.called("condition"), found.called("body"), known_trip_count(found)) == ((0,), (1,), 8)
    assert known_trip_count(last("p = s32[] parameter(0)", loop.partition(", backend")[0], before=computations)) is None


def test_branches_have_one_role_however_a_conditional_is_spelled() -> None:
    computations = "a {\n ROOT p = f32[] parameter(0)\n}\nb {\n ROOT q = f32[] parameter(0)\n}\n"
    operands = ("i = pred[] parameter(0)", "x = f32[] parameter(1)")
    old = last(*operands, "c = f32[] conditional(i, x, x), true_computation=a, false_computation=b", before=computations)
    new = last(*operands, "c = f32[] conditional(i, x, x), branch_computations={%a, %b}", before=computations)
    assert old.calls == new.calls == (Call("branch_computations", 0), Call("branch_computations", 1))


def test_calls_may_stand_before_what_they_call_and_operands_too() -> None:
    program = parse(
        "HloModule m\nENTRY main {\n ROOT r = f32[] add(q, q)\n q = f32[] call(p), to_apply=f\n"
        " p = f32[] parameter(0)\n}\nf {\n ROOT p = f32[] parameter(0)\n}\n"
    )
    assert [i.operands for i in program.entry_computation] == [(), (0,), (1, 1)], "each follows its operands, so that one walk sees all"
    assert program.entry_computation[1].calls == (Call("to_apply", 1),)
    assert program.entry == 0


def test_the_short_spelling_of_asynchronous_operations_is_written_out() -> None:
    program = entry(
        "p = f32[8]{0} parameter(0)",
        '%s = ((f32[8]{0}), f32[2]{0}, u32[]) fusion-start(%p), kind=kLoop, calls=%add, metadata={op_name="slice"}',
        "ROOT %d = f32[2]{0} fusion-done(%s)",
        before=ADD,
    )
    start, done = program.entry_computation[1], program.entry_computation[2]
    assert (start.opcode, done.opcode, done.operands) == ("async-start", "async-done", (1,))
    wrapped = program.computations[start.called("calls")[0]]
    assert [(i.opcode, str(i.shape)) for i in wrapped] == [("parameter", "f32[8]{0}"), ("fusion", "f32[2]{0}")]
    assert wrapped.root_instruction.called("calls") == (program.computations.index(program.computation("add")),)
    assert wrapped.root_instruction.fusion_kind == "kLoop"


def test_halves_that_hlo_itself_has_stay_as_they_are() -> None:
    program = entry(
        "p = f32[2]{0} parameter(0)", "s = (f32[2]{0:S(1)}, f32[2]{0}, u32[]) copy-start(p)", "ROOT d = f32[2]{0:S(1)} copy-done(s)"
    )
    assert [i.opcode for i in program.entry_computation] == ["parameter", "copy-start", "copy-done"]


def test_folded_tuple_elements_are_unfolded() -> None:
    program = entry("p = (f32[2]{0}, (s32[], f32[4]{0})) parameter(0)", "ROOT a = f32[4]{0} foo(p#0, p#1#1, p#1#1)")
    names = [(i.opcode, str(i.shape)) for i in program.entry_computation]
    assert names[1:4] == [
        ("get-tuple-element", "f32[2]{0}"),
        ("get-tuple-element", "(s32[], f32[4]{0})"),
        ("get-tuple-element", "f32[4]{0}"),
    ]
    assert program.entry_computation.root_instruction.operands == (1, 3, 3)


def test_instructions_may_take_several_lines_and_carry_comments() -> None:
    program = entry(
        "p = f32[2]{0} parameter(0), // the input",
        '  metadata={op_name="http://x"}',
        "c = f32[2,2]{1,0} constant({",
        "  { 1, 2 },",
        "  { 3, /*index=3*/4 }",
        "})",
        'ROOT r = f32[2]{0} custom-call(p, c), custom_call_target="a(b\\"{", backend_config={',
        '  "deep": {"x": 1}',
        "}",
    )
    assert [i.name for i in program.entry_computation] == ["p", "c", "r"]
    assert program.entry_computation[0].op_name == "http://x"
    assert program.entry_computation[1].literal == (1.0, 2.0, 3.0, 4.0)
    root = program.entry_computation.root_instruction
    assert (root.custom_call_target, backend_config(root)) == ('a(b"{', {"deep": {"x": 1}})


@every(
    ("shape", "text", "values"),
    [
        ("s32[]", "-5", (-5,)),
        ("pred[2]{0}", "{true, 0}", (True, False)),
        ("f32[2]{0}", "{inf, -1.5e-3}", (float("inf"), -0.0015)),
        ("c64[2]{0}", "{(1, 2), (-0, -3)}", (1 + 2j, -3j)),
        ("f32[2]{0}", "f32[2] {1, 2}", (1.0, 2.0)),
        ("u64[1]{0}", "{18446744073709551615}", (2**64 - 1,)),
        ("f32[1000]{0}", "{...}", None),
    ],
)
def test_small_constants_can_be_read(shape: str, text: str, values: tuple[object, ...] | None) -> None:
    assert last(f"c = {shape} constant({text})").literal == values


def test_sharding_frontend_attributes_and_control_predecessors_are_kept() -> None:
    program = entry(
        "p = f32[2]{0} parameter(0), sharding={devices=[2,1]<=[2] last_tile_dim_replicate}",
        'q = f32[2]{0} add(p, p), frontend_attributes={_scheduling="early"}, control-predecessors={r}',
        "ROOT r = f32[2]{0} negate(p)",
    )
    p, q, _ = program.entry_computation
    assert p.word("sharding") == "{devices=[2,1]<=[2] last_tile_dim_replicate}"
    assert (q.frontend_attributes, q.control) == ({"_scheduling": "early"}, (2,))


def test_a_name_inside_a_string_is_no_attribute() -> None:
    i = last(
        'c = f32[] custom-call(), custom_call_target="x, dimensions={7}, metadata={op_name=no}", '
        'dimensions={1}, metadata={op_name="yes, index=3"}'
    )
    assert (i.dimensions, i.op_name, i.integer("index")) == ((1,), "yes, index=3", None)
    assert i.attributes == ("custom_call_target", "dimensions", "metadata")


@every(
    ("attributes", "op_name", "config"),
    [
        (', metadata={op_name="jit(f)/add"}', "jit(f)/add", ""),
        (', metadata={op_name="jit(f)/add"}, backend_config={"a":{"b":1}}', "jit(f)/add", '{"a":{"b":1}}'),
        (', metadata={op_name="jit(f)/{x}/add" source_line=3}, backend_config="c"', "jit(f)/{x}/add", "c"),
        (', backend_config="x, metadata={y}", metadata={op_name="z"}', "z", "x, metadata={y}"),
        (', backend_config="a\\"b, metadata={y}\\"c"', "", 'a"b, metadata={y}"c'),
        (', metadata={op_name="z" profile_type={1}}, backend_config="c"', "z", "c"),
    ],
)
def test_metadata_stand_before_after_or_inside_other_attributes(attributes: str, op_name: str, config: str) -> None:
    one = last("%a = f32[2] parameter(0)", f"ROOT %b = f32[2] add(%a, %a){attributes}")
    assert (one.op_name, one.backend_config_text) == (op_name, config)


@every(
    "metadata",
    [
        "",
        ', metadata={op_name="jit(f)/{x}"}',
        ', metadata={op_name="a" profile_type={1}}',
        ', metadata={op_name="a"}, sharding={replicated}',
        ', metadata={op_name="a"}, control-predecessors={%a}',
        ', metadata={op_name="a\\"}b"}',
        ", control-predecessors={%a}",
        ',\n metadata={op_name="a"}',
    ],
)
def test_attributes_that_an_earlier_line_had_are_read_as_if_they_stood_alone(metadata: str) -> None:
    earlier = '%b = f32[2,2] transpose(%a), dimensions={1,0}, metadata={op_name="first"}'
    lone = f"%c = f32[2,2] transpose(%a), dimensions={{1,0}}{metadata}"
    alone, after = last("%a = f32[2,2] parameter(0)", lone), last("%a = f32[2,2] parameter(0)", earlier, lone)
    assert after.attributes == alone.attributes
    assert [after.attribute(name) for name in after.attributes] == [alone.attribute(name) for name in alone.attributes]
    assert (after.control, after.metadata) == (alone.control, alone.metadata)


def test_instructions_share_the_text_of_equal_attributes() -> None:
    found = entry(
        "%a = f32[2,2] parameter(0)",
        '%b = f32[2,2] transpose(%a), dimensions={1,0}, metadata={op_name="first"}',
        'ROOT %c = f32[2,2] transpose(%b), dimensions={1,0}, metadata={op_name="second"}',
    ).entry_computation
    (text, _), (same, _) = found[1].raw, found[2].raw  # type: ignore[misc]
    assert text is same
    assert [one.op_name for one in found] == ["", "first", "second"]


def test_modules_compare_hash_and_survive_pickling() -> None:
    program = module("scan_layers.hlo")
    assert pickle.loads(pickle.dumps(program)) == program
    assert len({hash(i) for i in instructions(program)}) > 1


@every(
    ("text", "line", "complaint"),
    [
        ("", None, "empty"),
        ("HloModule m\n", 2, "no computation"),
        ("HloModule m\nENTRY e {\n p = f32[] parameter(0)\n", 4, "not closed"),
        ("HloModule m\nENTRY e {\n}\n", 3, "is empty"),
        ("HloModule m\nENTRY e {\n p = f32[] parameter(0)\n p = f32[] negate(p)\n}\n", 4, "second instruction named 'p'"),
        ("HloModule m\nENTRY e {\n p = f32[] parameter(0)\n q = f32[] negate(z)\n}\n", 4, "does not define"),
        ("HloModule m\nENTRY e {\n p = f32[] parameter(0)\n q = f32[] call(p), to_apply=z\n}\n", 4, "does not define"),
        ("HloModule m\nENTRY e {\n p = f32[] parameter(1)\n}\n", 2, "not numbered"),
        ("HloModule m\nENTRY e {\n p = f32[] parameter(0)\n q = f32[] parameter(0)\n}\n", 4, "second parameter"),
        ("HloModule m\nENTRY e {\n ROOT p = f32[] parameter(0)\n ROOT q = f32[] negate(p)\n}\n", 4, "second ROOT"),
        ("HloModule m\na {\n p = f32[] parameter(0)\n}\na {\n p = f32[] parameter(0)\n}\n", 5, "second computation named 'a'"),
        ('HloModule m\nENTRY e {\n p = f32[2]{0} parameter(0), metadata={op_name="x\n}\n', 3, "unterminated"),
        ("HloModule m\nENTRY e {\n p = f32[-2] parameter(0)\n}\n", 3, "0 or more"),
        ("HloModule m\nENTRY e {\n p = zzz[2] parameter(0)\n}\n", 3, "element type"),
        ("HloModule m\nENTRY e {\n what is this\n}\n", 3, "expected 'name = shape opcode"),
        ("HloModule m\nENTRY e {\n p = f32[] call(), to_apply=e\n}\n", 1, "calls itself"),
        ("HloModule a\nENTRY e {\n p = f32[] parameter(0)\n}\nHloModule b\n", 6, "no computation"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, line: int | None, complaint: str) -> None:
    with pytest.raises(SourceError, match=complaint) as caught:
        parse(text, "m.hlo")
    message = str(caught.value)
    assert message.startswith(f"m.hlo: line {line}: " if line else "m.hlo: ")
    assert "\n" not in message


def test_a_damaged_attribute_is_an_error_only_when_asked_for() -> None:
    i = last("p = f32[2]{0} parameter(0)", "q = f32[2]{0} transpose(p), dimensions={x}")
    assert i.operands == (0,)
    with pytest.raises(SourceError, match=r"m.hlo: line 5: q: dimensions: not a whole number"):
        assert i.dimensions


def test_calls_nested_beyond_reason_are_refused() -> None:
    chain = "".join(f"c{n} {{\n p = f32[] parameter(0)\n ROOT r = f32[] call(p), to_apply=c{n - 1}\n}}\n" for n in range(1, 1000))
    with pytest.raises(SourceError, match="nested deeper"):
        parse(f"HloModule m\nc0 {{\n ROOT p = f32[] parameter(0)\n}}\n{chain}")


@every("name", names("hlo"))
def test_every_attribute_of_real_programs_can_be_read(name: str) -> None:
    program = module(f"{name}.hlo")
    for i in instructions(program):
        assert None not in [i.attribute(attribute) for attribute in i.attributes]
        assert i.opcode != "constant" or i.literal is not None or i.shape.elements > 256 or i.shape.dtype[0] in "fbs"


def test_unscheduled_and_scheduled_programs_say_which_they_are() -> None:
    assert not module("scan_layers.before.hlo").is_scheduled
    assert module("scan_layers.hlo").is_scheduled


def test_the_scanned_forward_pass_runs_its_loop_eight_times() -> None:
    program = module("h200_scan.hlo")
    (loop,) = [i for i in instructions(program) if i.opcode == "while"]
    assert known_trip_count(loop) == 8
    body = program.computations[loop.called("body")[0]]
    assert sum(i.opcode == "async-start" for i in body) == 8  # one slice of the stacked weights each


def test_library_calls_show_their_configuration() -> None:
    program = module("h200_custom.hlo")
    attention, kernel = (i for i in instructions(program) if i.opcode == "custom-call")
    assert (attention.custom_call_target, kernel.custom_call_target) == ("__cudnn$fmhaSoftmax", "__gpu$xla.gpu.triton")
    config = backend_config(attention)["cudnn_fmha_backend_config"]
    assert isinstance(config, dict)
    assert config["mask_type"] == "CAUSAL"
    assert backend_config(kernel)["grid_x"] == 16384
    assert program.location(kernel).endswith("more_jax.py:49")


LOOSE = """/* what it is
HloModule not_this */
HloModule loose
ENTRY /* the one */ main (a: f32[8,4], b: f32[4,2]) -> f32[8] {
  a = f32[8,4] {1,0} parameter(0)  %b = f32[4,2]
      parameter(1)
  /*
  c = f32[] constant(1)
  */
  dot = dot(%a, b)
    , lhs_contracting_dims={1}, rhs_contracting_dims=
      {0}  // a comment, with a comma
  ROOT sum = reduce(dot, f32[] constant(0)), dimensions={1}, to_apply={
    x = f32[] parameter(0)
    y = f32[] parameter(1) ROOT z = add(x, y) }
}
"""


def test_text_that_xla_parses_in_any_layout() -> None:
    # Shapes left out, blank before a layout, line breaks and comments anywhere, an operand and a computation written in place.
    program = parse(LOOSE)
    computation = program.entry_computation
    assert program.name == "loose"
    assert [(i.opcode, str(i.shape)) for i in computation] == [
        ("parameter", "f32[8,4]{1,0}"),
        ("parameter", "f32[4,2]"),
        ("dot", "f32[8,2]"),
        ("constant", "f32[]"),
        ("reduce", "f32[8]"),
    ]
    assert [i.operands for i in computation] == [(), (), (0, 1), (), (2, 3)]
    (call,) = computation.root_instruction.calls
    assert [i.opcode for i in program.computations[call.computation]] == ["parameter", "parameter", "add"]
    assert program.computations[call.computation][2].place == 15
    assert computation.root_instruction.place == 13


def test_a_loose_program_cut_anywhere_is_an_error() -> None:
    whole = LOOSE.rstrip()
    for end in range(whole.index("HloModule loose"), len(whole)):
        with pytest.raises(SourceError):
            parse(whole[:end])


@every(
    ("operation", "shape"),
    [
        ("compare(a, a), direction=LT", "pred[4,6]"),
        ("select(m, a, a)", "f32[4,6]"),
        ("tuple(a, s)", "(f32[4,6], f32[])"),
        ("get-tuple-element((f32[4,6], f32[]) tuple(a, s)), index=1", "f32[]"),
        ("transpose(a), dimensions={1,0}", "f32[6,4]"),
        ("concatenate(a, a), dimensions={1}", "f32[4,12]"),
        ("slice(a), slice={[0:4], [1:6:2]}", "f32[4,3]"),
        ("pad(a, s), padding=1_1x0_2_1", "f32[6,13]"),  # 6 + 2 + 5 holes
        ("dynamic-slice(a, i, i), dynamic_slice_sizes={1,6}", "f32[1,6]"),
        ("reduce-window(a, s), window={size=2x2 stride=2x2}, to_apply=add", "f32[2,3]"),
        ("reduce(a, s), dimensions={0,1}, to_apply=add", "f32[]"),
        ("map(a, a), dimensions={0,1}, to_apply=add", "f32[4,6]"),
        ("call(s, s), to_apply=add", "f32[]"),
        ("after-all()", "token[]"),
        ("convolution(v, k), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f", "f32[1,8,5]"),
    ],
)
def test_a_shape_left_out_follows_from_the_operands(operation: str, shape: str) -> None:
    parameters = ("f32[4,6]", "f32[]", "pred[4,6]", "s32[]", "f32[1,8,2]", "f32[3,2,5]")
    lines = [f"{name} = {kind} parameter({number})" for number, (name, kind) in enumerate(zip("asmivk", parameters, strict=True))]
    assert str(last(*lines, f"ROOT r = {operation}", before=ADD).shape) == shape


@every(
    "operation",
    [
        "broadcast(p), dimensions={}",
        "slice(p)",
        "pad(p, p)",
        "convolution(p, p)",
        "gather(p, p), offset_dims={1,2,3}, index_vector_dim=1, slice_sizes={1,8}",  # fewer sizes than dimensions
    ],
)
def test_a_shape_that_nothing_says_has_to_be_written(operation: str) -> None:
    with pytest.raises(SourceError, match=rf"line 5: the shape of '{operation.partition('(')[0]}' cannot be inferred from its operands"):
        entry("p = f32[4,8] parameter(0)", f"b = {operation}")


def test_names_with_and_without_percent_signs_mix() -> None:
    assert last("%a = f32[2,2] parameter(0)", "b = f32[2,2] parameter(1)", "c = f32[2,2] foo(%a, b, f32[2,2] a, %b)").operands == (
        0,
        1,
        0,
        1,
    )


def test_several_modules_in_one_text_are_all_read() -> None:
    one = "HloModule one\nENTRY e {\n  p = f32[] parameter(0)\n}\n"
    text = f"{one}\n{one.replace('one', 'two')}\n// -----\nENTRY e {{\n  p = f32[2] parameter(0)\n}}\n"
    assert [(m.name, str(m.entry_computation.root_instruction.shape)) for m in parse_all(text)] == [
        ("one", "f32[]"),
        ("two", "f32[]"),
        ("e", "f32[2]"),  # without a header, the entry's name
    ]
    with pytest.raises(SourceError, match=r"m.hlo: 3 programs in one file \(one, two, e\)"):
        parse(text, "m.hlo")


def test_lines_of_the_recorder_are_not_the_users() -> None:
    text = """HloModule m
FileNames
1 "/src/model.py"
2 "/lib/roofline/capture/hook/roofline_hook_jax.py"

FunctionNames
1 "loss"
2 "watched"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=0 end_column=1}
2 {file_name_id=2 function_name_id=2 line=21 end_line=21 column=0 end_column=1}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

ENTRY main {
  x = f32[4]{0} parameter(0)
  ROOT y = f32[4]{0} add(x, x), metadata={op_name="jit(f)/add" stack_frame_id=2}
}
"""
    program = parse(text, "m.hlo")
    assert program.location(program.entry_computation.root_instruction) == "/src/model.py:7"


@every(("name", "caller"), [("jit_loss", "/src/train.py:30"), ("jit_scale", "/src/model.py:7"), ("jit_other", "")])
def test_a_program_is_called_where_its_function_is(name: str, caller: str) -> None:
    text = f"""HloModule {name}
FileNames
1 "/src/train.py"
2 "/src/model.py"

FunctionNames
1 "fit.<locals>.step"
2 "Model.loss"
3 "scale"

FileLocations
1 {{file_name_id=1 function_name_id=1 line=30 end_line=30 column=0 end_column=1}}
2 {{file_name_id=2 function_name_id=2 line=7 end_line=7 column=0 end_column=1}}
3 {{file_name_id=2 function_name_id=3 line=2 end_line=2 column=0 end_column=1}}

StackFrames
1 {{file_location_id=1 parent_frame_id=1}}
2 {{file_location_id=2 parent_frame_id=2}}
3 {{file_location_id=3 parent_frame_id=3}}

ENTRY main {{
  x = f32[4]{{0}} parameter(0)
  ROOT y = f32[4]{{0}} add(x, x), metadata={{op_name="jit(f)/add" stack_frame_id=3}}
}}
"""
    assert parse(text, "m.hlo").caller == caller


@every("header", ["%f (p: (f32[4]{0}, s32[])) -> f32[4]{0} {", "f {", " %f(p: f32[4]) -> f32[4] {", "%f (p: f32[4]) -> f32[4] { // x"])
def test_headers_of_computations_read_alike_however_they_are_spelt(header: str) -> None:
    read = parse(f"HloModule m\n{header}\n p = f32[4]{{0}} parameter(0)\n ROOT q = f32[4]{{0}} negate(p)\n}}\n", "m.hlo")
    assert [(one.name, [inner.place for inner in one]) for one in read] == [("f", [3, 4])]


def test_a_header_with_a_bracket_left_open_is_an_error() -> None:
    with pytest.raises(SourceError, match="line 2"):
        parse("HloModule m\n%f (p: (f32[4], s32[]) -> f32[4] {\n p = f32[4] parameter(0)\n}\n", "m.hlo")


@every("inside", ['op_name="jit(f)/a" source_file="/a b/m.py" source_line=3 source_end_line=4 stack_frame_id=7', 'op_name="x"'])
def test_metadata_in_the_usual_order_read_like_any_other(inside: str) -> None:
    assert parse_metadata(f"{{{inside}}}") == parse_metadata(f"{{ {inside} }}")  # a blank makes it unusual


def test_a_program_needs_neither_a_header_nor_an_entry() -> None:
    text = """// a comment
add {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT sum = f32[] add(p, q)
}

fusion {
  x = f32[8,2048]{1,0} parameter(0)
  zero = f32[] constant(0)
  ROOT reduce = f32[8] reduce(x, zero), dimensions={1}, to_apply=add
}
"""
    assert recognise(text.encode()) == "hlo text"
    assert parse(text).entry_computation.name == "fusion"
    assert recognise(b"the value of x = f[1] is g (2)") == ""
