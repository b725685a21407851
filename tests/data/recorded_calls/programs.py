"""Small PyTorch functions, whose calls `python tests/recorded_calls.py [NAME...]` records in this folder."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

BF16, FP32, INT64, INT8 = "bfloat16", "float32", "int64", "int8"
Shape = tuple[int, ...]


class Program:
    """A function of ``torch`` and tensors, the tensors' shapes and number formats, and whether gradients follow."""

    def __init__(self, function: Callable[..., Any], *tensors: tuple[Shape, str], backward: bool = False) -> None:
        self.function, self.tensors, self.backward = function, tensors, backward


def _of(*shape: int, number: str = BF16) -> tuple[Shape, str]:
    return shape, number


def _ids(*shape: int) -> tuple[Shape, str]:
    return shape, INT64


def _one_hot(torch: Any, ids: Any, count: int, like: Any) -> Any:
    return torch.nn.functional.one_hot(ids, count).to(like.dtype)


def _scattered(torch: Any, ids: Any, table: Any) -> Any:
    return table.new_zeros(ids.shape[0], table.shape[0]).scatter_(1, ids[:, None], 1.0) @ table


def _changed_between(torch: Any, x: Any, w: Any) -> Any:
    before = x @ w
    x.mul_(2)
    return before, (x @ w).exp()


def _dropped(torch: Any, x: Any) -> Any:
    return torch.nn.functional.dropout(x, 0.1, training=True)


def _every_sixteenth(torch: Any, x: Any, w: Any, step: Any) -> Any:
    """A loss with a term that a select leaves out of most steps."""
    return torch.where(step % 16 == 0, torch.tanh(x @ w).sum(), torch.zeros((), dtype=x.dtype, device=x.device)) + x.sum()


def _checkpointed(torch: Any, x: Any, up: Any, down: Any) -> Any:
    from torch.utils.checkpoint import checkpoint

    block = torch.nn.Module()
    block.forward = lambda x: torch.tanh(x @ up) @ down
    return checkpoint(block, x, use_reentrant=False)


def _in_parts(torch: Any, x: Any, up: Any, down: Any, *, parts: int) -> None:
    """The gradients of two layers, added up over parts of the rows."""
    for tensor in (up, down):
        tensor.requires_grad_()
    for rows in x.chunk(parts):
        (torch.tanh(rows @ up) @ down).square().sum().backward()


def _updated(torch: Any, x: Any, up: Any, down: Any, *, of: Callable[..., list[Any]]) -> None:
    """A step of training that updates some of two layers."""
    for tensor in (up, down):
        tensor.requires_grad_()
    optimizer = torch.optim.SGD(of(up, down), lr=0.1)
    (torch.tanh(x @ up) @ down).square().sum().backward()
    optimizer.step()


def _step_by_step(torch: Any, x: Any, w: Any, state: Any) -> Any:
    for rows in x.unbind():
        state = torch.tanh(rows + state @ w)
    return state


def _adapted(torch: Any, x: Any, *factors: Any) -> Any:
    """Factors of low rank that multiply the same rows."""
    return sum(torch.tanh(x @ factor).sum() for factor in factors)


def _table_trained(torch: Any, ids: Any, table: Any, weights: Any = None) -> Any:
    """A step of Adam on a table and weights, or on a table that is both."""
    learned = [table] if weights is None else [table, weights]
    for tensor in learned:
        tensor.requires_grad_()
    rows = torch.nn.functional.embedding(ids, table)
    torch.tanh(rows @ (table.t() if weights is None else weights)).sum().backward()
    torch.optim.Adam(learned, foreach=True).step()


def _filled(torch: Any, ids: Any, table: Any, rows: Any) -> Any:
    """One-hot rows in the first half of the rows that a product multiplies by, others in the second half."""
    half = ids.shape[0]
    whole = table.new_empty(2 * half, table.shape[0])
    whole[:half] = _one_hot(torch, ids, table.shape[0], table)
    whole[half:] = rows
    return whole @ table


def _halves(torch: Any, x: Any, table: Any) -> Any:
    """Scores of which one half is multiplied, and the other half returned."""
    scores = x @ table.transpose(-1, -2)
    return scores[:, :1024] @ table[:1024], scores[:, 1024:]


def _grouped(torch: Any, keys: Any, times: int) -> Any:
    batch, heads, length, width = keys.shape
    return keys[:, :, None].expand(batch, heads, times, length, width).reshape(batch, heads * times, length, width)


def _attended(torch: Any, q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, _grouped(torch, k, 4), _grouped(torch, v, 4))


def _decoded(torch: Any, q: Any, cache: Any, new: Any) -> Any:
    """Attention to a cache with one more position, and that cache."""
    cache = torch.cat([cache, new], 2)
    return torch.nn.functional.scaled_dot_product_attention(q, cache, cache), cache


def _rolled(torch: Any, q: Any, cache: Any, new: Any) -> Any:
    """Attention to a cache whose oldest position was dropped for a new one."""
    cache = torch.roll(cache, -1, 2)
    cache[:, :, -1:] = new
    return torch.nn.functional.scaled_dot_product_attention(q, cache, cache), cache


def _sampled(torch: Any, p: Any, drawn: int = 1) -> Any:
    """Tokens that are drawn from the likeliest, which have nine tenths of the probability."""
    ordered, tokens = torch.sort(p, -1, descending=True)
    total = torch.cumsum(ordered, -1)
    ordered[total - ordered > 0.9] = 0.0
    ordered = ordered / ordered.sum(-1, keepdim=True)
    return tokens.gather(-1, torch.multinomial(ordered, drawn))


def _kept_likeliest(torch: Any, logits: Any) -> Any:
    """The scores of the likeliest tokens, with nine tenths of the probability, where they were."""
    ordered, tokens = torch.sort(logits, -1)
    dropped = ordered.softmax(-1).cumsum(-1) <= 0.1
    dropped[:, -1:] = False
    return logits.masked_fill(dropped.scatter(1, tokens, dropped), float("-inf"))


def _running_share(torch: Any, p: Any) -> Any:
    """The share of the largest numbers in the sum, and where it passes one half."""
    total = torch.cumsum(torch.sort(p, -1, descending=True).values, -1)
    return total, (total > 0.5).sum(-1)


def _messages(torch: Any, x: Any, source: Any, target: Any, weight: Any) -> Any:
    """The rows along the edges of a graph, weighted and added up at their ends."""
    return torch.zeros_like(x).index_add_(0, target, x[source] * weight)


def _head_left_out(torch: Any, x: Any, body: Any, head: Any, other: Any, *, is_taken: bool = False) -> Any:
    """The loss of one of two heads; the other one may be the target, through which no gradient goes."""
    hidden = torch.relu(x @ body)
    first, second = torch.tanh(hidden @ head), torch.tanh(hidden @ other)
    return (second - first.detach()).square().sum() if is_taken else second.square().sum()


def _selected(torch: Any, cache: Any, new: Any, at: Any) -> Any:
    return torch.where((torch.arange(cache.shape[1], device=cache.device) == at)[:, None], new, cache)


def _masked(torch: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    stored = mask[:, None, None].expand(*q.shape[:-1], k.shape[-2]).contiguous()
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=stored)


def _attended_in_parts(torch: Any, q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


def _attended_causally(torch: Any, q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose(-1, -2)
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill(future, -1e9), -1) @ v


def _attended_by_distance(torch: Any, q: Any, k: Any, v: Any) -> Any:
    """A bias that falls with the distance, which removes no scores."""
    places = torch.arange(q.shape[-2], device=q.device)
    distances = (places[:, None] - places[None]).abs().to(q.dtype)
    return torch.softmax(q @ k.transpose(-1, -2) - distances, -1) @ v


def _masked_causally(torch: Any, q: Any, k: Any, v: Any) -> Any:
    places = torch.arange(q.shape[-2], device=q.device)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=places[:, None] >= places[None])


def _masked_by_keys(torch: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    expanded = mask[:, None, None].expand(q.shape[0], 1, q.shape[-2], k.shape[-2])
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=expanded)


def _normed_experts(torch: Any, x: Any, up: Any, down: Any) -> Any:
    """Hidden rows that are larger than what they are made of, and normalised before the second product."""
    hidden = torch.nn.functional.silu(x @ up)
    return torch.nn.functional.layer_norm(hidden, hidden.shape[-1:]) @ down


def _contrasted(torch: Any, x: Any, y: Any) -> Any:
    """The loss of pairs of rows, each of which should be closest to its own."""
    return torch.log_softmax(x @ y.transpose(-1, -2), -1).diagonal(dim1=-2, dim2=-1).mean()


def _joined(torch: Any, rows: Any, ids: Any, others: Any, weights: Any) -> Any:
    return torch.cat([rows[ids], others], -1) @ weights


def _beside_candidates(torch: Any, user: Any, candidates: Any, weights: Any) -> Any:
    """A user's features with those of each candidate."""
    return torch.cat([user[:, None].expand(*candidates.shape[:2], user.shape[1]), candidates], -1) @ weights


def _in_place(torch: Any, q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose(-1, -2)
    return scores.mul_(0.125) @ v


def _overwritten(torch: Any, q: Any, k: Any, v: Any, others: Any) -> Any:
    """Scores that another matrix replaces before the second product."""
    scores = q @ k.transpose(-1, -2)
    total = scores.sum()
    scores.copy_(others)
    return total, scores @ v


def _rows(torch: Any, q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose(-1, -2)
    return torch.softmax(scores, -1) @ v, scores


def _gates(torch: Any, scores: Any, chosen: int) -> Any:
    """Gates that are zero but for the chosen experts of each token."""
    best, experts = scores.topk(chosen, -1)
    return torch.zeros_like(scores).scatter(1, experts, best.softmax(-1))


def _all_experts(torch: Any, x: Any, scores: Any, up: Any, down: Any, chosen: int = 2) -> Any:
    """Each expert for every token in batched products, weighted by gates."""
    tokens = x.repeat(up.shape[0], 1).view(up.shape[0], *x.shape)
    made = torch.bmm(torch.relu(torch.bmm(tokens, up)), down)
    return (made * _gates(torch, scores, chosen).transpose(0, 1)[..., None]).sum(0)


def _wide_experts(torch: Any, x: Any, scores: Any, up: Any) -> Any:
    every = torch.einsum("nd,edf->nef", x, up)
    least = scores.topk(2, -1).values[:, 1:]
    return torch.einsum("nef,ne->nf", every, torch.where(scores >= least, scores, 0.0))


def _one_by_one(torch: Any, x: Any, experts: Any, up: Any) -> Any:
    out = torch.zeros_like(x)
    for number in range(up.shape[0]):
        out = out + (experts == number)[:, None] * (x @ up[number])
    return out


def _soft_experts(torch: Any, x: Any, scores: Any, up: Any) -> Any:
    return torch.einsum("nef,ne->nf", torch.einsum("nd,edf->nef", x, up), scores.softmax(-1))


def _layers_and_experts(torch: Any, x: Any, scores: Any, up: Any) -> Any:
    """As many layers as there are experts, after which each token is weighted by the sum of its gates."""
    for weights in up:
        x = torch.relu(x @ weights)
    return x * _gates(torch, scores, 2).sum(-1, keepdim=True)


def _layers(torch: Any, x: Any, *weights: Any) -> Any:
    for weight in weights:
        x = torch.tanh(x @ weight)
    return x


def _other_rows(torch: Any, x: Any, w: Any, rows: Any) -> Any:
    """A product of which the first rows are replaced; all others are used."""
    scores = x @ w
    scores[:1024] = rows
    return scores.exp()


def _padded(torch: Any, x: Any, up: Any, down: Any) -> Any:
    """A layer on 512 tokens of each example, of which 256 are padding."""
    tokens = torch.nn.functional.layer_norm(torch.nn.functional.pad(x, (0, 0, 0, 256)), (1024,))
    hidden = torch.nn.functional.gelu(tokens @ up)
    heads = hidden.view(16, 512, 32, 64).transpose(1, 2)
    mixed = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
    return mixed.transpose(1, 2).reshape(16, 512, 2048) @ down


def _beams(torch: Any, q: Any, cache: Any, order: Any) -> Any:
    """Attention over a cache, which then follows its beams."""
    return torch.nn.functional.scaled_dot_product_attention(q, cache, cache), cache.index_select(0, order)


def _filled_up(torch: Any, x: Any, w: Any) -> Any:
    """Rows that are written into zeros."""
    rows = torch.zeros(16, 512, 1024, dtype=x.dtype, device="meta")
    rows[:, :256] = x
    return rows @ w


QKV = (_of(16, 4096, 64),) * 3
PADDED = _of(16, 256, 1024), _of(1024, 2048), _of(2048, 1024)
ATTENDED = (_of(32, 512, 64),) * 3
MIXTURE = _of(4096, 512), _of(4096, 8), _of(8, 512, 1024)


def _of_cast_weights(torch: Any, x: Any, up: Any, down: Any) -> Any:
    """A layer of which the second weights are cast to the format of the rows."""
    return torch.relu(x @ up) @ down.to(x.dtype)


def _dequantized(torch: Any, weights: Any, scale: Any) -> Any:
    return weights.to(scale.dtype) * scale


def _attended_to_quantized(torch: Any, q: Any, k: Any, v: Any, scale: Any) -> Any:
    keys, values = _dequantized(torch, k, scale), _dequantized(torch, v, scale)
    return torch.nn.functional.scaled_dot_product_attention(q, keys, values)


def _convolved_by_complex_transforms(torch: Any, x: Any, kernel: Any) -> Any:
    size = 2 * x.shape[-1]
    return torch.fft.ifft(torch.fft.fft(x, size) * torch.fft.fft(kernel, size)).real[..., : x.shape[-1]]


def _convolved_by_real_transforms(torch: Any, x: Any, kernel: Any) -> Any:
    size = 2 * x.shape[-1]
    return torch.fft.irfft(torch.fft.rfft(x, size) * torch.fft.rfft(kernel, size), size)[..., : x.shape[-1]]


def _routed(torch: Any, x: Any, weights: Any, router: Any) -> Any:
    """A product in fp32 with next to none of the work."""
    return torch.relu(torch.relu(x @ weights) @ weights).float() @ router


def _normal_equations(torch: Any, rows: Any) -> Any:
    return torch.linalg.cholesky_ex(rows.transpose(-1, -2) @ rows)[0]


PROGRAMS: Mapping[str, Program] = {
    # Two unrelated things whose sizes coincide.
    "one_hot_beside_product": Program(
        lambda t, ids, x, w: (t.nn.functional.one_hot(ids, 2048), x @ w), _ids(4096), _of(4096, 2048), _of(2048, 256)
    ),
    "products_beside": Program(lambda t, a, b, c, d: (a @ b, c @ d), _of(2048, 32), _of(32, 2048), _of(2048, 2048), _of(2048, 32)),
    "gather_beside_product": Program(lambda t, x, ids, y, w: (x[ids], y @ w), _of(5000, 512), _ids(30000), _of(30000, 512), _of(512, 128)),
    "repeat_beside_product": Program(
        lambda t, k, p, v: (k.repeat_interleave(8, 1), p @ v), _of(4, 4, 512, 64), _of(4, 32, 512, 512), _of(4, 32, 512, 64)
    ),
    "gathered_then_changed": Program(lambda t, x, ids, w: t.relu(x[ids]) @ w, _of(5000, 512), _ids(30000), _of(512, 128)),
    # One-hot rows.
    "one_hot": Program(lambda t, ids, w: _one_hot(t, ids, 4096, w) @ w, _ids(8192), _of(4096, 512)),
    "one_hot_square": Program(lambda t, ids, w: _one_hot(t, ids, 4096, w) @ w, _ids(4096), _of(4096, 512)),
    "one_hot_trained": Program(lambda t, ids, w: _one_hot(t, ids, 4096, w) @ w, _ids(8192), _of(4096, 512), backward=True),
    "one_hot_added_up": Program(lambda t, ids, x: _one_hot(t, ids, 1024, x).transpose(0, 1) @ x, _ids(8192), _of(8192, 512)),
    "one_hot_scattered": Program(_scattered, _ids(8192), _of(4096, 512)),
    "one_hot_kept": Program(lambda t, ids, w: (hot := _one_hot(t, ids, 4096, w), hot @ w), _ids(8192), _of(4096, 512)),
    "one_hot_written_in_part": Program(_filled, _ids(4096), _of(2048, 512), _of(4096, 2048)),
    "same_class": Program(lambda t, ids, x: (ids[:, None] == ids[None]).to(x.dtype) @ x, _ids(4096), _of(4096, 512)),
    "few_classes": Program(lambda t, ids, w: _one_hot(t, ids, 16, w) @ w, _ids(8192), _of(16, 512)),
    "embedding": Program(lambda t, ids, w: t.nn.functional.embedding(ids, w), _ids(8192), _of(4096, 512)),
    # Tables of which a step looks up a few rows.
    "table_trained": Program(_table_trained, _ids(4096), _of(262_144, 64, number=FP32), _of(64, 64, number=FP32)),
    "table_trained_by_half": Program(_table_trained, _ids(131_072), _of(262_144, 64, number=FP32), _of(64, 64, number=FP32)),
    "small_table_trained": Program(_table_trained, _ids(512), _of(32_768, 64, number=FP32), _of(64, 64, number=FP32)),
    "table_trained_as_output_too": Program(_table_trained, _ids(64), _of(262_144, 64, number=FP32)),
    # Orders of products.
    "linear_attention": Program(lambda t, q, k, v: (q @ k.transpose(-1, -2)) @ v, *QKV),
    "linear_attention_trained": Program(lambda t, q, k, v: (q @ k.transpose(-1, -2)) @ v, *QKV, backward=True),
    "linear_attention_scaled": Program(lambda t, q, k, v: ((q @ k.transpose(-1, -2)) / 8 * q.new_ones(())) @ v, *QKV),
    "linear_attention_in_place": Program(_in_place, *QKV),
    "linear_attention_in_order": Program(lambda t, q, k, v: q @ (k.transpose(-1, -2) @ v), *QKV),
    "scores_divided_by": Program(lambda t, q, k, v: (q.new_ones(()) / (q @ k.transpose(-1, -2))) @ v, *QKV),
    "scores_squared": Program(lambda t, q, k, v: ((s := q @ k.transpose(-1, -2)) * s) @ v, *QKV),
    "scores_with_softmax": Program(_rows, *QKV),
    "scores_overwritten": Program(_overwritten, *QKV, _of(16, 4096, 4096)),
    "scores_returned": Program(lambda t, q, k, v: ((s := q @ k.transpose(-1, -2)) @ v, s), *QKV),
    "scores_in_halves": Program(_halves, _of(2048, 64), _of(2048, 64)),
    "low_rank": Program(lambda t, x, up, down: x @ (up @ down), _of(2048, 4096), _of(4096, 16), _of(16, 4096)),
    "wide_with_bias": Program(lambda t, x, v, b, w: t.addmm(b, x, v) @ w, _of(8192, 64), _of(64, 4096), _of(4096), _of(4096, 64)),
    "wide_with_matrix": Program(lambda t, x, v, b, w: t.addmm(b, x, v) @ w, _of(8192, 64), _of(64, 4096), _of(8192, 4096), _of(4096, 64)),
    # Attention in several kernels, and with masks.
    "scores_written": Program(_attended_in_parts, *ATTENDED),
    "scores_written_trained": Program(_attended_in_parts, *ATTENDED, backward=True),
    "scores_masked": Program(_attended_causally, *ATTENDED),
    "scores_masked_trained": Program(_attended_causally, *ATTENDED, backward=True),
    "scores_by_distance": Program(_attended_by_distance, *ATTENDED),
    "masked_causally": Program(_masked_causally, *[_of(4, 8, 512, 64)] * 3, backward=True),
    "masked_by_keys": Program(_masked_by_keys, *[_of(4, 8, 512, 64)] * 3, _of(4, 512)),
    "normed_experts": Program(_normed_experts, _of(8, 2048, 64), _of(8, 64, 256), _of(8, 256, 64)),
    "contrasted": Program(_contrasted, *[_of(8, 512, 64)] * 2, backward=True),
    # Sums of products.
    "summed_rows": Program(lambda t, x, w: (x @ w).mean(1), _of(16, 2048, 1024), _of(1024, 2048)),
    "summed_rows_scaled": Program(lambda t, x, w: (2 * (x @ w)).float().sum((0, 1)), _of(16, 2048, 1024), _of(1024, 2048)),
    "summed_rows_trained": Program(lambda t, x, w: (x @ w).mean(0, keepdim=True), _of(4096, 1024), _of(1024, 2048), backward=True),
    "summed_columns": Program(lambda t, x, w: (x @ w).sum(-1), _of(16, 2048, 1024), _of(1024, 2048)),
    "summed_batch": Program(lambda t, x, y: (x @ y).sum(0), _of(64, 1024, 64), _of(64, 64, 1024)),
    "summed_and_returned": Program(lambda t, x, w: ((y := x @ w), y.sum(0)), _of(4096, 1024), _of(1024, 2048)),
    "summed_beside_product": Program(lambda t, x, w, y: (x @ w, y.sum(0)), _of(4096, 1024), _of(1024, 2048), _of(4096, 2048)),
    "summed_to_a_number": Program(lambda t, x, w: (x @ w).sum(), _of(4096, 1024), _of(1024, 2048)),
    "summed_after_tanh": Program(lambda t, x, w: (x @ w).tanh().mean(0), _of(4096, 1024), _of(1024, 2048)),
    "largest_of_rows": Program(lambda t, x, w: (x @ w).amax(0), _of(4096, 1024), _of(1024, 2048)),
    "centred_rows": Program(lambda t, x, w: (y := x @ w) - y.mean(-1, keepdim=True), _of(4096, 1024), _of(1024, 2048)),
    "floor_of_scaled": Program(lambda t, x, w: t.div(x @ w, 2, rounding_mode="floor").sum(0), _of(4096, 1024), _of(1024, 2048)),
    # Few rows.
    "few_rows": Program(lambda t, x, w: t.relu(x @ w), _of(4, 4096), _of(4096, 4096)),
    "few_rows_trained": Program(lambda t, x, w: t.relu(x @ w), _of(4, 4096), _of(4096, 4096), backward=True),
    "few_rows_of_cast_weights": Program(lambda t, x, w: x @ w.to(x.dtype), _of(4, 4096), _of(4096, 4096, number=FP32)),
    "vector": Program(lambda t, x, w: w @ x, _of(4096), _of(4096, 4096)),
    "many_rows": Program(lambda t, x, w: x @ w, _of(512, 4096), _of(4096, 4096)),
    "last_of_many_rows": Program(lambda t, x, v, w: (x @ v)[-1:] @ w, _of(2048, 4096), _of(4096, 4096), _of(4096, 4096)),
    "few_rows_of_a_result": Program(lambda t, x, a: x @ t.relu(a), _of(4, 4096), _of(4096, 4096)),
    # Rows in parts, as micro-batches.
    "micro_batches": Program(partial(_in_parts, parts=8), _of(512, 1024), _of(1024, 1024), _of(1024, 1024)),
    "micro_batches_of_many_rows": Program(partial(_in_parts, parts=8), _of(4096, 1024), _of(1024, 1024), _of(1024, 1024)),
    "two_micro_batches": Program(partial(_in_parts, parts=2), _of(128, 1024), _of(1024, 1024), _of(1024, 1024)),
    "step_by_step": Program(_step_by_step, _of(4, 64, 1024), _of(1024, 1024), _of(64, 1024), backward=True),
    "adapted": Program(_adapted, _of(1024, 1024), *[_of(1024, 64)] * 4, backward=True),
    # Products that run one by one.
    "ensemble": Program(lambda t, x, *w: sum(t.tanh(x @ v).sum() for v in w), _of(512, 512), *[_of(512, 512)] * 8),
    "ensemble_of_few": Program(lambda t, x, *w: sum(t.tanh(x @ v).sum() for v in w), _of(512, 512), *[_of(512, 512)] * 7),
    "layers_in_a_row": Program(_layers, _of(512, 512), *[_of(512, 512)] * 8),
    # Experts.
    "all_experts": Program(_all_experts, *MIXTURE, _of(8, 1024, 512)),
    "all_experts_trained": Program(_all_experts, *MIXTURE, _of(8, 1024, 512), backward=True),
    "most_experts": Program(lambda t, *given: _all_experts(t, *given, chosen=6), *MIXTURE, _of(8, 1024, 512)),
    "wide_experts": Program(_wide_experts, *MIXTURE),
    "experts_one_by_one": Program(_one_by_one, _of(4096, 512), _ids(4096), _of(8, 512, 512)),
    "experts_one_by_one_trained": Program(_one_by_one, _of(4096, 512), _ids(4096), _of(8, 512, 512), backward=True),
    "soft_experts": Program(_soft_experts, *MIXTURE),
    "layers_and_experts": Program(_layers_and_experts, _of(4096, 512), _of(4096, 8), _of(8, 512, 512)),
    # Inverses.
    "inverse_of_columns": Program(lambda t, a, b: t.linalg.inv(a) @ b, _of(64, 128, 128, number=FP32), _of(64, 128, 4, number=FP32)),
    "inverse_of_vector": Program(lambda t, a, b: t.linalg.inv(a) @ b, _of(512, 512, number=FP32), _of(512, number=FP32)),
    "solved_for_identity": Program(
        lambda t, a, b: t.linalg.solve(a, t.eye(512, device="meta")) @ b, _of(512, 512, number=FP32), _of(512, 4, number=FP32)
    ),
    "inverse_of_matrix": Program(lambda t, a, b: t.linalg.inv(a) @ b, _of(64, 128, 128, number=FP32), _of(64, 128, 128, number=FP32)),
    "inverse_returned": Program(lambda t, a, b: ((i := t.linalg.inv(a)) @ b, i), _of(512, 512, number=FP32), _of(512, 4, number=FP32)),
    "inverse_with_diagonal": Program(
        lambda t, a, b: (i := t.linalg.inv(a)) @ b + i.diagonal(), _of(512, 512, number=FP32), _of(512, number=FP32)
    ),
    "solved_for_matrix": Program(lambda t, a, b, c: t.linalg.solve(a, b) @ c, *[_of(512, 512, number=FP32)] * 2, _of(512, 4, number=FP32)),
    # Factors that were added to weights.
    "merged_factors": Program(
        lambda t, x, w, up, down: x @ (w.detach() + up @ down),
        _of(4096, 2048),
        _of(2048, 2048),
        _of(2048, 16),
        _of(16, 2048),
        backward=True,
    ),
    "merged_factors_and_weights": Program(
        lambda t, x, w, up, down: x @ (w + up @ down), _of(4096, 2048), _of(2048, 2048), _of(2048, 16), _of(16, 2048), backward=True
    ),
    "merged_wide_factors": Program(
        lambda t, x, w, up, down: x @ (w.detach() + up @ down),
        _of(4096, 2048),
        _of(2048, 2048),
        _of(2048, 1024),
        _of(1024, 2048),
        backward=True,
    ),
    # Gathered rows.
    "gathered": Program(lambda t, x, ids, w: x[ids] @ w, _of(5000, 256), _ids(40000), _of(256, 256)),
    "gathered_trained": Program(lambda t, x, ids, w: x[ids] @ w, _of(5000, 256), _ids(40000), _of(256, 256), backward=True),
    "gathered_by_groups": Program(lambda t, x, ids, w: x.index_select(0, ids).to(w.dtype) @ w, _of(5000, 256), _ids(40000), _of(256, 256)),
    "gathered_columns": Program(lambda t, x, ids, w: x[:, ids] @ w, _of(20000, 128), _ids(256), _of(256, 256)),
    "gathered_once": Program(lambda t, x, ids, w: x[ids] @ w, _of(30000, 256), _ids(40000), _of(256, 256)),
    "gathered_and_joined": Program(_joined, _of(5000, 256), _ids(40000), _of(40000, 64), _of(320, 128), backward=True),
    "repeated_and_joined": Program(_beside_candidates, _of(64, 512), _of(64, 500, 64), _of(576, 512)),
    "repeated_beside_product": Program(
        lambda t, user, x, w: (user[:, None].expand(64, 500, 512) + 1, x @ w), _of(64, 512), _of(64, 500, 512), _of(512, 256)
    ),
    # Products with the matrix of a diagonal.
    "diagonal_matrix": Program(lambda t, d, x: t.diag(d) @ x, _of(2048), _of(2048, 2048)),
    "diagonal_added": Program(lambda t, d, a, x: (t.diag(d) + a) @ x, _of(2048), _of(2048, 2048), _of(2048, 2048)),
    "diagonal_beside_product": Program(lambda t, d, a, x: (t.diag(d), a @ x), _of(2048), _of(2048, 2048), _of(2048, 2048)),
    # Products of which a part is used.
    "rows_used": Program(lambda t, x, w: t.relu(x @ w)[:2730], _of(4096, 2048), _of(2048, 4096)),
    "last_tokens": Program(
        lambda t, x, w: t.log_softmax(t.nn.functional.linear(x, w)[:, -1], -1), _of(8, 512, 1024), _of(32000, 1024), backward=True
    ),
    "rows_picked": Program(lambda t, x, w, ids: (x @ w)[ids].exp(), _of(8192, 1024), _of(1024, 4096), _ids(1024)),
    "columns_used": Program(lambda t, x, w: (x @ w)[:, 1024:2048].float(), _of(4096, 1024), _of(1024, 4096)),
    "diagonal_used": Program(lambda t, a, b: (a @ b.transpose(0, 1)).diagonal().exp(), _of(8192, 512), _of(8192, 512)),
    "diagonal_copied": Program(lambda t, a, b: t.diag(a @ b), _of(2048, 512), _of(512, 2048)),
    "trace_of_product": Program(lambda t, a, b: t.trace(a @ b), _of(2048, 2048), _of(2048, 2048)),
    "trace_and_product": Program(lambda t, a, b: ((s := a @ b).trace(), s), _of(2048, 2048), _of(2048, 2048)),
    "trace_beside_product": Program(lambda t, a, b, c: (c.trace(), a @ b), *[_of(2048, 2048)] * 3),
    "side_diagonal": Program(lambda t, a, b: t.diag(a @ b, 1), _of(2048, 512), _of(512, 2048)),
    "rows_used_and_summed": Program(lambda t, x, w: ((s := x @ w)[:1024].exp(), s.sum()), _of(4096, 1024), _of(1024, 4096)),
    "rows_used_in_parts": Program(lambda t, x, w: ((s := x @ w)[:1024].exp(), s[1024:].tanh()), _of(4096, 1024), _of(1024, 4096)),
    "rows_used_and_returned": Program(lambda t, x, w: ((s := x @ w)[:1024].exp(), s), _of(4096, 1024), _of(1024, 4096)),
    "rows_used_of_an_argument": Program(lambda t, x, w, y: (x @ w, y[:1024].exp()), _of(4096, 1024), _of(1024, 4096), _of(4096, 4096)),
    "rows_overwritten": Program(_other_rows, _of(4096, 1024), _of(1024, 4096), _of(1024, 4096)),
    "rows_shifted": Program(lambda t, x, w: (x @ w)[:-1].exp(), _of(4096, 1024), _of(1024, 4096)),
    # Padded arrays.
    "padded_tokens": Program(_padded, *PADDED),
    "padded_tokens_trained": Program(_padded, *PADDED, backward=True),
    "padded_by_joining": Program(
        lambda t, x, w: t.cat([x, x.new_zeros(16, 256, 1024)], 1).view(8192, 1024) @ w, _of(16, 256, 1024), _of(1024, 2048)
    ),
    "padded_by_writing": Program(_filled_up, _of(16, 256, 1024), _of(1024, 2048)),
    "padded_columns": Program(lambda t, x, w: t.nn.functional.pad(x, (0, 1024)) @ w, _of(8192, 1024), _of(2048, 1024)),
    "padded_a_little": Program(lambda t, x, w: t.nn.functional.pad(x, (0, 24)) @ w, _of(8192, 1000), _of(1024, 1024)),
    "padded_beside_product": Program(
        lambda t, x, y, w: (t.nn.functional.pad(x, (0, 0, 0, 4096)), y @ w), _of(4096, 1024), _of(8192, 1024), _of(1024, 2048)
    ),
    "padded_and_added": Program(
        lambda t, x, y, w: (t.nn.functional.pad(x, (0, 0, 0, 4096)) + y) @ w, _of(4096, 1024), _of(8192, 1024), _of(1024, 2048)
    ),
    # States whose rows are put in another order.
    "beams_reordered": Program(_beams, _of(64, 8, 1, 64), _of(64, 8, 512, 64), _ids(64)),
    "rows_shuffled": Program(lambda t, q, k, order: (q * 2, k.index_select(0, order)), _of(64, 8, 1, 64), _of(64, 8, 512, 64), _ids(64)),
    # Odd sizes.
    "odd_words": Program(lambda t, x, w: x @ w, _of(512, 768), _of(768, 30522)),
    "odd_rows_of_few": Program(lambda t, x, w: x @ w, _of(17, 768), _of(768, 32768)),
    "odd_channels": Program(lambda t, x, w: t.conv2d(x, w, padding=1), _of(16, 129, 28, 28), _of(256, 129, 3, 3)),
    "tiny_rotations": Program(lambda t, a, b: a @ b, _of(100_000, 3, 3, number=FP32), _of(100_000, 3, 3, number=FP32)),
    "tiny_gate": Program(lambda t, a, b: a @ b, _of(2, 2, number=FP32), _of(2, 1 << 20, number=FP32)),
    "tiny_dot_of_vectors": Program(lambda t, a, b: t.bmm(a, b), _of(4096, 1, 4, number=FP32), _of(4096, 4, 1, number=FP32)),
    "tiny_factors": Program(lambda t, a: t.linalg.cholesky(a), _of(10_000, 8, 8, number=FP32)),
    "few_tiny_factors": Program(lambda t, a: t.linalg.cholesky(a), _of(100, 8, 8, number=FP32)),
    "stencil": Program(lambda t, x, w: t.conv2d(x, w, padding=1), _of(1, 1, 1024, 1024), _of(1, 1, 3, 3)),
    # Sorts of which a part is used.
    "sorted_part": Program(lambda t, x: t.sort(x, -1, descending=True).values[:, :8].sum(), _of(512, 8192)),
    "sampled_sorted": Program(_sampled, _of(256, 32768, number=FP32)),
    "sampled_many": Program(lambda t, p: _sampled(t, p, 20000), _of(256, 32768, number=FP32)),
    "kept_likeliest": Program(_kept_likeliest, _of(256, 32768, number=FP32)),
    "running_share": Program(_running_share, _of(256, 32768, number=FP32)),
    "sorted_columns": Program(lambda t, x: t.sort(x, 0).values[:, :8].sum(), _of(8192, 512)),
    "sorted_and_returned": Program(lambda t, x: ((s := t.sort(x, -1).values)[:, :8].sum(), s), _of(512, 8192)),
    # Arrays that are copied in full to append a small part.
    "cache_appended": Program(_decoded, _of(8, 16, 1, 64), _of(8, 16, 1024, 64), _of(8, 16, 1, 64)),
    "cache_appended_twice": Program(
        lambda t, cache, a, b: _decoded(t, a, _decoded(t, a, cache, a)[1], b), _of(8, 16, 1024, 64), *[_of(8, 16, 1, 64)] * 2
    ),
    "oldest_dropped": Program(lambda t, cache, new: t.cat([cache[:, 1:], new], 1), _of(16, 1024, 512), _of(16, 1, 512)),
    "cache_rolled": Program(_rolled, _of(8, 16, 1, 64), _of(8, 16, 1024, 64), _of(8, 16, 1, 64)),
    "image_rolled": Program(lambda t, x, w: t.roll(x @ w, (-3,), (1,)).exp(), _of(64, 56, 56, 96), _of(96, 96)),
    "class_token": Program(lambda t, x, w, token: t.cat([x @ w, token], 1), _of(16, 196, 768), _of(768, 768), _of(16, 1, 768)),
    "half_appended": Program(lambda t, cache, new: t.cat([cache, new], 1), _of(16, 1024, 512), _of(16, 1024, 512)),
    "start_before_labels": Program(lambda t, start, ids: t.cat([start, ids], 1).exp().sum(1), _of(16, 1, 512), _of(16, 1024, 512)),
    "joined_and_summed": Program(lambda t, x, bias: t.cat([x, bias], 1).sum(1), _of(16, 1024, 512), _of(16, 1, 512)),
    # Heads whose loss was left out.
    "head_left_out": Program(_head_left_out, _of(4096, 1024), _of(1024, 512), _of(512, 512), _of(512, 512), backward=True),
    "head_as_target": Program(partial(_head_left_out, is_taken=True), _of(4096, 1024), _of(1024, 512), *[_of(512, 512)] * 2, backward=True),
    # Rows that are gathered and added up.
    "messages": Program(_messages, _of(5000, 256, number=FP32), _ids(100000), _ids(100000), _of(100000, 1, number=FP32)),
    "sums_returned_and_read": Program(
        lambda t, x, rows, at: x.index_add(0, at, rows).exp(), _of(50000, 256), _of(100000, 256), _ids(100000)
    ),
    # Arrays that a select rewrites to change one position.
    "position_selected": Program(_selected, _of(16, 1024, 512), _of(16, 1, 512), _ids(1)),
    "position_selected_and_read": Program(
        lambda t, cache, new, at: (_selected(t, cache, new, at), cache.sum()), _of(16, 1024, 512), _of(16, 1, 512), _ids(1)
    ),
    "positions_selected": Program(
        lambda t, x, y, at: t.where(t.arange(1024, device=x.device)[:, None] < at, y, x), *[_of(16, 1024, 512)] * 2, _ids(1)
    ),
    # Arrays that are stored several times over.
    "repeated_heads": Program(_attended, _of(8, 32, 1024, 128), _of(8, 8, 1024, 128), _of(8, 8, 1024, 128)),
    "repeated_keys": Program(lambda t, q, k: q @ _grouped(t, k, 4).transpose(-1, -2), _of(8, 32, 1024, 128), _of(8, 8, 1024, 128)),
    "repeated_keys_returned": Program(
        lambda t, q, k: (q @ (keys := _grouped(t, k, 4)).transpose(-1, -2), keys), _of(8, 32, 1024, 128), _of(8, 8, 1024, 128)
    ),
    "repeated_side_by_side": Program(lambda t, q, k: q @ k.repeat(1, 4, 1, 1).transpose(-1, -2), _of(2, 8, 256, 64), _of(2, 2, 2048, 64)),
    "repeated_beside_attention": Program(
        lambda t, q, k, v, other: (t.nn.functional.scaled_dot_product_attention(q, k, v), other.repeat(1, 4, 1, 1).exp()),
        *[_of(2, 8, 2048, 64)] * 3,
        _of(2, 2, 2048, 64),
    ),
    "gathered_matrices": Program(lambda t, x, ids, w: t.bmm(x[:, None], w[ids]), _of(1024, 512), _ids(1024), _of(64, 512, 512)),
    "gathered_blocks_once": Program(lambda t, x, ids, w: t.bmm(x[:, None], w[ids]), _of(64, 512), _ids(64), _of(64, 512, 512)),
    "gathered_pages": Program(
        lambda t, q, pages, ids: q @ pages[ids].view(64, 8, 1024, 128).transpose(-1, -2),
        _of(64, 8, 1, 128),
        _of(8192, 8, 16, 128),
        _ids(64, 64),
    ),
    "gathered_pages_returned": Program(
        lambda t, q, pages, ids: (q @ (keys := pages[ids].view(64, 8, 1024, 128)).transpose(-1, -2), keys),
        _of(64, 8, 1, 128),
        _of(8192, 8, 16, 128),
        _ids(64, 64),
    ),
    "repeated_columns": Program(lambda t, x, w: x @ w[:, :, None].expand(512, 512, 8).reshape(512, 4096), _of(8192, 512), _of(512, 512)),
    "patches": Program(lambda t, x, w: w @ t.nn.functional.unfold(x, 3, padding=1), _of(16, 64, 64, 64), _of(128, 576)),
    "patches_trained": Program(
        lambda t, x, w: w @ t.nn.functional.unfold(x, 3, padding=1), _of(16, 64, 64, 64), _of(128, 576), backward=True
    ),
    "patches_apart": Program(lambda t, x, w: w @ t.nn.functional.unfold(x, 4, stride=4), _of(16, 64, 64, 64), _of(128, 1024)),
    "weights_of_each_place": Program(
        lambda t, x, w: t.nn.functional.unfold(x, 3, padding=1).view(16, 64, 9, 4096).permute(3, 0, 1, 2).reshape(4096, -1, 9) @ w,
        _of(16, 64, 64, 64),
        _of(4096, 9, 1),
    ),
    "repeated_mask": Program(_masked, *[_of(8, 16, 1024, 64)] * 3, _of(8, 1024)),
    # Matmuls that are written out.
    "written_out": Program(lambda t, q, k: (q[:, :, None] * k[:, None]).sum(-1), _of(16, 32, 128), _of(16, 4096, 128)),
    "written_out_and_returned": Program(lambda t, x, w: ((p := x[:, :, None] * w).sum(1), p), _of(512, 1024), _of(1024, 1024)),
    "distances": Program(lambda t, x, y: ((x[:, None] - y) ** 2).sum(-1), _of(4096, 512), _of(2048, 512)),
    "absolute_distances": Program(lambda t, x, y: (x[:, None] - y).abs().sum(-1), _of(4096, 512), _of(2048, 512)),
    "weighted_sums": Program(lambda t, x, w: (x * w).sum(-1), _of(8192, 4096), _of(4096)),
    "sums_of_two": Program(lambda t, x, w: (x[:, :, None] * w[:, None]).sum(0), _of(2, 64), _of(2, 524288)),
    # Equal operators on equal arrays.
    "computed_twice": Program(lambda t, x, w: (t.tanh(x @ w).sum(), t.tanh(x @ w) * 2), _of(4096, 1024), _of(1024, 2048)),
    "computed_of_equal_views": Program(lambda t, x, w: (x[1024:] @ w.t(), (x[1024:] @ w.t()).exp()), _of(4096, 1024), _of(2048, 1024)),
    "computed_of_changed": Program(_changed_between, _of(4096, 1024), _of(1024, 2048)),
    "computed_of_other_rows": Program(lambda t, x, w: (x[:2048] @ w, (x[2048:] @ w).exp()), _of(4096, 1024), _of(1024, 2048)),
    "dropped_out_twice": Program(lambda t, x: (_dropped(t, x), _dropped(t, x).exp()), _of(4096, 2048)),
    "checkpointed": Program(_checkpointed, _of(4096, 1024), _of(1024, 2048), _of(2048, 1024), backward=True),
    # Numbers in a wider format than needed.
    "widened_product": Program(lambda t, x, w: x.float() @ w.float(), _of(2048, 1024), _of(1024, 1024)),
    "cast_weights": Program(_of_cast_weights, _of(2048, 1024), _of(1024, 1024), _of(1024, 1024, number=FP32)),
    "cast_weights_trained": Program(_of_cast_weights, _of(2048, 1024), _of(1024, 1024), _of(1024, 1024, number=FP32), backward=True),
    "cast_data": Program(lambda t, x, w: x.to(w.dtype) @ w, _of(2048, 1024, number=FP32), _of(1024, 1024)),
    "dequantized_weights": Program(
        lambda t, x, w, scale: x @ _dequantized(t, w, scale), _of(512, 1024), _of(1024, 1024, number=INT8), _of(1024)
    ),
    "dequantized_and_returned": Program(
        lambda t, x, w, scale: (x @ (wide := _dequantized(t, w, scale)), wide), _of(512, 1024), _of(1024, 1024, number=INT8), _of(1024)
    ),
    "dequantized_images": Program(lambda t, x, w: x.to(w.dtype) @ w, _of(2048, 1024, number="uint8"), _of(1024, 1024)),
    "dequantized_cache": Program(
        _attended_to_quantized, _of(4, 8, 512, 64), _of(4, 8, 2048, 64, number=INT8), _of(4, 8, 2048, 64, number=INT8), _of(1)
    ),
    "in_doubles": Program(lambda t, x: (x.double() * 2).float(), _of(4096, 1024, number=FP32)),
    "complex_convolution": Program(_convolved_by_complex_transforms, _of(64, 4096, number=FP32), _of(64, 4096, number=FP32)),
    "real_convolution": Program(_convolved_by_real_transforms, _of(64, 4096, number=FP32), _of(64, 4096, number=FP32)),
    "complex_signals": Program(lambda t, z: t.fft.ifft(t.fft.fft(z) * 2).real, _of(64, 4096, number="complex64")),
    "spectrum_turned": Program(lambda t, x: t.fft.ifft(t.fft.fft(x) * 1j), _of(64, 4096, number=FP32)),
    "layer_in_fp32": Program(lambda t, x, w: t.relu(x @ w), _of(2048, 1024, number=FP32), _of(1024, 1024, number=FP32)),
    "routed_in_fp32": Program(_routed, _of(2048, 1024), _of(1024, 1024), _of(1024, 16, number=FP32)),
    "normal_equations": Program(_normal_equations, _of(16, 256, 64, number=FP32)),
    # Weights that are joined in every call.
    "weights_stacked": Program(lambda t, x, e, *w: t.bmm(x @ e, t.stack(w)), _of(2, 64, 1024), _of(1024, 1024), *2 * [_of(1024, 1024)]),
    "weights_joined": Program(lambda t, x, e, *w: (x @ e) @ t.cat(w, 1), _of(64, 1024), _of(1024, 1024), *3 * [_of(1024, 512)]),
    "weights_joined_and_returned": Program(
        lambda t, x, e, *w: ((x @ e) @ (a := t.cat(w)), a), _of(64, 512), _of(512, 1024), *2 * [_of(512, 512)]
    ),
    "rows_joined": Program(lambda t, x, y, w: t.cat([x, y]) @ w, _of(2048, 512), _of(2048, 512), _of(512, 512)),
    # Matrices that are written out from two small arrays.
    "kronecker": Program(lambda t, a, b, x: t.kron(a, b) @ x, _of(32, 32), _of(32, 32), _of(1024, 512)),
    "outer_product": Program(lambda t, u, v, x: t.outer(u, v) @ x, _of(1024), _of(2048), _of(2048, 256)),
    "scaled_rows": Program(lambda t, u, w, x: (u[:, None] * w) @ x, _of(1024), _of(1024, 2048), _of(2048, 256)),
    "separable_filter": Program(
        lambda t, x, g: t.nn.functional.conv2d(x, (g[:, None] * g).expand(32, 1, 25, 25).contiguous(), groups=32),
        _of(8, 32, 256, 256),
        _of(25),
    ),
    # Work for one that is done for all, and work of every n-th step.
    "condition_of_each_token": Program(
        lambda t, c, w: t.nn.functional.linear(c[:, None].expand(-1, 512, -1), w), _of(16, 1024), _of(1024, 1024)
    ),
    "prompts_repeated": Program(
        lambda t, ids, e, w: t.nn.functional.embedding(ids.repeat_interleave(8, 0), e) @ w, _ids(4, 256), _of(3000, 1024), _of(1024, 1024)
    ),
    "images_repeated": Program(
        lambda t, x, w: t.relu(t.nn.functional.conv2d(x.repeat_interleave(8, 0), w)), _of(4, 64, 64, 64), _of(128, 64, 3, 3)
    ),
    "every_sixteenth": Program(_every_sixteenth, _of(2048, 1024), _of(1024, 1024), ((), INT64)),
    # Elements at positions that are counted, and at positions that are given.
    "every_second_row": Program(
        lambda t, x, w: x.index_select(1, t.arange(0, 512, 2, device=x.device)) @ w, _of(16, 512, 1024), _of(1024, 1024)
    ),
    "given_rows": Program(lambda t, x, w, at: x.index_select(1, at) @ w, _of(16, 512, 1024), _of(1024, 1024), _ids(256)),
    "rows_repeated_by_count": Program(lambda t, x, w: x[:, t.arange(1024, device=x.device) // 2] @ w, _of(16, 512, 1024), _of(1024, 1024)),
    # Steps of training whose optimizer has all weights, or the last ones alone.
    "both_updated": Program(partial(_updated, of=lambda up, down: [up, down]), _of(2048, 512), _of(512, 1024), _of(1024, 512)),
    "last_updated": Program(partial(_updated, of=lambda up, down: [down]), _of(2048, 512), _of(512, 1024), _of(1024, 512)),
}
