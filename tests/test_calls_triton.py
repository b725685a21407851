"""Kernels of users: Pallas through Triton and Mosaic, by their author's estimate or by their own code."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from call_sites import calls, capture, price, price_at, site, site_in
from every import every
from program_texts import program_text
from roofline.cost import Cost
from roofline.errors import FormulaError
from roofline.hlo.price.calls import price_call, price_fused_call
from roofline.hlo.price.calls.traffic import Misfit
from roofline.hlo.price.calls.triton import _code
from roofline.hlo.price.calls.triton_ir import kernel_work, read_triton
from roofline.hlo.price.mosaic.code import Block, Operation, Type
from roofline.hlo.price.types import Site
from roofline.hlo.read import parse

DATA = Path(__file__).parent / "data"
ESTIMATE = '"cost_estimate":{"flops":%d,"transcendentals":%d,"bytes_accessed":%d}'


def test_a_tpu_kernel_costs_what_its_author_says() -> None:
    config = '{"custom_call_config":{"body":"TUzvUg==",' + ESTIMATE % (2 * 512 * 256 * 128, 7, 1000) + "}}"
    found = price("bf16[512,128]", "bf16[512,256]; bf16[256,128]", "tpu_custom_call", config, platform="tpu")
    # 64 FLOP for each of the arrays' elements: a product, in the operands' format.
    assert (found.cost["matrix/bf16"], found.cost["vector/transcendental"], found.cost["hbm"]) == (2 * 512 * 256 * 128, 7, 1000)
    assert "its author's cost estimate" in found.notes


def test_an_estimate_of_a_few_flop_an_element_is_elementwise_work() -> None:
    config = '{"custom_call_config":{' + ESTIMATE % (3 * 1024, 0, 12 * 1024) + "}}"
    found = price("f32[1024]", "f32[1024]; f32[1024]", "tpu_custom_call", config, platform="tpu")
    assert (found.cost["vector/fp32"], found.cost.known("matrix/fp32")) == (3 * 1024, 0)


def test_estimated_bytes_lie_where_the_arrays_do() -> None:
    config = '{"custom_call_config":{' + ESTIMATE % (0, 0, 3000) + "}}"
    found = price("f32[64]{0:S(1)}", "f32[64]{0}; f32[64]{0:S(1)}", "tpu_custom_call", config, platform="tpu")
    # A third each: one array in HBM, one read from VMEM, one written there.
    assert [found.cost[level] for level in ("hbm", "vmem.read", "vmem.write")] == [1000, 1000, 1000]


def test_bytes_sent_to_other_chips_are_link_bytes() -> None:
    config = '{"custom_call_config":{"cost_estimate":{"flops":0,"bytes_accessed":8,"remote_bytes_transferred":4096}}}'
    assert price("f32[64]", "f32[64]", "tpu_custom_call", config, platform="tpu").cost["ici"] == 4096


def test_a_kernel_without_estimate_moves_its_arrays_and_computes_what_nobody_knows() -> None:
    for target in ("tpu_custom_call", "mosaic_gpu_v2", "__gpu$xla.gpu.triton", "triton_kernel_call"):
        found = price("f32[64]", "f32[64]; f32[32]", target, platform="tpu")
        assert (found.cost.flops, found.cost["hbm"]) == (None, 4 * 160)


def test_an_estimate_that_makes_no_sense_is_unknown() -> None:
    config = '{"custom_call_config":{"cost_estimate":{"flops":-1,"bytes_accessed":8}}}'
    assert price("f32[64]", "f32[64]", "tpu_custom_call", config, platform="tpu").cost.flops is None


def test_stablehlo_carries_the_same_configuration() -> None:
    text = program_text("calls_triton/stablehlo_carries_the_same_configuration.mlir")
    module = parse(text)
    call = next(one for one in module.entry_computation if one.opcode == "custom-call")
    found = price_at(Site(module, module.entry_computation, call, "tpu"))
    assert (found.cost["matrix/bf16"], found.cost["hbm"]) == (33554432, 458752)


def test_a_pallas_kernel_for_triton_is_counted_from_its_ir() -> None:
    # exp(x·y) + x over 65,536 elements of bf16: a multiply, an add, an exp; x, y read and the result written.
    found = calls("pallas_triton")["pallas_call.1"]
    assert (found.cost["vector/bf16"], found.cost["vector/transcendental"], found.cost["hbm"]) == (2 * 65536, 65536, 3 * 2 * 65536)


def test_a_pallas_product_for_triton_runs_on_the_matrix_unit() -> None:
    # 8 x 6 programs of 64 x 256 times 256 x 64.
    assert calls("pallas_triton_matmul")["pallas_call.1"].cost["matrix/bf16"] == 2 * 512 * 256 * 384


def test_a_function_of_the_device_library_is_counted_by_its_name() -> None:
    # x·sigmoid(x) over blocks of 8,192: an exp (__nv_expf), an add, a divide and a subtraction (0 − x) in fp32, a product in bf16.
    work, masked = kernel_work(*read_triton((DATA / "pallas_silu.mlirbc").read_bytes()), 6144)
    size = 6144 * 8192
    assert (work["vector/transcendental"], work["vector/fp32"], work["vector/bf16"], masked) == (size, 3 * size, size, False)


@every(
    ("symbol", "cost"),
    [
        ("__nv_expf", {"vector/transcendental": 2048}),
        ("__nv_erff", {"vector/transcendental": 2048}),
        ("__nv_erf", {"vector/transcendental": 2048}),
        ("__nv_fast_expf", {"vector/transcendental": 2048}),
        ("__ocml_tanh_f32", {"vector/transcendental": 2048}),
        ("__nv_powf", {"vector/transcendental": 2048}),
        ("__nv_fmaf", {"vector/fp32": 4096}),
    ],
)
def test_library_functions_cost_what_their_operations_do(symbol: str, cost: dict[str, int]) -> None:
    call = Draft("tt.extern_elementwise", ((1, F32),), ((9, F32),), settings={"words": ["libdevice", symbol]})
    assert work_of(LOAD, call, STORE)[0] == Cost.of(cost)


@every("words", [(), ("libdevice",), ("__nv_j0f",), ("__nv_expf", "__nv_logf")])
def test_a_library_function_nobody_knows_makes_the_kernel_unknown(words: tuple[str, ...]) -> None:
    call = Draft("tt.extern_elementwise", ((1, F32),), ((9, F32),), settings={"words": [*words]})
    with pytest.raises(Misfit, match="library"):
        work_of(LOAD, call, STORE)


F32, I32, INDEX = Type("f32", (64, 32)), Type("i32"), Type("i32")
POINTERS = Type("!tt.ptr<f32>", (64, 32))


class Draft(NamedTuple):
    """An operation of values with their types, its settings, and the operations of its region."""

    name: str
    operands: tuple[tuple[int, Type], ...] = ()
    results: tuple[tuple[int, Type], ...] = ()
    settings: dict[str, Any] | None = None
    region: "tuple[Draft, ...]" = ()

    def built(self, types: dict[int, Type]) -> Operation:
        types.update((*self.operands, *self.results))
        regions = ((Block((), tuple(inner.built(types) for inner in self.region)),),) if self.region else ()
        numbers = (tuple(number for number, _ in values) for values in (self.operands, self.results))
        return Operation(self.name, *numbers, self.settings or {}, regions)


def work_of(*drafts: Draft, programs: int = 1) -> tuple[Cost, bool]:
    """The work of a module of one function that runs these operations."""
    function = Draft("tt.func", region=(*drafts, Draft("tt.return")))
    types: dict[int, Type] = {}
    module = Draft("builtin.module", region=(function,)).built(types)
    return kernel_work(Block((), (module,)), types, programs)


LOAD = Draft("tt.load", ((0, POINTERS),), ((1, F32),))
STORE = Draft("tt.store", ((0, POINTERS), (9, F32)))


def constant(number: int, value: int) -> Draft:
    return Draft("arith.constant", (), ((number, I32),), {"constants": [value]})


def test_a_loop_counts_its_trips() -> None:
    body = (Draft("arith.mulf", ((11, F32), (1, F32)), ((12, F32),)), Draft("scf.yield", ((12, F32),), ()))
    loop = Draft("scf.for", ((2, I32), (4, I32), (3, I32), (1, F32)), ((9, F32),), region=body)
    bounds = (constant(2, 0), constant(5, 6), constant(3, 2), Draft("arith.muli", ((5, I32), (3, I32)), ((4, I32),)))
    work, masked = work_of(LOAD, *bounds, loop, STORE, programs=10)
    # From 0 below 12 in steps of 2: six times 64 x 32 multiplies, in each of ten programs.
    assert (work["vector/fp32"], masked) == (10 * 6 * 64 * 32, False)


def test_a_loop_between_unknown_bounds_is_unknown() -> None:
    body = (Draft("scf.yield", (), ()),)
    loop = Draft("scf.for", ((2, I32), (2, I32), (2, I32)), ((9, F32),), region=body)
    start = Draft("tt.get_program_id", (), ((2, I32),), {"constants": [0]})
    with pytest.raises(FormulaError, match="without constant bounds"):
        work_of(start, loop, STORE)


def test_a_reduction_applies_its_region_once_for_each_element_but_the_first() -> None:
    one = Type("f32")
    add = (Draft("arith.addf", ((10, one), (11, one)), ((12, one),)), Draft("tt.reduce.return", ((12, one),)))
    row = Type("f32", (64,))
    reduce = Draft("tt.reduce", ((1, F32),), ((9, row),), {"constants": [1]}, region=add)
    work, _ = work_of(LOAD, reduce, Draft("tt.store", ((0, POINTERS), (9, row), (3, I32)), ()))
    assert work["vector/fp32"] == 64 * 31


def test_what_nobody_uses_and_what_computes_addresses_is_not_counted() -> None:
    unused = Draft("arith.mulf", ((1, F32), (1, F32)), ((8, F32),))
    used = Draft("math.exp", ((1, F32),), ((9, F32),))
    address = Draft("arith.muli", ((2, I32), (2, I32)), ((3, I32),))
    masked_store = Draft("tt.store", ((0, POINTERS), (9, F32), (3, I32)), ())
    work, masked = work_of(LOAD, unused, constant(2, 3), address, used, masked_store)
    assert (work["vector/transcendental"], work.flops, masked) == (64 * 32, 0, True)


@every(("precision", "unit"), [(0, "matrix/tf32"), (2, "matrix/fp32")])
def test_a_product_of_fp32_runs_as_its_precision_says(precision: int, unit: str) -> None:
    left, right, out = Type("f32", (64, 32)), Type("f32", (32, 16)), Type("f32", (64, 16))
    dot = Draft("tt.dot", ((1, left), (2, right), (3, out)), ((9, out),), settings={"options": [precision, 0]})
    work, _ = work_of(LOAD, dot, Draft("tt.store", ((0, POINTERS), (9, out)), ()))
    assert work[unit] == 2 * 64 * 32 * 16


def test_an_operation_that_nobody_counts_makes_the_kernel_unknown() -> None:
    strange = Draft("tt.elementwise_inline_asm", ((1, F32),), ((9, F32),))
    with pytest.raises(FormulaError, match="whose cost is unknown"):
        work_of(LOAD, strange, STORE)
    with pytest.raises(FormulaError, match="without floating-point"):
        work_of(LOAD, Draft("tt.store", ((0, POINTERS), (1, F32)), ()))


def bytecode() -> bytes:
    found = _code(capture("pallas_triton").entry_computation.root_instruction.backend_config_text)
    assert found is not None
    return found


@given(data=st.data())
def test_broken_bytecode_is_refused_and_never_hangs(data: st.DataObject) -> None:
    raw = bytearray(bytecode())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    del raw[data.draw(st.integers(1, len(raw))) :]
    with suppress(FormulaError):
        kernel_work(*read_triton(bytes(raw)), 1)


SLICED = program_text("calls_triton/sliced.hlo")


def test_a_call_that_a_fusion_wraps_with_slices_reads_the_slices() -> None:
    found = price_fused_call(site_in(SLICED.replace("EXTRA", "one = s32[] add(layer, layer)")))
    assert found is not None
    assert found.cost["matrix/bf16"] == 2 * 8 * 32 * 16
    # One layer of weights, not all four, and no workspace.
    assert found.cost["hbm"] == 2 * (8 * 32 + 32 * 16 + 8 * 16)


def test_a_fusion_with_work_of_its_own_is_no_wrapped_call() -> None:
    assert price_fused_call(site_in(SLICED.replace("EXTRA", "more = bf16[32,16]{1,0} add(w, w)"))) is None


def test_sparse_products_count_what_is_stored() -> None:
    # 100 stored elements, 8 columns.
    found = price("f32[16,8]", "f32[100]; s32[100]; s32[100]; f32[32,8]", "cusparse_coo_matmat_ffi")
    assert found.cost["vector/fp32"] == 2 * 100 * 8


TARGETS = st.sampled_from(
    [
        "__cublas$lt$matmul",
        "__cublas$lt$groupedMatmul",
        "__cudnn$blockScaledDot",
        "__cublas$triangularSolve",
        "__cudnn$convForward",
        "__cudnn$convBackwardInput",
        "__cudnn$convBiasActivationForward",
        "__cudnn$norm",
        "cudnn_rnn_bwd_ffi",
        "__cudnn$fmhaSoftmax",
        "__cudnn$fmhaSoftmaxBackward",
        "te_fused_attn_forward_ffi",
        "__gpu$xla.gpu.triton",
        "tpu_custom_call",
        "lapack_dgesdd_ffi",
        "lapack_dorgqr_ffi",
        "cusolver_ormqr_ffi",
        "cusparse_gtsv2_ffi",
        "cusparse_csr_matmat_ffi",
        "__onednn$matmul",
        "__onednn$convolution",
        "xla.gpu.ext.cub_scan",
        "TopK",
    ]
)
SHAPES = st.builds(
    lambda kind, dims: f"{kind}[{','.join(map(str, dims))}]",
    st.sampled_from(["f32", "bf16", "s8", "f64", "c64", "pred", "f8e4m3fn", "s32"]),
    st.lists(st.one_of(st.integers(0, 9), st.sampled_from(["?", "<=7", str(2**14)])), max_size=4),
)
VALUES = st.recursive(
    st.one_of(
        st.integers(-3, 2**70), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["1", "x", "CAUSAL"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["dimensions", "flops", "ops", "data"]), inner, max_size=2)
    ),
    max_leaves=5,
)
NAMES = (
    "gemm_backend_config dot_dimension_numbers lhs_contracting_dimensions rhs_contracting_dimensions lhs_batch_dimensions beta epilogue"
    " cudnn_conv_backend_config activation_mode serialized_graph cudnn_fmha_backend_config intermediate_tensor_shape mask_type dimensions"
    " sliding_window_length custom_call_config cost_estimate flops bytes_accessed mode side onednn_conv_config onednn_matmul_config"
    " fusions window input kernel output spatial_dims grouped_gemm_backend_config ragged_dot_dimension_numbers attn_heads grid_x"
)
ATTRIBUTES = st.sampled_from(
    [
        "",
        "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f",
        "window={size=3 stride=2 pad=-4_9 lhs_dilate=3 rhs_dilate=2}, dim_labels=b0f_0io->b0f",
        "dim_labels=b01f_01io->b01f, feature_group_count=3",
        "window={size=0x9 stride=7x1 pad=0_0x9_9}, dim_labels=bf01_oi01->bf01, operand_precision={highest,default}",
    ]
)


@given(
    target=TARGETS,
    result=SHAPES,
    operands=st.lists(SHAPES, max_size=6),
    values=st.lists(st.tuples(st.sampled_from(NAMES.split()), VALUES), max_size=6),
    attributes=ATTRIBUTES,
)
def test_any_shapes_and_any_configuration_give_a_price_and_nothing_else(
    target: str, result: str, operands: list[str], values: list[tuple[str, object]], attributes: str
) -> None:
    config: dict[str, object] = {}
    inner = config
    for name, value in values:
        # Now and then what comes next stands inside.
        inner[name] = nested = {} if value == "x" else value
        inner = nested if isinstance(nested, dict) else inner
    found = price_call(site(f"({result}, s8[4])", "; ".join(operands), target, json.dumps(config), attributes))
    assert found is not None
