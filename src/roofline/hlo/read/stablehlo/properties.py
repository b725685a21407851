"""The properties of operations in MLIR bytecode: which attributes they are, in which order.

An operation's properties are the numbers of its attributes, sorted by name; an optional one (``name?`` below) is twice the number plus one,
or 0 if absent. The lists follow the dialects' definitions (StablehloOps.td, ChloOps.td, FuncOps.td, ops of Shardy and MHLO). These dialects
are not stable between versions, so an operation may have several lists (``|``): the number of properties decides. VHLO has the attributes
of StableHLO, none of them optional, and the fields of those with fields.
"""

from functools import cache

from ...ir.malformed import Malformed
from ..mlir.bytecode import Cursor
from ..mlir.bytecode_entries import Entries
from .vhlo import ROUGH, versioned

_CONVOLUTION = (
    "batch_group_count dimension_numbers feature_group_count lhs_dilation? {}precision_config? rhs_dilation? window_reversal?"
    " window_strides?"
)
_HLO = {
    "all_gather": "all_gather_dim channel_handle? replica_groups use_global_device_ids?",
    "all_reduce": "channel_handle? replica_groups use_global_device_ids?",
    "all_to_all": "channel_handle? concat_dimension replica_groups split_count split_dimension",
    "batch_norm_grad": "epsilon feature_index",
    "batch_norm_inference": "epsilon feature_index",
    "batch_norm_training": "epsilon feature_index",
    "broadcast": "broadcast_sizes",
    "broadcast_in_dim": "broadcast_dimensions",
    "cholesky": "lower?",
    "collective_broadcast": "channel_handle? replica_groups|channel_handle? has_dynamic_root? replica_groups",
    "collective_permute": "channel_handle? source_target_pairs",
    "collective_reduce": "channel_handle? has_dynamic_root? replica_groups use_global_device_ids?",
    "compare": "compare_type? comparison_direction",
    "composite": "composite_attributes? decomposition name version?",
    "concatenate": "dimension",
    "constant": "value",
    "convolution": _CONVOLUTION.format("padding? "),
    "cross-replica-sum": "replica_groups",
    "custom_call": "api_version? backend_config? call_target_name called_computations? has_side_effect? operand_layouts?"
    " output_operand_aliases? result_layouts?|api_version? backend_config? call_target_name called_computations? has_side_effect?"
    " operand_layouts? output_operand_aliases? result_layouts? result_tilings?",
    "dot": "precision_config?",
    "dot_general": "algorithm? dot_dimension_numbers precision_config?|dot_dimension_numbers precision_config?",
    "dynamic_broadcast_in_dim": "broadcast_dimensions known_expanding_dimensions? known_nonexpanding_dimensions?",
    "dynamic_conv": f"{_CONVOLUTION.format('')}|{_CONVOLUTION.format('padding? ')}",
    "dynamic_gather": "dimension_numbers indices_are_sorted?",
    "dynamic_iota": "iota_dimension",
    "dynamic_slice": "slice_sizes",
    "einsum": "einsum_config",
    "fft": "fft_length fft_type",
    "gather": "dimension_numbers indices_are_sorted? slice_sizes",
    "get_dimension_size": "dimension",
    "get_tuple_element": "index",
    "infeed": "infeed_config? layout?",
    "iota": "iota_dimension",
    "map": "dimensions",
    "outfeed": "outfeed_config?",
    "pad": "edge_padding_high edge_padding_low interior_padding",
    "recv": "channel_handle is_host_transfer?|channel_handle is_host_transfer? source_target_pairs?",
    "reduce": "dimensions",
    "reduce_precision": "exponent_bits mantissa_bits",
    "reduce_scatter": "channel_handle? replica_groups scatter_dimension use_global_device_ids?",
    "reduce_window": "base_dilations? padding? window_dilations? window_dimensions window_strides?",
    "reverse": "dimensions",
    "rng": "rng_distribution",
    "rng_bit_generator": "rng_algorithm",
    "scatter": "indices_are_sorted? scatter_dimension_numbers unique_indices?",
    "select_and_scatter": "padding? window_dimensions? window_strides?",
    "send": "channel_handle is_host_transfer?|channel_handle is_host_transfer? source_target_pairs?",
    "set_dimension_size": "dimension",
    "slice": "limit_indices start_indices strides",
    "sort": "dimension? is_stable?",
    "torch_index_select": "batch_dims dim",
    "transpose": "permutation",
    "triangular_solve": "left_side lower transpose_a unit_diagonal",
    "unary_einsum": "einsum_config",
    **dict.fromkeys(ROUGH, "result_accuracy?|"),
}
_CHLO = {
    "broadcast_compare": "broadcast_dimensions? compare_type? comparison_direction",
    "constant": "value",
    "constant_like": "value",
    "ragged_dot": "precision_config? ragged_dot_dimension_numbers",
    "top_k": "k|is_stable? k",
}
_MHLO = {
    **_HLO,
    "all_to_all": "channel_handle? concat_dimension? replica_groups split_count? split_dimension?",
    "custom_call": "api_version? backend_config? call_target_name called_computations? custom_call_schedule? has_side_effect?"
    " operand_layouts? output_operand_aliases? result_layouts?",
    "fusion": "fusion_kind? output_operand_aliases?",
    "ragged_dot": _CHLO["ragged_dot"],
    "topk": "k largest?",
}
_SHARDY = {
    "all_gather": "gathering_axes out_sharding",
    "all_reduce": "out_sharding reduction_axes",
    "all_slice": "out_sharding slicing_axes",
    "all_to_all": "out_sharding params",
    "collective_permute": "out_sharding",
    "constant": "value",
    "manual_computation": "in_shardings manual_axes out_shardings",
    "mesh": "mesh sym_name",
    "named_computation": "in_shardings? name out_shardings?",
    "reduce_scatter": "out_sharding reduce_scatter_axes",
    "reshard": "sharding",
    "sharding_constraint": "sharding",
}
_FUNC = {
    "call": "arg_attrs? callee no_inline? res_attrs?|callee|callee no_inline?",
    "func": "arg_attrs? function_type no_inline? res_attrs? sym_name sym_visibility?"
    "|arg_attrs? function_type res_attrs? sym_name sym_visibility?",
}
# Attributes with fields, which are attributes of their own in VHLO.
GATHER = "offset_dims collapsed_slice_dims operand_batching_dims start_indices_batching_dims start_index_map index_vector_dim"
SCATTER = (
    "update_window_dims inserted_window_dims input_batching_dims scatter_indices_batching_dims scatter_dims_to_operand_dims"
    " index_vector_dim"
)
DOT = "lhs_batching_dimensions rhs_batching_dimensions lhs_contracting_dimensions rhs_contracting_dimensions"
CONVOLVED = (
    "input_batch_dimension input_feature_dimension input_spatial_dimensions kernel_input_feature_dimension"
    " kernel_output_feature_dimension kernel_spatial_dimensions output_batch_dimension output_feature_dimension"
    " output_spatial_dimensions"
)
_ALGORITHM = (
    "lhs_precision_type rhs_precision_type accumulation_type lhs_component_count rhs_component_count num_primitive_operations"
    " allow_imprecise_accumulation"
)
_FIELDS = {
    "dot_dimension_numbers": DOT,
    "algorithm?": _ALGORITHM,
    "scatter_dimension_numbers": SCATTER,
    "channel_handle": "channel_id channel_type",
    "channel_handle?": "channel_id",
}
_SECOND = ("operand_batching_dims", "start_indices_batching_dims", "input_batching_dims", "scatter_indices_batching_dims")  # of version 2
_LISTS = {
    "builtin": {"module": "sym_name? sym_visibility?"},
    "func": _FUNC,
    "stablehlo": _HLO,
    "chlo": _CHLO,
    "mhlo": _MHLO,
    "sdy": _SHARDY,
}


def properties_of(name: str, data: bytes, entries: Entries) -> dict[str, object]:
    """The attributes that an operation has as properties; empty for operations that are not listed, which have no price either."""
    dialect, _, short = name.partition(".")
    lists = _lists(dialect, short)
    if not any(lists):
        return {}
    cursor = Cursor(data)
    numbers: list[int] = []
    while not cursor.is_done and len(numbers) <= len(max(lists, key=len)):
        numbers.append(cursor.number())
    names = next((names for names in lists if len(names) == len(numbers)), None)
    if names is None:
        raise Malformed(f"{name} has {len(numbers):,} properties, which matches no supported version of it")
    attributes = {}
    for key, number in zip(names, numbers, strict=True):
        if not key.endswith("?"):
            attributes[key] = entries.attribute(number)
        elif number & 1:
            attributes[key[:-1]] = entries.attribute(number >> 1)
    return attributes


@cache
def _lists(dialect: str, short: str) -> list[list[str]]:
    if dialect == "vhlo":
        return _lists_of_vhlo(versioned(short)[0])
    if dialect == "chlo" and short.startswith("broadcast_") and short not in _CHLO:
        return [["broadcast_dimensions?"]]
    return [names.split() for names in _LISTS.get(dialect, {}).get(short, "").split("|")]


def _lists_of_vhlo(name: str) -> list[list[str]]:
    fields = {**_FIELDS, "dimension_numbers": CONVOLVED if "conv" in name else GATHER}
    lists = []
    for names in _lists("func" if name in _FUNC else "stablehlo", name):
        every = sorted(" ".join(fields.get(key, key.rstrip("?")) for key in names).split())
        lists += [every, [field for field in every if field not in _SECOND]]
    return lists
