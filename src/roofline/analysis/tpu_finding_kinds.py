"""Findings in the terms of TPUs, where the default ones are those of GPUs: tiles of 8x128, matrix unit, VMEM, DMA, compiler flags.

The flags are compiler options of libtpu 0.0.42.1, as ``compile(compiler_options={…})`` takes them.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from .finding_groups import GROUPS, IN_FP32
from .finding_kinds import CLOCK, FUSED, KINDS, Kind

TILES = "tiles of 8x128: a last dimension that is a multiple of 128, and a second to last one of 8 (16 in bf16, 32 in int8)"
FILL = "sizes that are multiples of 128 (256 on v6e and TPU7x), the rows and columns of the matrix unit"
IN_VMEM = "fuse with neighbours, so that intermediates stay in VMEM"
VMEM_LIMIT = "more VMEM for the tiles of each kernel, where the rest leaves room: xla_tpu_scoped_vmem_limit_kib=65536"
BLOCKS = "in a Pallas kernel, blocks as large as VMEM holds (CompilerParams(vmem_limit_bytes=…)), so that operands are read less often"
NARROW = "store narrower number formats: bf16 instead of fp32, int8 for weights and caches"
FASTER = "a format of a higher rate, where accuracy allows: int8, at twice that of bf16 on v5e, v5p and v6e, or fp8 on TPU7x"
FOLD = "where input channels are few: fold blocks of pixels into channels (space to depth)"
SPLASH = "jax.experimental.pallas.ops.tpu.splash_attention, or flash_attention beside it, which skip masked blocks"
GROUPED = "megablox (jax.experimental.pallas.ops.tpu.megablox.gmm), or jax.lax.ragged_dot: rows sorted by expert"
PREFETCH = "two blocks of each operand in VMEM: a Pallas grid, or pltpu.emit_pipeline, copies the next by DMA while this one is computed"
COLLECTIVE_MATMUL = (
    "compare collective matmuls, which send parts of an operand while others are multiplied, with matmuls in one piece: "
    "xla_jf_spmd_threshold_for_windowed_einsum_mib=0 and =1000000"
)
AHEAD = "give the scheduler independent work between what a collective sends and what needs its result: another microbatch, another layer"
FEWER_BYTES = "send fewer bytes: another sharding, a narrower format"

IN_FP32_PASSES = "Compute in fp32, if its precision is enough (matmuls then run in passes of bf16)"

LEVERS: dict[str, tuple[str, ...]] = {
    "dense-experts": (GROUPED,),
    "stored-attention": (SPLASH,),
    "masked-attention": ("splash attention with a causal mask, whose kernels skip masked blocks",),
    "recomputation": (
        "a remat policy that keeps more: jax.checkpoint_policies.dots_saveable, or save_only_these_names for the largest matmuls",
        "one that offloads to the host's memory: save_and_offload_only_these_names; compare the peak memory with the capacity",
    ),
    "padding": (
        "pad to the next multiple of 128 (256 on v6e and TPU7x) only, or sort examples by length",
        "a grouped matmul for parts of different sizes (megablox); a lower capacity of experts",
    ),
    "tile-padding": (
        "put a large dimension last: [heads, size, batch] rather than [batch, size, heads] of a few heads; 128 channels rather than 64",
        "merge small dimensions: [1024, 4, 32] as [1024, 128]",
    ),
    "layout-copies": (
        "order the dimensions of arguments and results the way the program uses them, or let the compiler choose: jax.jit(f, "
        "in_shardings=Format(Layout.AUTO), out_shardings=Format(Layout.AUTO)) of jax.experimental.layout",
        "transpose inside a jitted function, where it can fuse, not between two",
    ),
    "odd-sizes": ("pad vocabulary, heads and hidden sizes to multiples of 128, or 256 on v6e and TPU7x",),
    "host-copies": (
        "keep data that is reused in HBM; offload fewer activations (save_and_offload_only_these_names)",
        "send narrower formats: uint8 images, int32 tokens",
        "copy ahead: jax.device_put of the next batch before the step that needs it",
    ),
    "memory": (IN_VMEM, NARROW, TILES),
    "products": (FILL, FASTER, VMEM_LIMIT, BLOCKS),
    "compute": (
        "fewer transcendental functions; sums as matmuls, on the matrix unit",
        "bf16 instead of fp32 on TPU7x, whose vector unit computes in bf16",
    ),
    "communication": (COLLECTIVE_MATMUL, AHEAD, FEWER_BYTES),
    "excess": (FUSED, CLOCK),
}
# Levers of findings about single ops, by the kind of advice.
ADVICE: dict[str, tuple[str, ...]] = {
    "between-roofs": ("tile so that more of the working set stays in VMEM", "order tiles so that neighbours reuse what is still in VMEM"),
    "latency": (
        "batch small operations into one, or fuse them with a neighbour",
        "jit the whole step, so that no Python runs between its parts",
        "one Pallas kernel whose grid does many pieces of work",
    ),
    "no-overlap": (
        PREFETCH,
        "start communication early and overlap it with independent work",
    ),
    "far-below": (
        "check for host overhead: Python between small programs, synchronisation and transfers leave the device idle",
        "run fewer, larger ops: batch or fuse",
        TILES,
    ),
    "memory-far": (TILES, PREFETCH, IN_VMEM),
    "memory-middle": (IN_VMEM, "larger blocks, which DMA copies at a higher rate"),
    "memory-close": (IN_VMEM, NARROW, "reuse each byte more: larger blocks in VMEM, a larger batch"),
    "compute-far": (FILL, "check that the matrix unit is used, in the intended number format", VMEM_LIMIT),
    "compute-middle": (FILL, VMEM_LIMIT),
    "vector-instead-of-matrix": (
        "use a number format that the matrix unit supports: bf16, fp32 in passes of bf16, int8 or fp8 where the chip has them",
        "write it as a matmul that the compiler recognises; pad small or odd dimensions",
    ),
    "unknown": (
        "give their FLOP and bytes: columns of a table, rl.register_call for a custom call, else the option or function in their notes",
    ),
}
_WORDS: dict[str, Kind] = {
    "odd-sizes": replace(
        KINDS["odd-sizes"], title="the matmuls with sizes that fill little of the matrix unit", change="Pad the sizes to a multiple of 128"
    ),
    "latency": replace(
        KINDS["latency"],
        looped=tuple(lever.replace("(Pallas, Triton)", "(Pallas)") for lever in KINDS["latency"].looped),
        linear=tuple(lever.replace("(Pallas, Triton)", "(Pallas)") for lever in KINDS["latency"].linear),
    ),
}
# Levers where most of the saving is in ops of one category; those of a kind for others.
_BY_CATEGORY: dict[str, Mapping[str, tuple[str, ...]]] = {
    "memory": {
        "optimizer": ("store the moments in fewer bytes: bf16 or 8-bit states",),
        "scatter": (
            "replace the scatter by a gather with the inverse permutation, or by a scan over sorted rows",
            "repeat by broadcasting and reshaping, whose gradient is a sum: the gradient of a gather or a resize is a scatter",
        ),
        "sort": ("if only the largest are used: jax.lax.top_k, or jax.lax.approx_max_k", "fewer and narrower keys"),
        "top-k": ("jax.lax.approx_max_k, where an approximate result is enough",),
        "gather": ("gather whole rows that lie together, with sorted indices", NARROW),
        "convolution": ("channels last, in multiples of 128", FOLD),
        "custom call": (BLOCKS, PREFETCH),
    },
    "products": {
        "convolution": ("channels in multiples of 128, in and out", FOLD),
        "custom call": (BLOCKS, FILL),
    },
}
# Of one group within a kind, where that of `GROUPS` is about GPUs.
_GROUPS: dict[tuple[str, str], Kind] = {
    ("recomputation", "loop"): replace(KINDS["recomputation"], levers=LEVERS["recomputation"]),
    ("layout-copies", "blocks"): replace(
        GROUPS["layout-copies", "blocks"],
        levers=("a kernel for attention over pages, which follows the page table: jax.experimental.pallas.ops.tpu.paged_attention",),
    ),
    ("layout-copies", "arguments"): replace(GROUPS["layout-copies", "arguments"], levers=GROUPS["layout-copies", "arguments"].levers[:1]),
    ("padding", "groups"): replace(GROUPS["padding", "groups"], levers=(GROUPS["padding", "groups"].levers[0], GROUPED)),
    ("repeated-operand", "gathered"): replace(GROUPS["repeated-operand", "gathered"], levers=(GROUPED,)),
    ("wide-format", "fp64 arguments"): replace(GROUPS["wide-format", "fp64 arguments"], change=IN_FP32_PASSES),
    ("wide-format", "fp64"): replace(GROUPS["wide-format", "fp64"], change=IN_FP32_PASSES),
    # Its scatter-adds in fp32 are faster on GPUs; nobody measured them on TPUs.
    ("wide-format", "fp32"): replace(
        IN_FP32, levers=("weights and activations in bf16: half the bytes, and no pass that narrows operands",)
    ),
    ("odd-sizes", "windows"): replace(
        GROUPS["odd-sizes", "windows"], change="Write the convolution without dilation, whose gradient has small windows"
    ),
}


def _kind(name: str) -> Kind:
    """The words of a kind of finding on TPUs."""
    kind = _WORDS.get(name, KINDS[name])
    return replace(
        kind,
        levers=LEVERS.get(name, kind.levers),
        compiled=() if name in LEVERS else kind.compiled,
        by_category=_BY_CATEGORY.get(name, {}),
        groups={group: words for (of, group), words in _GROUPS.items() if of == name},
    )


def without(kinds: Mapping[str, Kind], name: str, lever: str) -> dict[str, Kind]:
    """The kinds without a lever that cannot help a program."""
    return {**kinds, name: replace(kinds[name], levers=tuple(words for words in kinds[name].levers if words != lever))}


_CHANGED = {*LEVERS, *_WORDS, *_BY_CATEGORY, *(name for name, _ in _GROUPS)}
TPU_KINDS: dict[str, Kind] = {**KINDS, **{name: _kind(name) for name in KINDS if name in _CHANGED}}
