"""Kinds of findings with PyTorch's terms, where the default ones are those of JAX."""

from msgspec.structs import replace

from .finding_kinds import KINDS, Kind
from .tpu_finding_kinds import TPU_KINDS

TORCH = "torch"  # the format of recordings of PyTorch's profiler

_GRAPHS = "torch.compile(model, mode='reduce-overhead'), or CUDA graphs, which launch all kernels of a step at once"
_OPTIMIZER = "an optimizer with fused=True, or foreach=True, which updates all parameters in a few kernels"
_SENT_AHEAD = "DataLoader(pin_memory=True) and .to(device, non_blocking=True)"

_HALF = "torch.autocast with bf16: half the bytes"

TORCH_LEVERS: dict[str, tuple[str, ...]] = {
    "idle-input": (
        "DataLoader(num_workers=…, prefetch_factor=…, persistent_workers=True)",
        "transform data in the workers, not in the loop",
    ),
    "idle-sync": (
        "keep the loss on the device: avoid .item(), .cpu(), print and branches on tensors in every step",
        "masks and torch.where instead of nonzero and boolean indexing",
    ),
    "idle-callback": ("compute it with PyTorch operators on the device, or after the step",),
    "idle-compile": ("pad batches to a few sizes, or torch.compile(dynamic=True)", "TORCH_LOGS=recompiles says why it compiles again"),
    "idle-transfer": (_SENT_AHEAD, "keep data that is reused on the device"),
    "one-hot-product": ("nn.Embedding or F.embedding instead of one_hot(tokens) @ weight",),
    "dense-experts": ("sort tokens by expert and use a grouped matmul (torch._grouped_mm, a Triton or CUTLASS grouped kernel)",),
    "stored-attention": (
        "F.scaled_dot_product_attention, which runs flash or cuDNN attention; in nn.MultiheadAttention it needs need_weights=False",
        "flash_attn, or FlexAttention for other masks",
    ),
    "masked-attention": ("is_causal=True instead of a mask tensor", "FlexAttention with a block mask"),
    "recomputation": (
        "checkpoint fewer layers (torch.utils.checkpoint), or with a policy that keeps matmuls (create_selective_checkpoint_contexts)",
        "compare the peak memory with the capacity",
    ),
    "product-order": ("A @ (B @ x) instead of (A @ B) @ x; torch.linalg.multi_dot chooses the order itself",),
    "repeated-operand": ("F.scaled_dot_product_attention(enable_gqa=True) instead of repeat_interleave of keys and values",),
    "dense-gradient": ("nn.Embedding or nn.EmbeddingBag with sparse=True, and SparseAdam, Adagrad or SGD for the table",),
    "duplicated-work": ("return the value from the first use",),
    "layout-copies": (
        "drop .contiguous() and .clone(), as matmuls and attention take strided operands; or make a transposed tensor contiguous once",
        "memory_format=torch.channels_last for the whole model, not for single layers",
    ),
    "host-copies": (_SENT_AHEAD, "keep data that is reused on the device", "send narrower formats: uint8 images, int32 tokens"),
    "latency": (_GRAPHS, _OPTIMIZER),
    "memory": ("torch.compile, so that intermediates never reach memory", _HALF),
    "products": (
        "sizes that are multiples of 64; larger batches",
        "torch.set_float32_matmul_precision('high') for fp32, torch.autocast with bf16",
    ),
    "communication": (
        "of gradients: DistributedDataParallel(bucket_cap_mb=…, gradient_as_bucket_view=True)",
        "of tensor parallelism: matmuls in parts, which overlap with the collectives of other parts",
        "bf16 gradients: a communication hook",
    ),
}
# For kernels of Inductor.
TORCH_COMPILED: dict[str, tuple[str, ...]] = {
    "memory": ("torch.compile(mode='max-autotune'), which tries more kernels", _HALF),
    "latency": ("torch.compile(mode='reduce-overhead'), which replays the kernels of a step as a CUDA graph", "larger batches"),
}
# For ops on the host's CPU, where there are no kernel launches and no graphs.
_FEWER_OPS = "torch.compile(model), which fuses operators and leaves out most of the Python between them"
TORCH_CPU_LEVERS: dict[str, tuple[str, ...]] = {
    "latency": (_FEWER_OPS, _OPTIMIZER),
    "products": (
        "a thread on each core: OMP_NUM_THREADS, torch.set_num_threads; larger batches",
        "torch.autocast('cpu', torch.bfloat16) where the CPU has AMX or AVX-512 BF16",
    ),
}
TORCH_CPU_WORDS = {
    "idle-dispatch": Kind(
        "the time between operators, in Python and PyTorch's dispatcher",
        "Run fewer and larger operators",
        "Python and PyTorch's dispatcher ran between operators, in {activity}",
        (_FEWER_OPS, "fused or foreach optimizers; larger batches"),
    ),
}
# For sentences about programs, which eager PyTorch does not have.
TORCH_WORDS = {
    "idle-dispatch": Kind(
        "the kernels that the host launches one by one, more slowly than the device runs them",
        "Launch fewer kernels, by compiling the model or replaying it as a graph",
        "the host was launching kernels one by one, in {activity}",
        (_GRAPHS, "fused or foreach optimizers; larger batches"),
    ),
    "wide-format": replace(
        KINDS["wide-format"],
        change="Use tf32 or bf16 instead of fp32, and fp32 instead of fp64",
        levers=(
            "torch.set_float32_matmul_precision('high') lets fp32 matmuls run as tf32",
            "bf16 weights and activations: model.bfloat16(), or torch.autocast with weights that stay cast",
            "queries, keys and values in bf16: cast back what tables of positions or norms in fp32 have promoted",
        ),
    ),
    "missing-donation": Kind(
        "the cache that is copied in full to append to it",
        "Allocate it once at its full size and write each entry in place",
        levers=(
            "cache[:, :, position] = new, or index_copy_, into a cache of the longest sequence",
            "a static cache of the library: transformers' cache_implementation='static'",
        ),
    ),
    "unfused-chain": Kind(
        "the elementwise operators, each of which reads and writes memory",
        "Compile them, so that they fuse",
        levers=("torch.compile(model), or torch.compile of the function that calls them",),
    ),
}
# For programs whose kernels mostly run in graphs already.
REPLAYED = Kind(
    "the host's work between graph replays",
    "Put more of the step into one graph, or more work into each replay",
    "the host was between graph replays, in {activity}",
    (
        "one graph of the whole step with its optimizer (torch.cuda.graph), in place of one for each compiled function",
        "larger batches; compiled functions with fewer arguments, which the host checks before every replay",
    ),
)
# For programs that are compiled, but not replayed.
LAUNCHED_BY_COMPILED = replace(
    TORCH_WORDS["idle-dispatch"], change="Replay the compiled code as a graph, which launches all kernels at once"
)
# For the ops of one group within a kind.
TORCH_GROUPS = {
    ("unfused-chain", "optimizer"): Kind(
        "the optimizer, which runs as many separate operators over all parameters",
        "Run it as one kernel, with fused=True",
        levers=(_OPTIMIZER, "torch.compile of the optimizer's step"),
    ),
    ("unfused-chain", "loss"): Kind(
        "the loss, which reads and writes its logits in memory several times",
        "Fuse the loss with its gradient, or compute it in chunks of rows",
        levers=(
            "torch.compile of the function that computes the loss",
            "a fused linear cross-entropy (Liger, Cut Cross-Entropy), which never stores all logits",
            "bf16 logits: no .float() before F.cross_entropy, which computes in fp32 anyway",
        ),
    ),
    ("masked-attention", "built"): Kind(
        "the attention mask, which is built in memory, and the scores that it removes",
        "Let the kernel compute the mask, and skip masked blocks",
        levers=("is_causal=True instead of a mask tensor", "FlexAttention with a block mask", "build the mask once, before the steps"),
    ),
    ("masked-attention", "bias"): Kind(
        "the attention bias, which is built in memory, and the scores that its mask removes",
        "Let the kernel compute the bias from the positions, and skip masked blocks",
        levers=(
            "FlexAttention, with a score_mod that adds the bias and a block mask for the causal part",
            "where sizes do not change, build the bias once, before the steps",
        ),
    ),
    ("masked-attention", "keys"): Kind(
        "the attention mask that is the same for all queries, which flash kernels do not take",
        "Leave the mask out where nothing is padded, and pack sequences where they are",
        levers=(
            "attn_mask=None where all tokens are real: a mask of zeros, or of True, has no effect",
            "sequences of different lengths without padding: flash_attn_varlen_func, nested tensors, or FlexAttention with a block mask",
        ),
    ),
    ("layout-copies", "beams"): Kind(
        "the cache that is copied in full to put its rows in another order",
        "Leave the rows in place, and follow their order by index",
        levers=(
            "give attention a table of the row of each beam and position (a paged cache does), or copy only the rows that change",
            "keep what all beams have in common, such as the prompt's keys and values, in a tensor of its own",
        ),
    ),
    ("layout-copies", "pages"): Kind(
        "the pages of a cache that are gathered before attention reads them",
        "Use a kernel that reads the pages where they lie",
        levers=("attention with a page table: FlashInfer, flash_attn_with_kvcache(block_table=…), or FlexAttention over a paged cache",),
    ),
    ("layout-copies", "norms"): Kind(
        "the copies between convolutions with channels last and norms, which take channels first",
        "Compile the model, as compiled norms take any layout; or leave channels first",
        levers=("torch.compile(model)", "drop memory_format=torch.channels_last where most norms are group or instance norms"),
    ),
    ("layout-copies", "channels"): Kind(
        "the tensors that convolutions convert to channels last and back",
        "Keep channels last everywhere",
        levers=("model.to(memory_format=torch.channels_last), and the same for its input: convolutions, norms and pools then keep it",),
    ),
    ("layout-copies", "depthwise"): Kind(
        "the depthwise convolutions with channels first, which a slow kernel computes",
        "Keep channels last everywhere",
        levers=("model.to(memory_format=torch.channels_last), and the same for its input: depthwise convolutions then run in cuDNN",),
    ),
    ("repeated-operand", "mask"): Kind(
        "the attention mask, which is stored several times over",
        "Let attention read it once, as a mask that broadcasts",
        levers=("mask[:, None, None, :], or mask.expand(…), without repeat() and contiguous()", "build it once, before the layers"),
    ),
    ("unfused-chain", "messages"): Kind(
        "the rows that are gathered, stored and then added up",
        "Gather and add them in one kernel",
        levers=(
            "torch.compile of the function that gathers and adds: it fuses both, with what is computed in between",
            "for edges that stay the same: a matmul with a sparse matrix in CSR format, A @ x, whose gradient is A.T @ g",
        ),
    ),
    ("repeated-operand", "gathered rows"): Kind(
        "the rows that are gathered several times over and then multiplied",
        "Multiply each row once, and gather the results",
        levers=("linear(x)[edges] instead of linear(x[edges])",),
    ),
    ("repeated-operand", "joined rows"): Kind(
        "the rows that are gathered several times over, joined with others and then multiplied",
        "Split the weights, multiply each row once, and gather and add the results",
        levers=("a(x)[edges] + b(y) instead of linear(torch.cat([x[edges], y], -1)), with a and b the parts of its weights",),
    ),
    ("repeated-operand", "unfolded"): Kind(
        "the patches of a convolution, which are stored for a matmul",
        "Use a convolution, which reads overlapping patches in place",
        levers=("F.conv2d(x, w, padding=…) instead of w.flatten(1) @ F.unfold(x, …)",),
    ),
    ("product-order", "merged"): Kind(
        "the gradients of whole weights, where only low-rank factors are trained",
        "Multiply by the factors, without adding them to the weights",
        levers=("F.linear(x, w) + F.linear(F.linear(x, a), b) instead of F.linear(x, w + b @ a); merge them only to infer",),
    ),
    ("unused-results", "gradients"): Kind(
        "the gradients that no optimizer uses",
        "Do not compute them",
        levers=(
            "weights.requires_grad_(False) where a loss does not train them",
            "loss(generated.detach()) where the loss does not train what generated it, as a discriminator's does not train the generator",
        ),
    ),
    ("unused-results", "zeros"): Kind(
        "the gradients that are filled with zeros and added to",
        "Drop them instead, so that the backward pass stores new ones",
        levers=("optimizer.zero_grad(), or zero_grad(set_to_none=True), after each step of the optimizer",),
    ),
    ("unused-results", "statistics"): Kind(
        "the batch norms in training mode, in a program that trains nothing",
        "Evaluate with the stored mean and variance",
        levers=(
            "model.eval() before the steps, which changes the results to those of the trained model; torch.inference_mode() around them",
            "then torch.compile, which fuses the norms with their neighbours",
        ),
    ),
    ("duplicated-work", "gradients"): Kind(
        "the backward pass that runs twice through the same ops",
        "Run it once, for the sum of the losses; or detach what one of the losses does not train",
        levers=(
            "(a + b).backward() instead of a.backward(retain_graph=True) and b.backward()",
            "loss(generated.detach()) where generated is to be trained by the other loss only",
        ),
    ),
    ("odd-sizes", "lengths"): Kind(
        "the Fourier transforms of lengths with a large prime factor",
        "Pad to the next length with small prime factors only",
        levers=("torch.fft.rfft(x, n) with n the next power of 2, or the next length whose only prime factors are 2, 3, 5 and 7",),
    ),
    ("odd-sizes", "tiny batch"): Kind(
        "the matmuls of matrices that are far smaller than a kernel's tile",
        "Multiply and add by element, in one compiled kernel",
        levers=("torch.compile of (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2) in place of a @ b, together with what follows",),
    ),
    ("layout-copies", "channels of volumes"): Kind(
        "the tensors that convolutions convert to channels last and back",
        "Keep channels last everywhere",
        levers=("model.to(memory_format=torch.channels_last_3d), and the same for its input: convolutions and batch norms then keep it",),
    ),
    ("wide-format", "double"): Kind(
        "the work in fp64",
        "Compute in fp32",
        "computes in fp64, or casts to it and back",
        levers=("tensor.float(), or dtype=torch.float32 where tensors are made: fp64 usually comes from NumPy arrays, and propagates",),
    ),
    ("wide-format", "dequantized"): Kind(
        "the weights that are dequantized again in every step",
        "Multiply by them as they are, in a kernel for quantized weights, or keep them in bf16",
        levers=("torchao's quantize_ with Int8WeightOnlyConfig, or a Marlin kernel; without those, weights in bf16 take less time",),
    ),
    ("wide-format", "dequantized cache"): Kind(
        "the cache that is dequantized before attention reads it",
        "Let attention read it as it is, in a kernel for quantized caches, or keep it in bf16 if it fits",
        levers=(
            "attention kernels for an fp8 or int8 cache (FlashInfer, FlashAttention 3, vLLM); without one, a cache in bf16 takes less time",
        ),
    ),
    ("wide-format", "casts"): Kind(
        "the weights that are cast again in every step",
        "Keep a bf16 copy of the weights",
        levers=("bf16 weights with fp32 copies in the optimizer, instead of torch.autocast over fp32 weights",),
    ),
    ("wide-format", "operands"): Kind(
        "the casts between fp32 and a narrow format",
        "Keep weights and activations in bf16",
        levers=(
            "torch.compile, which fuses casts with what comes before them",
            "bf16 weights with fp32 copies in the optimizer, instead of torch.autocast over fp32 weights",
        ),
    ),
}


def kinds_for(
    format: str, *, on_tpu: bool = False, on_cpu: bool = False, replayed: bool = False, compiled: bool = False
) -> dict[str, Kind]:
    """The kinds of findings in the terms of the recording's framework, and of its hardware: TPUs, or CPUs without kernels and launches.

    ``replayed`` is whether most of the work is replayed in graphs, ``compiled`` whether compiled code launches most kernels.
    """
    if format != TORCH:
        return TPU_KINDS if on_tpu else KINDS
    levers = {**TORCH_LEVERS, **TORCH_CPU_LEVERS} if on_cpu else TORCH_LEVERS
    of_inductor = {} if on_cpu else TORCH_COMPILED
    kinds = {name: replace(KINDS[name], levers=mine, compiled=of_inductor.get(name, ()), looped=()) for name, mine in levers.items()}
    dispatch = {"idle-dispatch": REPLAYED if replayed else LAUNCHED_BY_COMPILED} if replayed or compiled else {}
    return {**KINDS, **kinds, **TORCH_WORDS, **dispatch, **(TORCH_CPU_WORDS if on_cpu else {})}
