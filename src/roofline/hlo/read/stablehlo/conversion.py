"""StableHLO operations in HLO's terms: the opcode, and the attributes under the names HLO text gives them."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from ...ir.attributes import ConvolutionDimensions, OperandAlias, PadRange, ReplicaGroups, SliceRange, Window, WindowDimension
from ...ir.malformed import Malformed, excerpt
from ...ir.shapes import Shape, whole
from ..lexing import split
from ..mlir.elements import Elements
from ..mlir.operations import Operation
from ..mlir.scanning import end_of_nest, symbol
from ..text_attributes import parse_dim_labels
from .numbers import literal, number, numbers
from .properties import GATHER, SCATTER

# Operations whose HLO opcode is not their own name with dashes. Operations that HLO does not have keep their name.
OPCODES = {
    "dot_general": "dot",
    "broadcast_in_dim": "broadcast",
    "dynamic_broadcast_in_dim": "broadcast",
    "dynamic_reshape": "reshape",
    "dynamic_iota": "iota",
    "dynamic_gather": "gather",
    "dynamic_conv": "convolution",
    "dynamic_pad": "pad",
    "real_dynamic_slice": "slice",
    "optimization_barrier": "opt-barrier",
    "create_token": "after-all",
    "if": "conditional",
    "case": "conditional",
    "top_k": "topk",
    "composite": "call",
    "atan": "atan2",
    "uniform_quantize": "convert",
    "uniform_dequantize": "convert",
    "func.call": "call",
    "sdy.sharding_constraint": "custom-call",
    "sdy.reshard": "custom-call",
    "sdy.manual_computation": "call",
    "sdy.named_computation": "call",
}
DIALECTS = ("stablehlo.", "chlo.", "mhlo.")

Given = Mapping[str, object]
Reader = Callable[[Given], Given]


def opcode_of(name: str) -> str:
    """The HLO opcode of an operation; operations of foreign dialects keep their whole name.

    >>> opcode_of("stablehlo.dot_general"), opcode_of("chlo.broadcast_add"), opcode_of("arith.addi")
    ('dot', 'add', 'arith.addi')
    """
    for dialect in DIALECTS:
        if name.startswith(dialect):
            short = name.removeprefix(dialect)
            if dialect == "chlo.":
                short = short.removeprefix("broadcast_")
            return OPCODES.get(short, short.replace("_", "-"))
    return OPCODES.get("func.call" if name == "call" else name, name)


def _first(given: Given, *names: str) -> object | None:
    return next((given[name] for name in names if name in given), None)


def _fields(given: Given, name: str) -> Given:
    """The fields of an attribute, which are attributes of their own in VHLO."""
    fields = given.get(name, given)
    if not isinstance(fields, dict):
        raise Malformed(f"{name} without fields: {excerpt(str(fields))}")
    return fields


def _dimensions(*names: str) -> Reader:
    return _one("dimensions", *names, read=numbers)


def _dot(operation: Operation, operands: list[Shape]) -> Given:
    given = operation.attributes
    if operation.name.endswith(".dot"):
        rank = operands[0].rank if operands else 0
        dimensions: dict[str, tuple[int, ...]] = {"lhs_contracting_dims": (max(rank - 1, 0),), "rhs_contracting_dims": (0,)}
    else:
        dimensions = _dot_dimensions(given)
        for side, operand in zip(("lhs", "rhs"), operands, strict=False):
            axes = (*dimensions[f"{side}_batch_dims"], *dimensions[f"{side}_contracting_dims"])
            if not all(0 <= axis < operand.rank for axis in axes):
                raise Malformed(f"a product along dimensions {axes} of an operand with {operand.rank}")
    return {**dimensions, **_precision(given)}


_DOT = {  # by the names in HLO text
    "lhs_batch_dims": "lhs_batching_dimensions",
    "rhs_batch_dims": "rhs_batching_dimensions",
    "lhs_contracting_dims": "lhs_contracting_dimensions",
    "rhs_contracting_dims": "rhs_contracting_dimensions",
}


def _dot_dimensions(given: Given) -> dict[str, tuple[int, ...]]:
    fields = dict(_fields(given, "dot_dimension_numbers"))
    for name in ("batching", "contracting"):
        pair = given.get(f"{name}_dims", ([], []))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise Malformed(f"{name}_dims that are not those of two operands: {excerpt(str(pair))}")
        fields = dict(zip((f"lhs_{name}_dimensions", f"rhs_{name}_dimensions"), pair, strict=True)) | fields
    return {name: numbers(fields.get(field, [])) for name, field in _DOT.items()}


def _precision(given: Given) -> dict[str, object]:
    attributes: dict[str, object] = {}
    listed = _first(given, "precision", "precision_config")
    if isinstance(listed, list):
        precisions = tuple(str(item).lower() for item in listed)
        if any(precision != "default" for precision in precisions):
            attributes["operand_precision"] = precisions
    algorithm = _fields(given, "algorithm")
    if "accumulation_type" in algorithm:
        attributes["algorithm"] = _dot_algorithm(algorithm)
    return attributes


def _dot_algorithm(fields: Given) -> str:
    """XLA's name of a dot's algorithm, from the fields StableHLO spells it with."""
    kinds = [str(fields.get(name, "")).lower() for name in ("lhs_precision_type", "rhs_precision_type", "accumulation_type")]
    names = ["any_f8" if kind.startswith("f8") else kind for kind in kinds]
    steps = fields.get("num_primitive_operations", 1)
    fast = "_fast_accum" if fields.get("allow_imprecise_accumulation") is True else ""
    return f"dot_{'_'.join(names)}" + (f"_x{steps}" if steps != 1 else "") + fast


def _ragged_dot(given: Given) -> Given:
    fields = _fields(given, "ragged_dot_dimension_numbers")
    names = {**_DOT, "lhs_ragged_dims": "lhs_ragged_dimensions", "rhs_group_dims": "rhs_group_dimensions"}
    return {**{name: numbers(fields.get(field, [])) for name, field in names.items()}, **_precision(given)}


def _labels(given: Given) -> ConvolutionDimensions:
    labels = _first(given, "dim_numbers", "dimension_numbers")
    if isinstance(labels, tuple) and len(labels) == 3:
        source, kernel, result = ("".join(map(str, part)) for part in labels)
        return parse_dim_labels(f"{source}_{kernel}->{result}")
    fields = _fields(given, "dimension_numbers")
    dimensions: dict[str, Any] = {}
    for name in ConvolutionDimensions.__struct_fields__:
        is_list = name.endswith("_spatial")
        dimensions[name] = numbers(fields.get(f"{name}_dimensions", [])) if is_list else number(fields.get(f"{name}_dimension"))
    return ConvolutionDimensions(**dimensions)


def _convolution(given: Given, operands: list[Shape]) -> Given:
    labels = _labels(given)
    window = given.get("window")
    inner: Given = window if isinstance(window, dict) else given
    rank = len(labels.kernel_spatial)
    kernel = operands[1] if len(operands) > 1 else None
    if kernel is None or not all(0 <= axis < kernel.rank for axis in labels.kernel_spatial):
        raise Malformed("a convolution whose kernel has no such dimensions")
    sizes = tuple(kernel.dims[axis] for axis in labels.kernel_spatial)
    return {
        "dim_labels": labels,
        "window": _window(
            sizes,
            _listed(inner, 1, rank, "stride", "window_strides"),
            _listed(inner, 0, 2 * rank, "pad", "padding"),
            _listed(inner, 1, rank, "lhs_dilate", "lhs_dilation"),
            _listed(inner, 1, rank, "rhs_dilate", "rhs_dilation"),
            _listed(inner, 0, rank, "reverse", "window_reversal"),
        ),
        "feature_group_count": number(given.get("feature_group_count", 1)),
        "batch_group_count": number(given.get("batch_group_count", 1)),
        **_precision(given),
    }


def _listed(given: Given, default: int, count: int, *names: str) -> tuple[int, ...]:
    value = _first(given, *names)
    listed = numbers(value) if value is not None else ()
    if not listed:
        return (default,) * count
    if len(listed) != count:
        raise Malformed(f"{names[0]} has {len(listed)} entries where the window has {count}")
    return listed


def _window(sizes: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...], *more: tuple[int, ...]) -> Window:
    """A window from its sizes, strides and paddings, dilations of base and window, and reversals, of all dimensions."""
    base, window, turned = more
    return tuple(map(WindowDimension, sizes, strides, pads[::2], pads[1::2], base, window, map(bool, turned)))


def _reduce_window(given: Given) -> Given:
    sizes = numbers(given.get("window_dimensions", []))
    rank = len(sizes)
    return {
        "window": _window(
            sizes,
            _listed(given, 1, rank, "window_strides"),
            _listed(given, 0, 2 * rank, "padding"),
            _listed(given, 1, rank, "base_dilations"),
            _listed(given, 1, rank, "window_dilations"),
            (0,) * rank,
        )
    }


def _numbered(attribute: str, names: str) -> Reader:
    """Gather and scatter: dimension numbers under the same names as in HLO text."""

    def read(given: Given) -> Given:
        fields = _fields(given, attribute)
        attributes: dict[str, object] = {name: listed for name in names.split() if (listed := numbers(fields.get(name, [])))}
        attributes["index_vector_dim"] = number(fields.get("index_vector_dim", 0))
        if "slice_sizes" in given:
            attributes["slice_sizes"] = numbers(given["slice_sizes"])
        return {**attributes, **{name: True for name in ("indices_are_sorted", "unique_indices") if given.get(name) is True}}

    return read


def _slice(given: Given) -> Given:
    ranges = given.get("[")
    if isinstance(ranges, str):
        bounds_of_axes = [tuple(whole(bound) for bound in item.split(":")) for item in split(ranges[1:-1])]
        if any(len(bounds) not in (2, 3) for bounds in bounds_of_axes):
            raise Malformed(f"not ranges: {excerpt(ranges)}")
        return {"slice": tuple(SliceRange(*bounds) for bounds in bounds_of_axes)}
    if "start_indices" not in given:
        return {}
    starts, limits = numbers(given["start_indices"]), numbers(given.get("limit_indices", []))
    strides = numbers(given.get("strides", [])) or (1,) * len(starts)
    if not len(starts) == len(limits) == len(strides):
        raise Malformed("a slice whose starts, limits and strides differ in number")
    return {"slice": tuple(map(SliceRange, starts, limits, strides))}


def _pad(given: Given) -> Given:
    names = (("low", "edge_padding_low"), ("high", "edge_padding_high"), ("interior", "interior_padding"))
    low, high, interior = (numbers(_first(given, *pair) or []) for pair in names)
    if not len(low) == len(high) == len(interior):
        raise Malformed("a padding whose low, high and interior differ in number")
    return {"padding": tuple(map(PadRange, low, high, interior))}


def _groups(value: object) -> ReplicaGroups | None:
    """``dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>``; groups smaller than the others are padded with -1."""
    if not isinstance(value, Elements):
        return None
    sizes, flat = value.type.dims, numbers(value)
    if len(sizes) != 2 or len(flat) != sizes[0] * sizes[1]:
        return ReplicaGroups.of_lists((flat,) if flat else ())
    rows = [flat[start : start + sizes[1]] for start in range(0, len(flat), max(sizes[1], 1))]
    return ReplicaGroups.of_lists(tuple(tuple(device for device in row if device >= 0) for row in rows))


def _collective(given: Given) -> Given:
    attributes: dict[str, object] = {}
    if "replica_groups" in given:
        attributes["replica_groups"] = _groups(given["replica_groups"])
    if "channel_handle" in given:
        attributes["channel_id"] = number(_fields(given, "channel_handle").get("handle", 0))
    elif "channel_id" in given:
        attributes["channel_id"] = number(given["channel_id"])
    if given.get("use_global_device_ids") is True:
        attributes["use_global_device_ids"] = True
    dimension = _first(given, "all_gather_dim", "scatter_dimension", "split_dimension")
    if dimension is not None:
        attributes["dimensions"] = numbers(dimension)
    pairs = given.get("source_target_pairs")
    if isinstance(pairs, Elements):
        flat = numbers(pairs)
        attributes["source_target_pairs"] = tuple(zip(flat[::2], flat[1::2], strict=False))
    return attributes


_CONFIG = re.compile(r"\bbackend_config\s*=\s*(?=\{)")


def _custom_call(operation: Operation) -> Given:
    given = operation.attributes
    target = next((symbol(name) for name in operation.words if name.startswith("@")), str(given.get("call_target_name", "")))
    attributes: dict[str, object] = {"custom_call_target": target.removeprefix("@")}
    config = given.get("backend_config")
    at = _CONFIG.search(operation.text)
    if at is not None and (given.get("mhlo.backend_config") or config):
        attributes["backend_config"] = operation.text[at.end() : end_of_nest(operation.text, at.end())]
    elif config:
        attributes["backend_config"] = str(config)
    if given.get("has_side_effect") is True:
        attributes["custom_call_has_side_effect"] = True
    listed = given.get("output_operand_aliases")
    aliases = [_operand_alias(alias) for alias in listed if isinstance(alias, dict)] if isinstance(listed, list) else []
    if aliases:
        attributes["output_to_operand_aliasing"] = tuple(aliases)
    return attributes


def _operand_alias(fields: Given) -> OperandAlias:
    output, operand, index = (fields.get(name, []) for name in ("output_tuple_indices", "operand_index", "operand_tuple_indices"))
    return OperandAlias(numbers(output), number(operand), numbers(index))


def _triangular_solve(given: Given) -> Given:
    flags: dict[str, object] = {name: True for name in ("left_side", "lower", "unit_diagonal") if given.get(name) is True}
    return {**flags, "transpose_a": given.get("transpose_a", "NO_TRANSPOSE")}


_FORMAT = re.compile(r"e(\d+)m(\d+)")


def _reduce_precision(given: Given) -> Given:
    match = _FORMAT.fullmatch(str(given.get("format", "")))
    exponent, mantissa = (match[1], match[2]) if match else (given.get("exponent_bits", 0), given.get("mantissa_bits", 0))
    return {"exponent_bits": whole(str(exponent)), "mantissa_bits": whole(str(mantissa))}


def _one(name: str, *names: str, read: Callable[[object], object] = number) -> Reader:
    """A single attribute under another name."""

    def reader(given: Given) -> Given:
        value = _first(given, *names)
        return {} if value is None else {name: read(value)}

    return reader


def _is_true(value: object) -> bool:
    return value is True


def _rng_word(value: object) -> str:
    return f"rng_{str(value).lower()}"


def _sort(given: Given) -> Given:
    return {**_dimensions("dimension")(given), **_one("is_stable", "is_stable", read=_is_true)(given)}


def _fft(given: Given) -> Given:
    return {**_one("fft_type", "type", "fft_type", read=str)(given), **_one("fft_length", "length", "fft_length", read=numbers)(given)}


_COLLECTIVES = "all-reduce all-gather all-to-all reduce-scatter collective-permute collective-broadcast ragged-all-to-all"
READERS: dict[str, Reader] = {  # of operations whose attributes say all
    "ragged-dot": _ragged_dot,
    "broadcast": _dimensions("dims", "broadcast_dimensions"),
    "transpose": _dimensions("dims", "permutation"),
    "concatenate": _dimensions("dim", "dimension"),
    "reverse": _dimensions("dims", "dimensions"),
    "reduce": _dimensions("dimensions"),
    "map": _dimensions("dimensions"),
    "get-dimension-size": _dimensions("dim", "dimension"),
    "set-dimension-size": _dimensions("dim", "dimension"),
    "sort": _sort,
    "iota": _one("iota_dimension", "dim", "iota_dimension"),
    "reduce-window": _reduce_window,
    "select-and-scatter": _reduce_window,
    "gather": _numbered("dimension_numbers", GATHER),
    "scatter": _numbered("scatter_dimension_numbers", SCATTER),
    "slice": _slice,
    "dynamic-slice": _one("dynamic_slice_sizes", "sizes", "slice_sizes", read=numbers),
    "pad": _pad,
    "fft": _fft,
    "cholesky": _one("lower", "lower", read=_is_true),
    "triangular-solve": _triangular_solve,
    "rng": _one("distribution", "distribution", "rng_distribution", read=_rng_word),
    "rng-bit-generator": _one("algorithm", "algorithm", "rng_algorithm", read=_rng_word),
    "reduce-precision": _reduce_precision,
    "get-tuple-element": _one("index", "[", "index"),
    "topk": lambda given: {**_one("k", "k")(given), "largest": True},
    **dict.fromkeys(_COLLECTIVES.split(), _collective),
}


def _own_attributes(operation: Operation, opcode: str, operands: list[Shape], results: list[Shape]) -> Given:
    """The attributes that only operations of this kind have."""
    given = operation.attributes
    if opcode == "custom-call":
        if operation.name.startswith("sdy."):
            return {"custom_call_target": "Sharding", "sharding": str(_first(given, "<", "sharding") or "").removeprefix("#sdy.sharding")}
        return _custom_call(operation)
    if opcode == "compare":
        return {"direction": given.get("comparison_direction", next((word for word in operation.words if word.isupper()), ""))}
    if opcode == "constant":
        return {"literal": literal(given.get("value"), results[0])} if results else {}
    if opcode == "convolution":
        return _convolution(given, operands)
    if opcode == "dot":
        return _dot(operation, operands)
    return READERS[opcode](given) if opcode in READERS else {}


def attributes_of(operation: Operation, opcode: str, operands: list[Shape], results: list[Shape]) -> dict[str, object]:
    """The attributes of the HLO instruction that an operation becomes."""
    given = operation.attributes
    attributes = dict(_own_attributes(operation, opcode, operands, results))
    sharding = _first(given, "mhlo.sharding", "sdy.sharding")
    if sharding is not None:
        attributes["sharding"] = str(sharding)
    for name in ("in_shardings", "out_shardings"):  # of a region that each device runs on its own part
        if name in given:
            listed = given[name]
            attributes[name] = f"#sdy.sharding_per_value<[{', '.join(map(str, listed))}]>" if isinstance(listed, list) else str(listed)
    frontend = given.get("mhlo.frontend_attributes")
    if isinstance(frontend, dict):
        attributes["frontend_attributes"] = {name: str(value) for name, value in frontend.items()}
    return attributes
