"""Groups within a kind of finding that have their own headline, change and advice."""

from .finding_kinds import Kind

IN_FP64 = Kind(
    "the work in fp64",
    "Compute in fp32, if its precision is enough (matmuls then run in tf32)",
    "computes in fp64",
    levers=(
        "check jax_enable_x64 and stray NumPy float64 constants",
        "fp64 only where it is needed: a long sum, or one step of iterative refinement of a solution in fp32",
    ),
)
NARROW = "weights and activations in bf16, with preferred_element_type for matmuls whose result is needed in fp32"
IN_FP32 = Kind(
    "the work in a wider number format than needed",
    "Use bf16, in which matmuls accumulate in fp32 anyway",
    levers=(NARROW,),
)
# On an H200 the messages of a graph are added 8 times as fast in fp32 as in bf16: the whole program took 3.4 times as long in bf16.
BESIDE_SUMS = Kind(
    IN_FP32.title,
    "Use bf16 for matmuls alone, which accumulate in fp32 anyway, and keep scatter-adds (segment_sum) in fp32, several times as fast",
    levers=("cast to bf16 in front of each matmul, and its result back to fp32 in front of a gather or a scatter-add", NARROW),
)
UNROLLED = Kind(
    "the recomputation of the forward pass in a scan over layers",
    "Unroll the scan and store more activations, if memory allows",
    levers=(
        "lax.scan(…, unroll=True) without jax.checkpoint; a scan that is not unrolled copies stored activations into stacked arrays "
        "and out again, which takes about as long as computing them again",
        "compare the peak memory with the capacity",
    ),
)
GROUPS = {
    ("missing-donation", "donated"): Kind(
        "the arguments that are copied in full although they are donated",
        "Use old values only before the update, and return each result in the position of its argument",
        "makes full copies of donated arguments that it then updates in place",
        ("read the old value before the update, or use the new one", "return updated arguments in the order of the inputs"),
    ),
    ("missing-donation", "shifted"): Kind(
        "the arguments that are copied in full to add a small part to them",
        "Write the small part into a buffer of full length, in place",
        "copies arguments in full to add a small part to them",
        (
            "a ring buffer: cache.at[:, i % n].set(new), which is donated, and a mask by position",
            "lax.dynamic_update_slice into an array that has room for all positions",
        ),
    ),
    ("missing-donation", "rebuilt"): Kind(
        "the array that a loop copies in full to change a small part of it",
        "Carry it through the loop and update it in place",
        "copies an array in full in a loop to change a small part of it",
        (
            "carry the whole array, not its slices as xs and ys of a scan: cache.at[layer, :, position].set(new)",
            "do not split and stack the array around the loop",
        ),
    ),
    ("layout-copies", "selected"): Kind(
        "the arguments that are rewritten in full by a select, to change one position",
        "Write the new position alone, in place",
        "rewrites arrays in full, with a select, to change one position of each",
        (
            "cache.at[rows, :, positions].set(new), or lax.dynamic_update_slice at one position, instead of "
            "jnp.where(jnp.arange(n) == position, new, cache)",
            "donate the array (jax.jit(f, donate_argnums=…)), so that the update is in place",
        ),
    ),
    ("layout-copies", "reordered"): Kind(
        "the arguments that are copied in full to put their rows in another order",
        "Leave the rows in place, and follow their order by index",
        "copies arguments in full to put their rows in another order",
        levers=(
            "for beams: keep the cache in place, and give attention a table of the row of each beam and position; or share pages",
            "rows that all beams have in common, such as the prompt's, in an array of their own",
        ),
    ),
    ("layout-copies", "reordered in a loop"): Kind(
        "the arrays that a loop copies in full in every iteration to put their rows in another order",
        "Leave the rows in place, and follow their order by index",
        "copies arrays in full in every iteration of a loop to put their rows in another order",
        levers=(
            # A beam search of 16 requests in a while_loop takes 8.3 ms on an H200, 4.5 ms with a table (predicted: 3.8 ms saved).
            "for beams: carry a table of the row of each beam and position, reorder that, and gather by it where attention reads the cache",
            "rows that all beams have in common, such as the prompt's, in an array of their own, which is never reordered",
        ),
    ),
    ("layout-copies", "every state"): Kind(
        "the array that a loop copies in full in every iteration, although it changes a small part of it",
        "Return what is new in each iteration, or the last state alone",
        "copies an array in full in every iteration of a loop that changes a small part of it",
        levers=(
            "leave the array out of what the body of lax.scan returns for each iteration: (state, token), not (state, (token, cache)); the "
            "final state has it",
            "for its history: return the rows that the iteration writes, not the array",
        ),
    ),
    ("recomputation", "loop"): UNROLLED,
    ("layout-copies", "activations"): Kind(
        "the activations that a scan over layers copies into stacked arrays, and out again",
        "Unroll the scan, so that activations stay where they are",
        "copies activations into stacked arrays in a loop, and out of them in the backward loop",
        levers=(
            "lax.scan(…, unroll=True), or a Python loop over the layers; both take longer to compile",
            "jax.checkpoint around the body, which stores less and computes more",
        ),
    ),
    ("layout-copies", "stacked"): Kind(
        "the slices that are copied out of stacked weights for every matmul",
        "Keep each layer's weights in arrays of their own, which matmuls read in place",
        "copies slices out of stacked arguments before matmuls read them",
        levers=("a list of weights, one array per layer, and a Python loop over the layers, which takes longer to compile than a scan",),
    ),
    ("padding", "groups"): Kind(
        "the capacity of experts, which is far above the tokens that they get",
        "Lower the capacity",
        levers=(
            "a capacity factor of 1.25: 1.25 times the tokens over the experts, for each expert",
            "a grouped matmul without padding: rows sorted by expert and jax.lax.ragged_dot, or megablox",
        ),
    ),
    ("layout-copies", "arguments"): Kind(
        "the arguments whose layout is changed in every call",
        "Store them the way matmuls read them",
        levers=(
            "transpose them once, before the calls: with w as [out, in], x @ w is jax.lax.dot_general(x, w, (((1,), (1,)), ((), ())))",
            "8-bit kernels of the vendor's library need both operands with the contracted dimension last",
        ),
    ),
    ("layout-copies", "blocks"): Kind(
        "the blocks that are gathered into one piece before matmuls read them",
        "Use a kernel that reads the blocks where they lie",
        "gathers blocks of an array, such as pages of a cache, into one piece before matmuls read them",
        levers=("a kernel for attention over pages, which follows the page table: jax.experimental.pallas.ops.gpu.paged_attention",),
    ),
    ("repeated-operand", "gathered"): Kind(
        "the matrices that are gathered for each row of a matmul",
        "Sort the rows by their matrix and use a grouped matmul",
        levers=("jax.lax.ragged_dot with a grouped kernel, or megablox: rows sorted by expert read each matrix once",),
    ),
    ("repeated-operand", "pairs"): Kind(
        "the differences between all pairs of rows",
        "Compute squared distances with a matmul",
        levers=(
            "(x * x).sum(-1)[:, None] + (y * y).sum(-1) - 2 * x @ y.T",
            "precision='highest' for the matmul where points are close together: their distance is a small difference of large numbers",
        ),
    ),
    ("repeated-operand", "branches"): Kind(
        "the weights that vmap repeats for every row, because the branches of a cond use them",
        "Compute both branches for the whole batch with matmuls, and choose with jnp.where",
        levers=(
            "jnp.where(p[:, None], f(x), g(x)) instead of vmap of lax.cond, which computes both branches for every row anyway",
            "the rows of the costly branch alone: rows = jnp.nonzero(p, size=most)[0], then g(x).at[rows].set(f(x[rows]))",
        ),
    ),
    ("repeated-operand", "patches"): Kind(
        "the patches of a convolution, which are stored for a matmul",
        "Use a convolution, which reads overlapping patches in place",
        levers=("jax.lax.conv_general_dilated, with the weights as [height, width, channels, features]",),
    ),
    ("repeated-operand", "rows"): Kind(
        "the rows that are repeated and then multiplied each time",
        "Multiply each row once, and repeat the results",
        levers=(
            "(x @ w)[edges] instead of x[edges] @ w; jnp.repeat(tower(x), n, 0) instead of tower(jnp.repeat(x, n, 0))",
            "for concatenated inputs, multiply the repeated part by its own rows of the weights: x @ w[:n] + y @ w[n:]",
        ),
    ),
    ("one-hot-product", "diagonal"): Kind(
        "the matmul with a diagonal matrix",
        "Multiply the elements, x * d instead of x @ diag(d)",
        levers=("x * d scales the columns of x, d[:, None] * x its rows",),
    ),
    ("wide-format", "arguments"): Kind(
        "the arguments that are cast in every call",
        "Cast them once, before the calls",
        levers=("weights = jax.tree.map(lambda w: w.astype(jnp.bfloat16), weights), outside of the jitted function",),
    ),
    ("wide-format", "cache"): Kind(
        "the cache that is kept in a wider format than its values had",
        "Keep the cache in the format of the values",
        levers=("jnp.zeros(shape, jnp.bfloat16) for the cache, and no astype where it is updated and read",),
    ),
    ("wide-format", "fp32"): IN_FP32,
    ("wide-format", "full fp32"): Kind(
        "the matmuls in full fp32, without tf32",
        "Multiply in tf32, the default for fp32 operands",
        levers=(
            "avoid precision='highest', and a jax_default_matmul_precision above 'tensorfloat32'; bf16 operands take half the time of tf32",
            *IN_FP32.levers,
        ),
    ),
    ("wide-format", "fp64"): IN_FP64,
    ("wide-format", "fp64 arguments"): Kind(
        IN_FP64.title,
        IN_FP64.change,
        IN_FP64.phrase,
        levers=(
            "fp32 for most of the work, and fp64 where it is needed: the residual of an iterative refinement, a long sum",
            "arguments in fp32: all that this program was given is fp64",
        ),
    ),
    ("wide-format", "complex"): Kind(
        "the Fourier transforms of real numbers as complex ones",
        "Use the transforms for real numbers, rfft and irfft",
        "transforms real numbers as complex ones",
        levers=(
            "jnp.fft.irfft(jnp.fft.rfft(x, n) * jnp.fft.rfft(k, n), n) instead of jnp.fft.ifft(…).real: half of each spectrum is enough",
        ),
    ),
    ("wide-format", "weights"): Kind(
        "the quantized weights that are widened before matmuls read them",
        "Multiply the weights as they are stored, and scale the result",
        levers=(
            "(x @ w.astype(x.dtype)) * scale instead of x @ (w.astype(x.dtype) * scale): a matmul kernel can widen what it reads",
            "both operands in fp8, multiplied as they are (jax.lax.dot with preferred_element_type), where there are many rows",
        ),
    ),
    ("odd-sizes", "transforms"): Kind(
        "the Fourier transforms of lengths with a large prime factor",
        "Pad to the next length with small prime factors only",
        levers=("jnp.fft.rfft(x, n) with n the next power of 2, or the next length whose only prime factors are 2, 3, 5 and 7",),
    ),
    ("odd-sizes", "windows"): Kind(
        "the gradients of weights that run as convolutions with windows as large as the image",
        "Write the convolution without dilation, so that the library has a kernel for its gradient",
        levers=(
            "transposed: a plain convolution to stride × stride × features channels, then a reshape of these into pixels (depth to space)",
            "dilated: plain convolutions of dilation × dilation interleaved images (a reshape and a transpose before and after)",
        ),
    ),
    ("product-order", "inverse"): Kind(
        "the inverses that are computed only to be multiplied",
        "Solve for the columns instead of inverting the matrices",
        levers=(
            "jnp.linalg.solve(a, b) instead of jnp.linalg.inv(a) @ b; several b of one matrix in one call",
            "symmetric positive definite matrices (covariances): cho_solve((jnp.linalg.cholesky(a), True), b), half the work of LU",
        ),
    ),
    ("odd-sizes", "tiny"): Kind(
        "the matmuls with tiny matrices",
        "Multiply elementwise and sum, which compiles into one kernel",
        levers=(
            "(a[..., :, :, None] * b[..., None, :, :]).sum(-2) instead of a @ b, or the sums written out",
            "what is applied in a row to the same array (rotations, gates): multiply the small matrices with each other first",
        ),
    ),
    ("odd-sizes", "stencil"): Kind(
        "the stencil that is computed as a convolution of one channel",
        "Add shifted slices of the array, which compile into one kernel",
        levers=("p = jnp.pad(u, 1); p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + …, each with its factor; jnp.roll for periodic borders",),
    ),
    ("odd-sizes", "tiny solves"): Kind(
        "the factorisations of tiny matrices, for which a library is slow",
        "Write the factorisation out, elementwise over the batch, which compiles into one kernel",
        levers=(
            "Python loops over i and j, unrolled by jit, on arrays a[:, i, j] over the batch: s = a[i][j] - sum(l[i][k] * l[j][k] for k < "
            "j), "
            "l[i][j] = s / l[j][j], and on the diagonal its root; the two solves likewise",
        ),
    ),
    ("duplicated-work", "loop"): Kind(
        "the work that every iteration of a loop repeats",
        "Do it once, before the loop",
        levers=(
            "a cast or a function of the weights in front of lax.scan or lax.while_loop, whose body closes over the result",
            "for gradients of the weights: differentiate with respect to the cast ones, and cast the sum of the gradients",
        ),
    ),
    ("duplicated-work", "windows"): Kind(
        "the gradient of the pooling, which searches every window again and scatters to its maximum",
        "Take the maximum over dimensions of a reshaped array, whose gradient is elementwise",
        levers=("x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4)) instead of lax.reduce_window or max_pool with windows of 2×2",),
    ),
    ("duplicated-work", "shuffle"): Kind(
        "the shuffle, which sorts several times",
        "Sort once, by random keys",
        levers=(
            "x[jnp.argsort(jax.random.bits(key, (len(x),)))] instead of jax.random.permutation(key, x): a few equal keys keep their order",
        ),
    ),
    ("low-batch", "loop"): Kind(
        "the loop whose iterations each read the same weights for a few rows",
        "Multiply the rows of several iterations at once (eight times as many take about as long)",
        levers=(
            "compute what does not depend on the loop's state in one matmul before it: xs @ w for all iterations, then lax.scan over its "
            "rows; and what only its stacked results need in one after it",
            "larger microbatches, and fewer of them",
        ),
    ),
    ("low-batch", "one by one"): Kind(
        "the small matmuls of one shape that run one by one, though none needs another's result",
        "Run them as one batched matmul",
        levers=(
            "stack their operands: jax.vmap over members, heads or towers, or jnp.einsum('ebd,edf->ebf', x, w), instead of a Python loop",
            "rows that are multiplied by the same weights: one matmul of all rows",
        ),
    ),
    ("low-batch", "carried"): Kind(
        "the gradients of weights that a loop adds up in every iteration",
        "Store their factors in every iteration, and multiply once after the loop",
        levers=(
            "jax.custom_vjp around the scan, whose backward scan returns the gradients of the gates, dgates, of all steps: "
            "then dw = jnp.einsum('tbi,tbj->ij', inputs, dgates)",
        ),
    ),
    ("product-order", "batch"): Kind(
        "the batched matmuls whose results are summed over the batch",
        "Sum in one matmul, which contracts the batch too",
        "computes a matrix for each member of a batch and then adds these up",
        levers=(
            "jax.grad of the mean of the losses, not the mean over jax.vmap(jax.grad(loss)), which stores a gradient per example",
            "jnp.einsum('bij,bik->jk', x, y) instead of jnp.einsum('bij,bik->bjk', x, y).sum(0)",
        ),
    ),
    ("unused-results", "condition"): Kind(
        "the work that every step does and few steps use",
        "Compute it only in the steps that use it",
        "computes what a select throws away in most steps",
        levers=(
            "lax.cond(step % n == 0, f, lambda …: 0.0, …), which computes one branch; jnp.where with a scalar condition computes both",
        ),
    ),
    ("unused-results", "sorted"): Kind(
        "the sort of which few elements are used",
        "Select the largest, without sorting the rest",
        levers=("jax.lax.top_k(x, k) or torch.topk(x, k); jax.lax.approx_max_k where an approximate result is enough",),
    ),
    ("unused-results", "sampled"): Kind(
        "the sort of the whole vocabulary, to sample one token",
        "Select the few hundred likeliest tokens first, and sample from those",
        levers=(
            "values, tokens = logits.topk(256), top-p among these with logits.logsumexp(-1) as their sum, then tokens.gather(-1, sampled)",
            "a sampling kernel that does not sort: top_p_sampling_from_probs of FlashInfer",
        ),
    ),
    ("unused-results", "masked"): Kind(
        "the sorts of whole rows, to find which elements to keep",
        "Find the least value to keep, without sorting",
        "sorts whole rows, drops some elements and sorts the others back",
        levers=(
            "bisect the threshold: 24 passes of enough = jnp.where(p >= middle, p, 0).sum(-1) >= top_p over each row, then "
            "jnp.where(p >= low, logits, -jnp.inf)",
            "jax.lax.top_k(logits, 256) first, and top-p among those, with jax.nn.logsumexp(logits) as their sum",
        ),
    ),
    ("unused-results", "quantile"): Kind(
        "the sort for a quantile",
        "Compute it from a sample of the elements, if an estimate is enough",
        levers=("jnp.quantile(x[::step], q): a sample of 50,000 elements gives the 99th percentile to within about 0.1% in rank",),
    ),
    ("one-hot-product", "running"): Kind(
        "the running sum that is computed as a matmul",
        "Add up along the rows, with jnp.cumsum",
        levers=("jnp.cumsum(x, axis) instead of tril(ones) @ x",),
    ),
    ("one-hot-product", "bins"): Kind(
        "the histogram that compares every element with every bin",
        "Add to the bins with a scatter-add",
        levers=("jnp.bincount(ids, length=bins), or jnp.zeros(bins).at[ids].add(1); jax.ops.segment_sum for sums of values",),
    ),
    ("one-hot-product", "slots"): Kind(
        "the tokens that are dispatched to experts by matmuls with one-hot masks",
        "Write the slots with a scatter, and read the results with a gather",
        levers=(
            "slots = jnp.zeros((experts, capacity, d)).at[expert, slot].set(x, mode='drop'), and y[expert, slot] of the results",
            "tokens sorted by expert, and jax.lax.ragged_dot, which needs no slots",
        ),
    ),
}
