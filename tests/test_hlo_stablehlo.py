"""StableHLO text becomes the module that XLA's own conversion to HLO gives, in HLO's terms."""

from collections import Counter

import pytest

from every import every
from hlo_programs import instructions, load, module, names
from roofline.errors import SourceError
from roofline.hlo.ir.amending import MappedDialect
from roofline.hlo.ir.attributes import Alias, DotDimensions, ReplicaGroups, WindowDimension
from roofline.hlo.ir.module import Call, HloModule, Instruction
from roofline.hlo.ir.shapes import UNBOUNDED
from roofline.hlo.read import parse, parse_all
from roofline.hlo.read.backend_config import backend_config
from roofline.hlo.read.proto import ProtoDialect
from roofline.hlo.read.text_dialect import TextDialect

ATTRIBUTES = """
lhs_contracting_dims rhs_contracting_dims lhs_batch_dims rhs_batch_dims window dim_labels feature_group_count batch_group_count slice
padding dimensions dynamic_slice_sizes offset_dims collapsed_slice_dims start_index_map index_vector_dim slice_sizes update_window_dims
inserted_window_dims scatter_dims_to_operand_dims replica_groups source_target_pairs channel_id fft_type fft_length custom_call_target
algorithm operand_precision k lower left_side transpose_a distribution is_stable backend_config
"""
# Work that costs something; XLA's conversion rewrites the rest (constants, selects, comparisons) as it likes.
COMPARED = """
dot convolution reduce sort scatter gather dynamic-slice dynamic-update-slice fft cholesky triangular-solve all-reduce all-gather
reduce-scatter collective-permute topk rng-bit-generator rng reduce-window select-and-scatter concatenate tanh divide
"""
# What XLA's conversion takes apart (a special function into polynomials, an approximate top-k into a sort).
TAKEN_APART = {"elementwise_unary": {"divide"}, "sort_topk": {"sort"}, "random": {"divide"}}


def main(*lines: str, arguments: str = "%arg0: tensor<4xf32>", before: str = "") -> HloModule:
    body = "\n".join(f"    {line}" for line in lines)
    return parse(f"module @m {{\n{before}\n  func.func public @main({arguments}) -> tensor<4xf32> {{\n{body}\n  }}\n}}\n", "m.mlir")


def last(*lines: str, arguments: str = "%arg0: tensor<4xf32>") -> Instruction:
    program = main(*lines, "return %arg0 : tensor<4xf32>", arguments=arguments)
    return program.entry_computation.instructions[-1]


def bag(program: HloModule, without: set[str]) -> Counter[tuple[object, ...]]:
    """Each instruction that does work, as its opcode, result and attributes."""

    def plain(i: Instruction, name: str) -> object:
        value = i.attribute(name)
        return None if value in (None, (), False) or (name.endswith("_group_count") and value == 1) else repr(value)

    opcodes = set(COMPARED.split()) - without
    return Counter(
        (i.opcode, tuple((leaf.dtype, leaf.dims) for leaf in i.shape.leaves), *(plain(i, name) for name in ATTRIBUTES.split()))
        for i in instructions(program)
        if i.opcode in opcodes
    )


@every("name", sorted(set(names("before.hlo")) & set(names("stablehlo"))))
def test_the_same_work_as_in_xlas_own_conversion(name: str) -> None:
    without = TAKEN_APART.get(name, set())
    assert bag(module(f"{name}.stablehlo"), without) == bag(module(f"{name}.before.hlo"), without)


@every("name", names("stablehlo"))
def test_every_attribute_of_real_programs_can_be_read(name: str) -> None:
    program = module(f"{name}.stablehlo")
    for i in instructions(program):
        assert None not in [i.attribute(attribute) for attribute in i.attributes]


def test_a_while_carries_one_tuple_with_all_that_its_regions_use() -> None:
    program = parse(
        """
        func.func @main(%n: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
          %one = stablehlo.constant dense<1> : tensor<i32>
          %zero = stablehlo.constant dense<0> : tensor<i32>
          %0:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<4xf32>
          cond {
            %1 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %1 : tensor<i1>
          } do {
            %1 = stablehlo.add %i, %one : tensor<i32>
            %2 = stablehlo.add %y, %x : tensor<4xf32>
            stablehlo.return %1, %2 : tensor<i32>, tensor<4xf32>
          }
          return %0#1 : tensor<4xf32>
        }
        """
    )
    (loop,) = [i for i in instructions(program) if i.opcode == "while"]
    # i and y, then n and x from around; the constant is copied into the body, where a reader of bounds will look for it.
    assert str(loop.shape) == "(s32[], f32[4], s32[], f32[4])"
    body = program.computations[loop.called("body")[0]]
    assert Counter(i.opcode for i in body) == {"parameter": 1, "get-tuple-element": 4, "constant": 1, "add": 2, "tuple": 1}
    assert body.root_instruction.shape == loop.shape
    condition = program.computations[loop.called("condition")[0]]
    assert condition.root_instruction.word("direction") == "LT"
    assert str(condition.instructions[condition.parameters[0]].shape) == str(loop.shape)


def test_branches_take_what_they_use_as_one_operand() -> None:
    program = parse(
        """
        func.func @main(%i: tensor<i32>, %x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
          %0 = "stablehlo.case"(%i) ({
            %1 = stablehlo.add %x, %y : tensor<f32>
            stablehlo.return %1 : tensor<f32>
          }, {
            stablehlo.return %x : tensor<f32>
          }, {
            %1 = stablehlo.constant dense<2.0> : tensor<f32>
            stablehlo.return %1 : tensor<f32>
          }) : (tensor<i32>) -> tensor<f32>
          return %0 : tensor<f32>
        }
        """
    )
    (choice,) = [i for i in instructions(program) if i.opcode == "conditional"]
    assert [str(program.entry_computation[index].shape) for index in choice.operands] == ["s32[]", "(f32[], f32[])", "f32[]", "()"]
    assert [call.role for call in choice.calls] == ["branch_computations"] * 3


def test_reductions_have_a_computation_in_either_form() -> None:
    arguments = "%arg0: tensor<4xf32>, %x: tensor<4x8xf32>, %i: tensor<4x8xi32>, %z: tensor<f32>, %k: tensor<i32>"
    short = main(
        "%0 = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [1] "
        ": (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>",
        "return %0 : tensor<4xf32>",
        arguments=arguments,
    )
    reduce = short.entry_computation.root_instruction
    assert (reduce.opcode, reduce.dimensions, reduce.operands) == ("reduce", (1,), (1, 3))
    assert short.computations[reduce.called("to_apply")[0]].root_instruction.opcode == "maximum"
    both = main(
        "%0:2 = stablehlo.reduce(%x init: %z), (%i init: %k) across dimensions = [1] : "
        "(tensor<4x8xf32>, tensor<4x8xi32>, tensor<f32>, tensor<i32>) -> (tensor<4xf32>, tensor<4xi32>)",
        " reducer(%a: tensor<f32>, %c: tensor<f32>) (%b: tensor<i32>, %d: tensor<i32>) {",
        "  %1 = stablehlo.add %a, %c : tensor<f32>",
        "  stablehlo.return %1, %b : tensor<f32>, tensor<i32>",
        "}",
        "return %0#0 : tensor<4xf32>",
        arguments=arguments,
    )
    (reduce,) = [i for i in both.entry_computation if i.opcode == "reduce"]
    # Inputs, then initial values; the reducer takes both left sides, then both right sides.
    assert (reduce.operands, str(reduce.shape)) == ((1, 2, 3, 4), "(f32[4], s32[4])")
    inner = both.computations[reduce.called("to_apply")[0]]
    assert [str(inner[index].shape) for index in inner.parameters] == ["f32[]", "s32[]", "f32[]", "s32[]"]


@every(
    "text",
    [
        "%0 = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [HIGHEST, DEFAULT], "
        "algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, "
        "rhs_component_count = 1, num_primitive_operations = 3, allow_imprecise_accumulation = false> : "
        "(tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>",
        '%0 = "stablehlo.dot_general"(%x, %y) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], '
        "rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>, "
        "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision DEFAULT>], algorithm = #stablehlo.dot_algorithm<"
        "lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, "
        "rhs_component_count = 1, num_primitive_operations = 3, allow_imprecise_accumulation = false>}> : "
        "(tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>",
    ],
)
def test_dots_in_pretty_and_generic_form(text: str) -> None:
    dot = last(text, arguments="%arg0: tensor<4xf32>, %x: tensor<2x3x4xf32>, %y: tensor<2x4x5xf32>")
    assert (dot.opcode, dot.dot) == ("dot", DotDimensions(lhs_contracting=(2,), rhs_contracting=(1,), lhs_batch=(0,), rhs_batch=(0,)))
    assert (dot.operand_precision, dot.word("algorithm")) == (("highest", "default"), "dot_bf16_bf16_f32_x3")


def test_convolutions_know_their_window_from_the_kernel() -> None:
    convolution = last(
        "%0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 1], "
        "pad = [[1, 2], [0, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 2], reverse = [false, true]} {batch_group_count = 1 : i64, "
        "feature_group_count = 2 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : "
        "(tensor<2x9x9x8xf32>, tensor<3x5x4x12xf32>) -> tensor<2x5x2x12xf32>",
        arguments="%arg0: tensor<4xf32>, %x: tensor<2x9x9x8xf32>, %w: tensor<3x5x4x12xf32>",
    )
    assert convolution.window == (WindowDimension(3, 2, 1, 2, 1, 1, False), WindowDimension(5, 1, 0, 1, 1, 2, True))
    assert (convolution.feature_group_count, convolution.operand_precision) == (2, ())


def test_collectives_under_shard_map_are_priced_on_the_shards() -> None:
    program = module("shard_map_collectives.stablehlo")
    (call,) = [i for i in program.entry_computation if i.opcode == "call"]
    inside = program.computations[call.called("to_apply")[0]]
    # A 2 x 4 mesh over 16 x 32 leaves 8 x 8 on a device.
    assert str(inside[inside.parameters[0]].shape) == "f32[8,8]"
    gather, scatter = (next(i for i in inside if i.opcode == opcode) for opcode in ("all-gather", "reduce-scatter"))
    assert gather.replica_groups is not None
    assert gather.replica_groups.groups == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert (gather.dimensions, scatter.dimensions, scatter.called("to_apply") != ()) == ((1,), (0,), True)
    assert (program.num_partitions, program.replica_count) == (8, 1)


def test_shardings_of_both_kinds_are_kept() -> None:
    program = parse(
        """
        module @m attributes {mhlo.num_partitions = 2 : i32} {
          sdy.mesh @mesh = <["x"=2]>
          func.func public @main(%a: tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}", tf.aliasing_output = 0 : i32},
                                 %b: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
              -> (tensor<4xf32> {jax.result_info = ""}) {
            %0 = sdy.sharding_constraint %a <@mesh, [{"x"}]> : tensor<4xf32>
            %1 = stablehlo.add %0, %b {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>} : tensor<4xf32>
            return %1 : tensor<4xf32>
          }
        }
        """
    )
    a, b, constraint, add = program.entry_computation
    assert (a.word("sharding"), b.word("sharding")) == ("{devices=[2]<=[2]}", '#sdy.sharding<@mesh, [{"x"}]>')
    assert (constraint.opcode, constraint.custom_call_target, constraint.word("sharding")) == (
        "custom-call",
        "Sharding",
        '<@mesh, [{"x"}]>',
    )
    assert add.word("sharding") == '#sdy.sharding_per_value<[<@mesh, [{"x"}]>]>'
    assert program.aliases == (Alias((0,), 0),)


def test_custom_calls_keep_target_configuration_and_computations() -> None:
    call = last(
        '%0 = stablehlo.custom_call @kernel(%arg0) {backend_config = "", has_side_effect = true, '
        'mhlo.backend_config = {name = "k", scale = 2.0 : f32, sizes = array<i64: 1, 2>}} : (tensor<4xf32>) -> tensor<4xf32>'
    )
    assert (call.custom_call_target, call.flag("custom_call_has_side_effect")) == ("kernel", True)
    assert backend_config(call) == {"name": "k", "scale": 2.0, "sizes": [1, 2]}
    old = last(
        r'%0 = stablehlo.custom_call @tpu_custom_call(%arg0) {backend_config = "{\22cost\22: {\22flops\22: 12}}"} '
        ": (tensor<4xf32>) -> tensor<4xf32>"
    )
    assert backend_config(old) == {"cost": {"flops": 12}}


@every(
    ("text", "values"),
    [
        ("dense<[1.0, 0x7F800000, -2.5, 0.0]> : tensor<4xf32>", (1.0, float("inf"), -2.5, 0.0)),
        ("dense<7> : tensor<2x2xi8>", (7, 7, 7, 7)),
        ("dense<[true, false]> : tensor<2xi1>", (True, False)),
        ("dense<(1.0,-2.0)> : tensor<complex<f32>>", (1 - 2j,)),
        ("dense<0x3F80> : tensor<bf16>", (1.0,)),
        ('dense<"0x000102">  : tensor<3xi8>', (0, 1, 2)),
        ("dense_resource<big> : tensor<1000xf32>", None),
    ],
)
def test_constants_can_be_read_in_every_spelling(text: str, values: tuple[object, ...] | None) -> None:
    assert last(f"%0 = stablehlo.constant {text}").literal == values


def test_locations_give_op_names_and_call_stacks() -> None:
    program = module("locations.located.stablehlo")
    (add,) = [i for i in program.entry_computation if i.opcode == "add"]
    assert add.op_name == "jit(locations)/outer/inner/add"
    assert [frame.function for frame in program.trace(add)] == ["locations", "forms", "main", "<module>"]
    assert program.location(add).endswith("make.py:" + str(program.trace(add)[0].line))


def test_several_results_are_elements_of_a_tuple() -> None:
    program = module("sort_topk.stablehlo")
    (topk,) = [i for i in program.entry_computation if i.opcode == "topk"]
    assert (topk.integer("k"), str(topk.shape)) == (5, "(f32[4,5], s32[4,5])")
    elements = [
        i for i in program.entry_computation if i.opcode == "get-tuple-element" and program.entry_computation[i.operands[0]] is topk
    ]
    assert [i.integer("index") for i in elements] == [0, 1]


def test_unknown_sizes_stay_unknown() -> None:
    program = module("symbolic_shapes.stablehlo")
    assert program.entry_computation[program.entry_computation.parameters[0]].shape.dims == (UNBOUNDED, 4)


def test_functions_are_computations_shared_by_their_callers() -> None:
    program = module("locations.located.stablehlo")
    calls = [i.calls for i in program.entry_computation if i.opcode == "call"]
    assert calls == [(Call("to_apply", 0),), (Call("to_apply", 0),)]
    assert program.computations[0].name == "helper"


def test_a_module_in_generic_form_is_the_same() -> None:
    program = parse(
        '"builtin.module"() <{sym_name = "m"}> ({\n'
        ' "func.func"() <{function_type = (tensor<4xf32>) -> tensor<4xf32>, sym_name = "main"}> ({\n'
        '  ^bb0(%arg0: tensor<4xf32>):\n   %0 = "stablehlo.add"(%arg0, %arg0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>\n'
        '   "func.return"(%0) : (tensor<4xf32>) -> ()\n }) : () -> ()\n}) : () -> ()\n'
    )
    assert (program.name, [i.opcode for i in program.entry_computation]) == ("m", ["parameter", "add"])


@every(
    ("lines", "complaint"),
    [
        (["%0 = stablehlo.add %q, %arg0 : tensor<4xf32>"], "'%q' is not defined"),
        (["%arg0 = stablehlo.abs %arg0 : tensor<4xf32>"], "second value"),
        (["%0 = stablehlo.convert : (tensor<4xbf16>) -> tensor<4xf32>"], "'convert.0' is convert with 0 operands, where it needs 1"),
        (["%0 = stablehlo.abs %arg0 : tensor<4xzz>"], "element type"),
        (["%0 = stablehlo.abs %arg0 : tensor<99999999999x99999999999xf32>"], "more elements"),
        (["%0 = func.call @nowhere(%arg0) : (tensor<4xf32>) -> tensor<4xf32>"], "no function is named"),
        (["%0 = func.call @main(%arg0) : (tensor<4xf32>) -> tensor<4xf32>"], "calls itself"),
        (['"stablehlo.case"(%arg0) ({' * 2000], "nested deeper"),
        (["%0 = stablehlo.constant dense<" + "[" * 5000], "unmatched"),
        (["%0 = stablehlo.abs %arg0 {a = " + "[" * 5000 + "]" * 5000 + "} : tensor<4xf32>"], "nested deeper"),
        (['%0 = stablehlo.constant dense<"0x00> : tensor<4xf32>'], "unterminated"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(lines: list[str], complaint: str) -> None:
    with pytest.raises(SourceError, match=complaint) as caught:
        main(*lines, "return %arg0 : tensor<4xf32>")
    assert str(caught.value).startswith("m.mlir: line ")
    assert "\n" not in str(caught.value)


def test_the_form_is_found_by_content() -> None:
    forms = {"stablehlo": MappedDialect, "hlo": TextDialect, "pb": ProtoDialect, "before.hlo": TextDialect}
    for ending, dialect in forms.items():
        assert isinstance(parse(load(f"scan_layers.{ending}")).entry_computation[0].dialect, dialect)
    assert isinstance(parse(load("scan_layers.hlo").decode()).entry_computation[0].dialect, TextDialect)


def test_operations_go_on_in_the_next_line_after_a_comma_or_before_a_name() -> None:
    program = parse(
        """#sparse = #other.encoding<{
  map = (d0, d1) -> (d0 : dense, d1 : compressed)
}>
func.func @f(%x: tensor<2x8x8x3xf32>, %k: tensor<3x3x3x4xf32>, %u: tensor<*xf32>, %q: tensor<4x!quant.uniform<u8:f32, 1.0>>)
    -> tensor<2x6x6x4xf32> {
  %0 = stablehlo.convolution(%x, %k)
         dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
         window = {stride = [1, 1]}
         {batch_group_count = 1 : i64,
          feature_group_count = 1 : i64}
       : (tensor<2x8x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<2x6x6x4xf32>
  %1 = "stablehlo.convolution"(%x, %k) {batch_group_count = 1 : i64, feature_group_count = 1 : i64,
    dimension_numbers = #stablehlo.conv<raw
      input_batch_dimension = 0, input_feature_dimension = 3, input_spatial_dimensions = [1, 2],
      kernel_input_feature_dimension = 2, kernel_output_feature_dimension = 3, kernel_spatial_dimensions = [0, 1],
      output_batch_dimension = 0, output_feature_dimension = 3, output_spatial_dimensions = [1, 2]>
  } : (tensor<2x8x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<2x6x6x4xf32>
  other.check %0, %1 : tensor<2x6x6x4xf32>, tensor<2x6x6x4xf32> {tolerance = 0.1 : f64}
  func.return %1 :
    tensor<2x6x6x4xf32>
}"""
    )
    *parameters, pretty, raw, check = program.entry_computation
    assert [str(parameter.shape) for parameter in parameters[2:]] == ["f32[?]", "u8[4]"]
    assert raw.convolution == pretty.convolution
    assert (raw.window, check.operands) == (pretty.window, (4, 5))
    assert program.entry_computation.root_instruction is raw


def test_every_function_that_nothing_calls_is_a_program() -> None:
    def function(name: str, body: str = "", words: str = "") -> str:
        return f"func.func {words} @{name}(%x: tensor<f32>) -> tensor<f32> {{\n {body}\n return %x : tensor<f32>\n}}\n"

    called = "%y = func.call @helper(%x) : (tensor<f32>) -> tensor<f32>"
    text = function("one", called) + function("helper") + function("two") + function("mine", words="private")
    assert [module.name for module in parse_all(text)] == ["one", "two"]
    assert [module.name for module in parse_all(f"module @m {{\n{function('main')}}}\nmodule @n {{\n{function('run')}}}")] == ["m", "n"]
    assert [module.name for module in parse_all(f"{function('one')}// -----\n{function('one')}")] == ["one", "one"]
    with pytest.raises(SourceError, match=r"x.mlir: 2 programs in one file \(one, two\)"):
        parse(text, "x.mlir")
    with pytest.raises(SourceError, match=r"x\.mlir: functions are declared but none has a body"):
        parse("func.func private @f(tensor<f32>) -> tensor<f32>", "x.mlir")


def test_groups_of_more_than_a_hundred_devices_are_read_from_their_bytes() -> None:
    stored = b"".join(device.to_bytes(8, "little") for device in range(128)).hex().upper()
    reduced = last(
        f'%0 = "stablehlo.all_reduce"(%arg0) <{{replica_groups = dense<"0x{stored}"> : tensor<2x64xi64>}}> ({{',
        "^bb0(%a: tensor<f32>, %b: tensor<f32>):",
        "  %s = stablehlo.add %a, %b : tensor<f32>",
        "  stablehlo.return %s : tensor<f32>",
        "}) : (tensor<4xf32>) -> tensor<4xf32>",
    )
    assert reduced.attribute("replica_groups") == ReplicaGroups.of_lists((tuple(range(64)), tuple(range(64, 128))))


def test_a_configuration_is_found_however_it_is_spaced() -> None:
    called = last(
        '%0 = "stablehlo.custom_call"(%arg0) {call_target_name="f", backend_config={bar = 42 : i32}} : (tensor<4xf32>) -> tensor<4xf32>'
    )
    assert backend_config(called) == {"bar": 42}


def test_a_product_along_dimensions_that_its_operand_has_not_is_an_error() -> None:
    with pytest.raises(SourceError, match=r"m\.mlir: line 4: a product along dimensions \(3,\) of an operand with 2"):
        last(
            "%0 = stablehlo.dot_general %arg0, %arg0, contracting_dims = [1] x [3] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>",
            arguments="%arg0: tensor<4x4xf32>",
        )


def test_a_loop_with_more_results_than_it_carries_is_an_error() -> None:
    with pytest.raises(SourceError, match="while has 1 results, but 2 are named"):
        last(
            '%0:2 = "stablehlo.while"(%arg0) ({',
            "^bb0(%a: tensor<4xf32>):",
            "  %c = stablehlo.constant dense<true> : tensor<i1>",
            "  stablehlo.return %c : tensor<i1>",
            "}, {",
            "^bb0(%b: tensor<4xf32>):",
            "  stablehlo.return %b : tensor<4xf32>",
            "}) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)",
        )
