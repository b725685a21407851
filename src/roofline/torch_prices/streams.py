"""Operators that read tensors once, write tensors once, and do the same work for each element: a row of a table for each."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from ..dtypes import DType
from ..ops.elementwise import FREE, FUNCTIONS, ONE, PerElement, summed
from ..ops.recurrent import GRU, LSTM
from .call import BOOL, FP32, INT64, Call, Priced, Tensor, needed
from .copies import MOVEMENT
from .norms import NORM
from .op_table import op
from .pools import POOLING
from .recurrent import RECURRENT
from .reductions import LOSS, REDUCTION, SELECTION
from .traffic import streamed

DEFAULT_BINS = 100  # of torch.histc

# A tensor that is read or written: the place of an argument, which must be recorded, or what makes a tensor from a call.
Part = int | Callable[[Call], Tensor | None]
EVERY: tuple[Part, ...] = ()  # every tensor among the arguments


class Stream(Struct, frozen=True):
    """What an operator reads and writes, and its work per element, and per row, of the first tensor that it reads.

    Results are as the recording has them, else by ``writes``.
    """

    category: str
    reads: tuple[Part, ...]
    writes: tuple[Part, ...]
    work: PerElement = FREE

    def __call__(self, call: Call) -> Priced | None:
        read = [_tensor(call, part) for part in self.reads] if self.reads else list(call.all_tensors)
        if not read:
            return None
        x = needed(read[0])
        written = call.outputs or [_tensor(call, part) for part in self.writes]
        rows = x.elements // x.shape[-1] if x.shape and x.shape[-1] else 1
        cost = summed(x.elements, x.dtype, self.work.flops, self.work.transcendentals) + summed(rows, x.dtype, 0, self.work.per_row)
        return streamed(self.category, x, read, written, cost)


def _tensor(call: Call, part: Part) -> Tensor | None:
    return call.need(part) if isinstance(part, int) else part(call)


def optional(place: int) -> Part:
    """An argument that a call may leave out."""
    return lambda call: call.tensor(place)


def times(count: int, place: int) -> Part:
    """A tensor of several times the elements of an argument."""
    return lambda call: Tensor((count * call.need(place).elements,), call.need(place).dtype)


def like(place: int, number: DType | None = None) -> Part:
    """A tensor with as many elements as an argument, which may be a single number, in its own number format or another."""

    def part(call: Call) -> Tensor:
        argument = needed(call.arg(place))
        shape = argument.shape if isinstance(argument, Tensor) else ()
        return Tensor(shape, number or call.need(place).dtype)

    return part


def sized(place: int) -> Part:
    """A tensor of the sizes in an argument, in the number format of the first argument."""
    return lambda call: Tensor(needed(call.ints(place)), call.need(0).dtype)


def loss(reduction: int) -> Part:
    """One value, or one for each element if the argument at this place, the kind of reduction, is 0."""

    def part(call: Call) -> Tensor:
        x = call.need(0)
        return Tensor(x.shape if call.number(reduction, 1) == 0 else (), x.dtype)

    return part


def asked(call: Call) -> int:
    """The number of results that an operator is asked for in argument 1."""
    return max(int(call.number(1) or 0), 0)


def channels(call: Call) -> Tensor:
    """A statistic of each channel."""
    x = call.need(0)
    return Tensor((x.shape[1] if len(x.shape) > 1 else x.elements,), FP32)


def counted(flops: int, transcendentals: int = 0) -> PerElement:
    """The work of an element."""
    return PerElement(flops=flops, transcendentals=transcendentals)


_RMS_NORM = FUNCTIONS["rmsnorm"]
_ADD_RMS_NORM = replace(_RMS_NORM, flops=_RMS_NORM.flops + 1)
# By names of aten, and of other libraries in full.
STREAMS: dict[str, Stream] = {
    """
    split_with_sizes_copy split_copy unbind_copy view_copy permute_copy transpose_copy t_copy squeeze_copy unsqueeze_copy diagonal_copy
    alias_copy detach_copy _conj_copy _neg_view_copy _reshape_alias_copy view_as_real_copy view_as_complex_copy flip roll rot90 tril triu
    pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle _pin_memory
    """: Stream(MOVEMENT, (0,), (like(0),)),
    """
    reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward
    replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
    """: Stream(MOVEMENT, (0,), (like(1),)),
    # A gradient written into zeros of the input's size. In a trace the zeros and the copy are calls of their own.
    "slice_backward select_backward diagonal_backward unfold_backward as_strided_scatter": Stream(MOVEMENT, (0,), (sized(1),)),
    """
    avg_pool2d_backward avg_pool3d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward adaptive_avg_pool3d_backward
    """: Stream(POOLING, (0,), (like(1),), ONE),
    """
    max_pool2d_with_indices_backward max_pool3d_with_indices_backward adaptive_max_pool2d_backward adaptive_max_pool3d_backward
    fractional_max_pool2d_backward fractional_max_pool3d_backward
    """: Stream(POOLING, (0, like(0, INT64)), (like(1),), ONE),  # with the indices of maxima
    """
    upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward _upsample_nearest_exact1d_backward
    _upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward upsample_linear1d_backward upsample_bilinear2d_backward
    upsample_bicubic2d_backward upsample_trilinear3d_backward _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward
    _upsample_lanczos2d_aa_backward
    """: Stream(POOLING, (0,), (sized(2),), ONE),
    # The inner operators of scans, whose results are arguments: a running maximum only compares.
    "_logcumsumexp": Stream(REDUCTION, (0,), (0,), counted(1, 2)),
    "_cummax_helper _cummin_helper": Stream(REDUCTION, (0,), (0, like(0, INT64))),
    # Selections, which compilers do not fuse.
    "equal": Stream(SELECTION, EVERY, (lambda call: Tensor((), BOOL),)),
    "isin": Stream(SELECTION, EVERY, (like(0, BOOL),)),
    "bucketize": Stream(SELECTION, EVERY, (like(0, INT64),)),
    "searchsorted": Stream(SELECTION, EVERY, (like(1, INT64),)),
    "multinomial": Stream(SELECTION, EVERY, (lambda call: Tensor((*call.need(0).shape[:-1], asked(call)), INT64),)),
    "nonzero_static": Stream(SELECTION, EVERY, (lambda call: Tensor((asked(call), len(call.need(0).shape)), INT64),)),
    "histc": Stream(SELECTION, EVERY, (lambda call: Tensor((asked(call) or DEFAULT_BINS,), call.need(0).dtype),)),
    # Losses between an input and a target.
    "mse_loss": Stream(LOSS, (0, 1), (loss(2),), counted(3)),
    "l1_loss": Stream(LOSS, (0, 1), (loss(2),), counted(2)),
    "smooth_l1_loss huber_loss": Stream(LOSS, (0, 1), (loss(2),), counted(4)),
    "kl_div": Stream(LOSS, (0, 1), (loss(2),), counted(3, 1)),
    "binary_cross_entropy": Stream(LOSS, (0, 1, optional(2)), (loss(3),), counted(5, 2)),
    "binary_cross_entropy_with_logits": Stream(LOSS, (0, 1, optional(2)), (loss(4),), counted(5, 2)),
    # Batch norms that span several devices: the mean, and the squared differences from it; sums of the gradient; and their use.
    """
    batch_norm_stats batch_norm_update_stats batch_norm_gather_stats batch_norm_gather_stats_with_counts
    """: Stream(NORM, EVERY, (channels, channels), counted(3)),
    "batch_norm_backward_reduce": Stream(NORM, EVERY, (channels, channels), counted(5)),
    "batch_norm_elemt": Stream(NORM, EVERY, (0,), counted(4)),
    "batch_norm_backward_elemt": Stream(NORM, EVERY, (0,), counted(6)),
    # (weights, lengths) and (gradient, weights, lengths, …): weights divided by their lengths.
    "_weight_norm_interface": Stream(NORM, EVERY, (0, 1), counted(3)),
    "_weight_norm_interface_backward": Stream(NORM, EVERY, (1, 2), counted(6)),
    # Of serving engines: (x, groups, weight, bias); (out, x, weight); (x, residual, weight); (out, x, residual, sum, weight).
    "aiter::_groupnorm_run": Stream(NORM, (0, optional(2), optional(3)), (0,), counted(FUNCTIONS["layernorm"].flops)),
    "_C::rms_norm sgl_kernel::rmsnorm sgl_kernel::gemma_rmsnorm aiter::rmsnorm": Stream(NORM, (1, optional(2)), (0,), _RMS_NORM),
    """
    _C::fused_add_rms_norm sgl_kernel::fused_add_rmsnorm sgl_kernel::gemma_fused_add_rmsnorm
    """: Stream(NORM, (0, 1, optional(2)), (0, 1), _ADD_RMS_NORM),
    "aiter::add_rmsnorm": Stream(NORM, (1, 2, optional(4)), (0, optional(3)), _ADD_RMS_NORM),
    # Cells: (state, gates of the input, gates of the state, biases) to the next state, and values that are kept for backward.
    "_thnn_fused_lstm_cell": Stream(RECURRENT, (2, 0, 1, optional(3), optional(4)), (2, 2, 0), counted(LSTM.flops, LSTM.transcendentals)),
    "_thnn_fused_gru_cell": Stream(
        RECURRENT, (2, 0, 1, optional(3), optional(4)), (2, times(5, 2)), counted(GRU.flops, GRU.transcendentals)
    ),
    # Twice the work backward. (gradients of both states, previous and next states, gates); (gradient of the state, kept values).
    "_thnn_fused_lstm_cell_backward_impl": Stream(
        RECURRENT, (2, 3, 4, optional(0), optional(1)), (4, 2), counted(2 * LSTM.flops, 2 * LSTM.transcendentals)
    ),
    "_thnn_fused_gru_cell_backward": Stream(
        RECURRENT, (0, 1), (times(3, 0), times(3, 0), 0), counted(2 * GRU.flops, 2 * GRU.transcendentals)
    ),
}

for names, stream in STREAMS.items():
    op(*(name if "::" in name else f"aten::{name}" for name in names.split()))(stream)
