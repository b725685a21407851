"""Kinds of findings that no rule makes: the headline of each, the change that helps, and where to start.

Those that rules make have their words in ``rules/KIND/words.toml``. `docs/findings.md` has a section on each kind.
"""

from collections.abc import Mapping

from msgspec import Struct


class Kind(Struct, frozen=True):
    """A kind of finding.

    ``title`` ends the sentence "start with …"; ``change`` is what to do, in one clause; ``phrase`` is the observation. ``compiled`` are the
    levers where a compiler generated the kernels with most of the saving, if they differ from ``levers``, ``looped`` those where loops of
    JAX programs run these kernels, and ``linear`` those where such loops compute linear recurrences. ``by_category`` are the levers where
    most of the saving is in ops of one category, by default those of `LEVERS_BY_CATEGORY`.
    """

    title: str
    change: str
    phrase: str = ""
    levers: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()
    looped: tuple[str, ...] = ()
    linear: tuple[str, ...] = ()
    by_category: Mapping[str, tuple[str, ...]] | None = None


Kinds = Mapping[str, Kind]  # by their names


# What helps against an excess, by its visible cause.
CLOCK = "compare clocks and power with those of another run: a throttled device is slow in every op"
KERNEL = "another kernel for the same op: autotuning, the vendor's library, operands with the contracted dimension last"
FUSED = "another form of the computation, which the compiler fuses in another way: sum along the last dimension, or apart from what follows"
COUNT = "count what it really moves: roofline analyze --counters FILE.csv"
REUSE = "larger tiles, or another order of them, so that operands are read from cache"
PAD = "pad sizes ({sizes}) to a multiple of {least}: faster kernels load 16 bytes at a time, which needs such rows"
TURN = "store both operands with the contracted dimension last, as 8-bit kernels of the vendor's library need them"

KINDS: dict[str, Kind] = {
    "idle-input": Kind(
        "the input pipeline, which the device waits for",
        "Prepare the next batch while the device runs",
        "the host was in {activity}",
        (
            "load and transform data in other threads or processes, some batches ahead",
            "dispatch the next step before preparing the batch after it",
        ),
    ),
    "idle-sync": Kind(
        "the values that the host reads back while the device waits",
        "Read values some steps later, or less often",
        "the host read a value back and then was in {activity}",
        ("keep the loss on the device and read it every hundredth step", "log from another thread"),
    ),
    "idle-callback": Kind(
        "the callback to the host inside the program",
        "Compute it on the device, or after the step",
        "the program waited for a callback to the host, {activity}",
        ("replace pure_callback, io_callback and debug prints by operations on the device", "return the value and use it after the step"),
    ),
    "idle-compile": Kind(
        "the compilation during steps",
        "Call the program with the same shapes and static arguments in every step",
        "the host compiled {activity}",
        (
            "pad batches to a few sizes",
            "pass changing Python values as arrays, not as static arguments",
            "keep the compilation cache between runs",
        ),
    ),
    "idle-dispatch": Kind(
        "the many small programs that the host launches one by one",
        "Compile the whole step as one program",
        "the host was launching small programs, in {activity}",
        ("jit the function that calls them, not its parts", "update all parameters in one jitted call"),
    ),
    "idle-transfer": Kind(
        "the copies between host and device that nothing overlaps",
        "Copy the next batch while this one is computed",
        "the host moved data, in {activity}",
        (
            "send data ahead with an asynchronous copy (jax.device_put before the step that needs it)",
            "keep data that is reused on the device",
        ),
    ),
    "idle-device": Kind(
        "the device that the others wait for",
        "Give every device the same work",
        "it waited for another device",
        ("compare the devices: work, clocks, hosts",),
    ),
    "idle": Kind(
        "the idle time of the device",
        "Give the device work all the time",
        "the profile does not show what the host did",
        ("record the profile with host tracing on, to see what the host did",),
    ),
    "matrix-fill": Kind(
        "the matmuls whose sizes fill part of the matrix unit",
        "Use sizes that are multiples of the unit's rows and columns",
        levers=(
            "hidden sizes, head sizes and channels in multiples of 128 (256 on v6e and v7x): fewer, larger heads cost the same FLOP",
            "a first convolution of few channels: move blocks of 2×2 or 4×4 pixels into the channels (space to depth)",
            "one matmul instead of several narrow ones that share an operand: join their weights",
        ),
    ),
    "host-copies": Kind(
        "the copies between host and device",
        "Copy while the device computes",
        levers=(
            "keep data that is reused on the device",
            "send narrower formats: uint8 images, int32 tokens",
            "use pinned memory and copy ahead",
        ),
    ),
    "latency": Kind(
        "the latency-bound kernels",
        "Make fewer, larger kernels",
        levers=("batch small operations: one over stacked arrays in place of several over parts", "larger batches"),
        looped=(
            "lax.scan(…, unroll=8), or lax.associative_scan where the state enters linearly",
            "one kernel for the whole recurrence (Pallas, Triton)",
        ),
        linear=(
            "lax.associative_scan(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), (a, b))[1] for the states of h = a * h + b",
            "lax.scan(…, unroll=8), or one kernel for the whole recurrence (Pallas, Triton)",
        ),
    ),
    "excess": Kind(
        "the ops that take longer than usual on this chip",
        "Bring such ops to their usual time",
        levers=(KERNEL, COUNT, CLOCK),
        compiled=(FUSED, COUNT, CLOCK),
    ),
    "memory": Kind(
        "the memory-bound kernels",
        "Bring such kernels to the bandwidth that good ones reach",
        levers=("fuse neighbours, so that intermediates never reach memory", "store narrower number formats"),
    ),
    "products": Kind(
        "the matmuls",
        "Bring such kernels to the rate that good ones reach",
        levers=("sizes that are multiples of the tile; more tiles than the chip has cores", "the vendor's kernel, or an autotuned one"),
    ),
    "compute": Kind(
        "the compute-bound kernels other than matmuls",
        "Bring such kernels to the rate that good ones reach",
        levers=("check number formats and transcendental functions",),
    ),
    "few-blocks": Kind(
        "the kernels with fewer blocks than the GPU has SMs",
        "Spread their work over all SMs",
        levers=("more blocks than SMs: split long loops over blocks (split-K, partial sums)",),
    ),
    "uneven-blocks": Kind(
        "the kernels in which some blocks run long after the others",
        "Give all SMs equal work",
        levers=(
            "smaller blocks of equal work, or a number of them that fills whole waves",
            "as many blocks as fit on the GPU at once, each of which fetches its next piece of work (persistent kernels)",
        ),
    ),
    "scattered-access": Kind(
        "the kernels whose threads access addresses far apart",
        "Let neighbouring threads access neighbouring addresses",
        levers=("transpose tiles in shared memory, or in the layout before", "one array per field, not an array of structs"),
    ),
    "bank-conflicts": Kind(
        "the bank conflicts in shared memory",
        "Let the threads of a warp access different banks",
        levers=("pad rows by a word (33 instead of 32), or use a swizzled layout",),
    ),
    "spilled-registers": Kind(
        "the registers that kernels spill to memory",
        "Keep their values in registers",
        levers=(
            "fewer values per thread: smaller tiles, less unrolling, more warps per tile",
            "more registers per thread: smaller blocks, a higher limit (__launch_bounds__, maxnreg)",
        ),
    ),
    "local-arrays": Kind(
        "the per-thread arrays in local memory",
        "Keep them in registers or shared memory",
        levers=("index them by constants: unroll the loops over them", "keep them in shared memory"),
    ),
    "contended-atomics": Kind(
        "the atomics on few addresses",
        "Sum up in registers and shared memory first, with one atomic per block",
        levers=("warp and block reductions (tl.sum, cub::BlockReduce) before the atomic", "a private copy per block, merged at the end"),
    ),
    "divergence": Kind(
        "the warps whose threads take different paths",
        "Give the threads of a warp equal work",
        levers=("sort or group the work by its length", "a warp instead of a thread for each item"),
    ),
    "low-occupancy": Kind(
        "the kernels with few warps",
        "Let more warps run at once, or let each load more before it waits",
        levers=("smaller tiles, fewer registers or less shared memory per block", "asynchronous copies, several stages ahead"),
    ),
    "narrow-access": Kind(
        "the kernels that load and store few bytes at a time",
        "Load and store 16 bytes per thread",
        levers=("vector types (float4, uint4), or several consecutive elements per thread",),
    ),
    "cache-traffic": Kind(
        "the kernels that are bound by L2",
        "Read each value from L2 less often",
        levers=("larger tiles, whose values are reused in registers and shared memory",),
    ),
    "communication": Kind(
        "the exposed communication",
        "Overlap it with work that does not depend on it",
        levers=("send fewer bytes: another sharding, a narrower format", "start collectives earlier"),
    ),
}

# For factorisations that run as fast as they can.
FACTORISE_LESS = (
    "factorise less often (a preconditioner every 10 to 100 steps), or iterate with matmuls (Newton-Schulz for roots and inverses)",
    "the cheapest factorisation: Cholesky for symmetric matrices, solve instead of inv, eigh instead of svd",
)
# For depthwise convolutions, the first in fp32: on an H200, of eight sizes tried in PyTorch and JAX, seven took 13 to 35 times as long as
# in bf16; windows of 3x3 and 5x5 do not.
DEPTHWISE_FP32 = "with windows of 7x7, channels last: gradients of the weights in bf16, for which cuDNN has faster kernels than for fp32"
DEPTHWISE = ("a kernel of its own (Pallas, Triton): the library's kernels for many groups of channels run far below the bandwidth",)
# Levers where most of the saving is in ops of one category.
LEVERS_BY_CATEGORY = {
    ("memory", "optimizer"): (
        "store the moments in fewer bytes: bf16 or 8-bit states",
        "one kernel that reads and writes every parameter once (fused=True, a multi-tensor kernel)",
    ),
    ("memory", "scatter"): (
        "replace the scatter by a gather with the inverse permutation, or by a scan over sorted rows",
        "repeat by broadcasting and reshaping, whose gradient is a sum: the gradient of a gather or a resize is a scatter",
    ),
    ("memory", "reduction"): (
        "for sums along the first dimension (bias gradients), which keep few units busy: sum along the last, or multiply by ones",
        "fuse neighbours, so that intermediates never reach memory",
    ),
    ("memory", "depthwise convolution"): ("channels last and a 16-bit format, for which cuDNN has kernels",),
    ("memory", "depthwise convolution along one axis"): ("a kernel for that, such as causal_conv1d for windows of two to four",),
    ("memory", "convolution"): (
        "where input channels are few: pad them to a multiple of 8, or fold blocks of pixels into channels (space to depth)",
        "one layout, channels last, in front of the convolution",
    ),
    ("memory", "sort"): (
        "if only the largest are used: jax.lax.top_k, torch.topk; for a median or another quantile: that of a sample of the elements",
        "fewer and narrower keys, and fewer arrays that are sorted with them",
    ),
    ("memory", "top-k"): (
        "where rows are few and long, which keeps few units busy: the top k of each part of a row first, then the top k of those",
        "a narrower number format, or fewer elements: drop those below a threshold computed from the maximum of each block",
    ),
    ("memory", "quantized matmul"): (
        "weights in bf16, which take less time from 8 rows on than PyTorch's int4 kernel (measured on an H200)",
        "a kernel for this number of rows: Marlin or Machete (vLLM)",
    ),
    ("memory", "custom call"): (
        "tune the kernel: more rows per block, more warps, loads of 16 bytes, more stages in flight",
        "fuse neighbours, so that intermediates never reach memory",
    ),
    ("memory", "fft"): (
        "transforms of real data as rfft and irfft, along the last dimension, of sizes with small prime factors",
        "several transforms in one call",
    ),
    ("host-copies", "pageable transfer"): (
        "pinned host memory, which copies several times as fast: pin_memory(), DataLoader(pin_memory=True) and non_blocking=True, "
        "save_on_cpu(pin_memory=True)",
        "keep data that is reused on the device; activations that do not fit can be recomputed (torch.utils.checkpoint)",
    ),
    ("products", "convolution"): (
        "where input channels are few: pad them to a multiple of 8, or fold blocks of pixels into channels (space to depth)",
        "channels that are multiples of 64; larger batches",
        "a kernel as large as its stride: cut the input into patches and multiply",
    ),
    ("products", "custom call"): (
        "tune the kernel: larger tiles, more stages in flight, more warps per block",
        "the vendor's kernel (jnp.dot, cuBLAS), or an autotuned one",
    ),
    ("products", "template"): (
        "let Inductor choose cuBLAS too: torch._inductor.config.max_autotune_gemm_backends='ATEN,TRITON', or compile without max-autotune",
        "sizes that are multiples of 64; larger batches",
    ),
    ("products", "flex attention"): (
        "without a score_mod, and with no mask or a causal one: F.scaled_dot_product_attention, whose kernels are faster",
        "torch.compile(mode='max-autotune-no-cudagraphs'), or kernel_options, for other sizes of blocks; a score_mod without tanh and exp",
    ),
    ("compute", "linear algebra"): (
        "many small matrices in one batched call",
        *reversed(FACTORISE_LESS),
    ),
    ("memory", "attention"): (
        "another fused attention kernel: cuDNN's, or FlashAttention-3 on Hopper",
        "heads that share keys and values, and a narrower format for these",
    ),
    # On an H200, x[i], index_select, embedding and gather take 963 µs for 1.6 M rows of 4, 64 or 128 fp32 numbers.
    ("memory", "gather of rows"): (
        "fewer and wider rows, as PyTorch's kernels take as long for 4 numbers as for 128; or torch.compile of the function that gathers",
        "gather tensors that share their indices as one, concatenated before",
    ),
    ("memory", "gather"): ("gather whole rows that lie together, with sorted indices", "store narrower number formats"),
}

# For a scatter that adds 16-bit numbers: on an H200, XLA adds about 125 G of bf16 a second and 320 G to 1,500 G of fp32.
NARROW_SUM = "scatter-add in fp32, and convert the sum: 16-bit numbers are added one at a time, and take several times as long"

# For a scatter that adds many rows to few: on an H200, XLA adds 131,072 rows of 256 bf16 to 64 in 93 ms; a matmul takes less than 0.1 ms.
FEW_SUMS = "a matmul with one-hot rows where many rows are added to a few, one after the other: jax.nn.one_hot(ids, n, axis=0) @ x"

# The ``roofline whatif`` change that a kind of finding recommends.
ASKED = {
    "stored-attention": "kernel attention=flash",
    "dense-experts": "grouped",
    "recomputation": "remat off",
    "missing-donation": "donate",
    "unfused-chain": "fuse all",
}


def levers_for_category(name: str, kind: Kind, category: str) -> tuple[str, ...]:
    """The levers of a kind of finding for ops of one category; empty if they are those of the kind."""
    return LEVERS_BY_CATEGORY.get((name, category), ()) if kind.by_category is None else kind.by_category.get(category, ())
