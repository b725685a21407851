"""All rules, in the order in which they run. Importing them takes a while: only recordings with graphs need them."""

from collections.abc import Callable, Iterator

from ..graph import Graph
from ..workload import Avoidable
from .dense_experts.gated import dense_experts
from .dense_gradient.updates import dense_gradients
from .duplicated_work.equal_values import equal_values
from .duplicated_work.grown_sequences import grown_sequences
from .duplicated_work.loop_invariants import loop_invariants
from .duplicated_work.pooled_windows import pooled_windows
from .duplicated_work.second_passes import second_passes
from .duplicated_work.shuffles import shuffles
from .duplicated_work.whole_sequences import whole_sequences
from .gathered_arrays.values import gathered_values
from .latency.linear_recurrences import linear_recurrences
from .layout_copies.channels import channels_first
from .layout_copies.counted_positions import counted_positions
from .layout_copies.gathered_blocks import gathered_blocks
from .layout_copies.joined_arguments import joined_arguments
from .layout_copies.norms import undone_copies
from .layout_copies.offloaded_stacks import offloaded_stacks
from .layout_copies.reordered import reordered_elements
from .layout_copies.reordered_rows import reordered_rows
from .layout_copies.selected_updates import selected_updates
from .layout_copies.stacked_activations import stacked_activations
from .layout_copies.stacked_arguments import stacked_arguments
from .layout_copies.stacked_states import stacked_states
from .low_batch.carried_sums import carried_sums
from .low_batch.few_rows import low_batches
from .low_batch.one_by_one import parallel_products
from .low_batch.rows_in_parts import rows_in_parts
from .masked_attention.masks import causal_masks, key_masks
from .masked_attention.scores import masked_scores
from .missing_donation.appended import appended_arrays
from .missing_donation.copies import missing_donations
from .missing_donation.rebuilt import rebuilt_arrays
from .odd_sizes.large_windows import large_windows
from .odd_sizes.lengths import slow_lengths
from .odd_sizes.tiny import stencils, tiny_products, tiny_solves
from .odd_sizes.unaligned import unaligned_sizes
from .one_hot_product.bins import compared_bins
from .one_hot_product.diagonals import diagonal_products, running_sums
from .one_hot_product.lookups import one_hot_products
from .padding.padded_arrays import padded_arrays
from .padding.rooms import room_for_groups
from .partial_products.summed import partial_products
from .product_order.added import added_factors
from .product_order.directions import forward_derivatives
from .product_order.factored import factored_products
from .product_order.inverses import inverses
from .product_order.narrow_last import costly_orders
from .product_order.shared_operand import shared_operands
from .product_order.summed import summed_products
from .recomputation.recomputed import recomputed
from .repeated_operand.rows import repeated_rows
from .repeated_operand.stored import folded_patches, stored_masks, stored_repeats
from .repeated_operand.written_out import written_products
from .replicated_arguments.updates import replicated_arguments
from .resharding.between import resharded
from .stored_attention.written import stored_scores
from .tile_padding.padded_tiles import padded_tiles
from .unfused_chain.kernels import unfused_kernels
from .unused_results.diagonals import diagonals_of_products
from .unused_results.loops import unused_in_loops
from .unused_results.never import never_used
from .unused_results.occasional import occasional_work
from .unused_results.parts import unused_gradients, unused_parts
from .unused_results.ranks import sorted_orders
from .unused_results.sorts import drawn_sorts, sorted_parts, undone_sorts
from .unused_results.statistics import unused_statistics
from .unused_results.unread_states import unread_states
from .unused_results.weight_gradients import kept_gradients, unused_weight_gradients
from .wide_format.doubles import doubles
from .wide_format.products import wide_products
from .wide_format.quantized import dequantized
from .wide_format.transforms import complex_transforms
from .wide_format.weights import cast_weights

Rule = Callable[[Graph], Iterator[tuple[int, Avoidable]]]  # kernels, and the work that each could avoid
# In order of precedence: of rules that say the same of an op the first counts. A copy because of a missing donation is not told as a change
# of layout, and a copy that need not be made not as one of which a part is used.
RULES: tuple[Rule, ...] = (
    second_passes,
    grown_sequences,
    whole_sequences,
    missing_donations,
    appended_arrays,
    selected_updates,
    rebuilt_arrays,
    stacked_states,
    one_hot_products,
    diagonal_products,
    running_sums,
    compared_bins,
    dense_experts,
    costly_orders,
    added_factors,
    factored_products,
    forward_derivatives,
    inverses,
    summed_products,
    shared_operands,
    low_batches,
    rows_in_parts,
    linear_recurrences,
    parallel_products,
    carried_sums,
    stored_repeats,
    folded_patches,
    stored_masks,
    written_products,
    gathered_blocks,
    counted_positions,
    offloaded_stacks,
    undone_copies,
    channels_first,
    sorted_parts,
    undone_sorts,
    drawn_sorts,
    sorted_orders,
    shuffles,
    causal_masks,
    key_masks,
    large_windows,
    tiny_products,
    stencils,
    tiny_solves,
    unaligned_sizes,
    slow_lengths,
    reordered_rows,
    recomputed,
    masked_scores,
    stored_scores,
    wide_products,
    cast_weights,
    dequantized,
    doubles,
    complex_transforms,
    room_for_groups,
    occasional_work,
    pooled_windows,
    dense_gradients,
    unused_weight_gradients,
    kept_gradients,
    unread_states,
    never_used,
    unused_statistics,
    unused_gradients,
    padded_arrays,
    equal_values,
    stacked_arguments,
    joined_arguments,
    unused_parts,
    unused_in_loops,
    diagonals_of_products,
    stacked_activations,
    loop_invariants,
    reordered_elements,
    repeated_rows,
    gathered_values,
    resharded,
    partial_products,
    replicated_arguments,
    padded_tiles,
    unfused_kernels,
)
# Rules that see all executions of an op that they are about, also where edges were matched by size.
COMPLETE: frozenset[Rule] = frozenset((second_passes, unused_weight_gradients, kept_gradients))
