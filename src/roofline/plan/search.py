"""Plans in order: every mesh, microbatch, recomputation and format that the question leaves free, the fastest that fit first.

Memory is counted before time, so plans that cannot fit cost nothing; a mesh with every axis given is predicted whether it fits or not.
"""

from collections.abc import Iterator
from itertools import product
from math import gcd, prod

from msgspec.structs import replace

from ..errors import UsageError
from ..units import show
from .anchors import asked_anchor
from .memory import TIGHT, memory_of, shares
from .mesh import AXES, Mesh, complete
from .plans import Fits, Plans, as_plan
from .question import Question
from .run import Run
from .step import step_of
from .times import Times, training_calibration
from .transformer import Attention, Experts
from .words import Format, Recompute

MOST_CONTEXT_FREE = 8192  # tokens of a sequence up to which no context ranks are tried
MOST_PIPELINE = 32
ORDER: tuple[Fits, ...] = ("yes", "tight", "needs offload")
VIRTUAL = (1, 2, 4, 5, 6, 8, 10, 12, 20)
MOST_MICROBATCH_TOKENS = 2**17  # of a device at a time, in a free search


def find_plans(question: Question, anchor: str = "") -> Plans:
    """The plans of a question, the best first; ``anchor`` is a measured step in words, which corrects them."""
    measured = asked_anchor(question, anchor) if anchor else None
    times = {
        format.name: Times(question.chips, format, question.stack.former_attention, training_calibration().values)
        for format in question.formats
    }
    fixed = question.mesh.fixes_all(question.model.has_experts)
    runs = list(_fixed(question) if fixed else _free(question))
    if not runs:
        raise UsageError(_why_none(question))
    kept = runs
    if not fixed:
        needed = [(_bytes(question, run, times[run.format.name]), run) for run in runs]
        kept = [run for size, run in needed if size <= TIGHT * question.usable]
        if not kept:
            raise UsageError(_none_fits(question, len(runs), min(size for size, _ in needed)))
    plans = [as_plan(question, run, step_of(question.model, run, times[run.format.name]), measured) for run in kept]
    ordered = sorted(plans, key=lambda plan: (ORDER.index(plan.fits), plan.step_s, plan.memory["total"]))
    return Plans.of(question, ordered, measured, tried=len(runs), too_large=len(runs) - len(kept))


def _bytes(question: Question, run: Run, times: Times) -> float:
    """Bytes of the fullest device of a run."""
    share = shares(question.model, run, question.chips.is_tpu)
    return memory_of(question.model, run, times, share).total


def _none_fits(question: Question, tried: int, least: float) -> str:
    room = show(question.usable, "B", 3)
    return (
        f"none of {tried} plans fits: the smallest needs {show(least, 'B', 3)} of {room} a device; take more chips, a smaller batch, "
        "--recompute full, or give every axis of --mesh to predict a plan that needs offload"
    )


def _why_none(question: Question) -> str:
    devices, sizes = question.chips.devices, question.mesh.sizes
    taken = prod(size for axis, size in sizes.items() if axis not in ("vp", "ep"))
    if devices % taken:
        return f"--mesh: {taken} devices do not divide {devices}"
    if sizes.get("ep", 1) > 1 and not question.model.has_experts:
        return f"--mesh: ep={sizes['ep']}, but {question.model.name} has no experts"
    return (
        f"no mesh of {devices} devices divides {question.batch} sequences with what is given; change --batch, --microbatch or --mesh "
        f"(axes: {', '.join(AXES)})"
    )


def _run(question: Question, mesh: Mesh, microbatch: float, format: Format, recompute: Recompute) -> Run:
    run = Run(
        mesh=mesh,
        batch=question.batch,
        microbatch=microbatch,
        length=question.length,
        format=format,
        recompute=recompute,
        stack=question.stack,
    )
    return replace(run, **question.settings) if question.settings else run


def _fixed(question: Question) -> Iterator[Run]:
    """The runs of a mesh that is given whole."""
    mesh = complete(question.mesh, question.chips.devices)
    _check(question, mesh)
    share = question.batch / mesh.replicas  # a rank has no more sequences than these
    given = [size for size in dict.fromkeys(min(size, share) for size in question.microbatches) if share >= 1 and share % size == 0]
    if not given:
        sizes = ", ".join(f"{size:g}" for size in question.microbatches)
        raise UsageError(f"--batch {question.batch}: not whole microbatches of {sizes} on each of {mesh.replicas} ranks")
    for microbatch, format, recompute in product(given, question.formats, question.policies):
        yield _run(question, mesh, microbatch, format, recompute)


def _check(question: Question, mesh: Mesh) -> None:
    """Raise for a mesh that no framework could run."""
    model = question.model
    if mesh.pipeline * mesh.virtual > model.depth + 2:
        raise UsageError(f"--mesh: {mesh.pipeline * mesh.virtual} stages for {model.depth} layers")
    experts = max((layer.feed.count for layer in model.layers if isinstance(layer.feed, Experts)), default=1)
    if mesh.experts > experts:
        raise UsageError(f"--mesh: ep={mesh.experts} for {experts} experts")


def _free(question: Question) -> Iterator[Run]:
    """The runs of all meshes that the question allows."""
    for mesh in meshes(question):
        for microbatch in question.microbatches:
            if not _divides(question, mesh, microbatch):
                continue
            for format, recompute in product(question.formats, question.policies):
                yield _run(question, mesh, microbatch, format, recompute)


def _divides(question: Question, mesh: Mesh, microbatch: float) -> bool:
    """Whether a batch is whole microbatches on every rank, in multiples of the stages where they interleave."""
    once = microbatch * mesh.replicas
    if question.batch % once:
        return False
    if len(question.microbatches) > 1 and microbatch > 1 and microbatch * question.length / mesh.context > MOST_MICROBATCH_TOKENS:
        return False
    return mesh.virtual == 1 or (question.batch / once) % mesh.pipeline == 0


def meshes(question: Question) -> Iterator[Mesh]:
    """Every mesh of the devices that keeps to the axes that are given."""
    model, chips = question.model, question.chips
    heads = gcd(*(layer.mixer.heads for layer in model.layers if isinstance(layer.mixer, Attention)), 0) or 1
    within = chips.devices if chips.is_tpu else chips.domain
    tensors = [size for size in _sizes(question, "tp", _powers(min(8, within))) if heads % size == 0 and size <= within]
    pipelines = _sizes(question, "pp", [1] if chips.is_tpu else _powers(MOST_PIPELINE))
    contexts = _sizes(question, "cp", [1] if question.length <= MOST_CONTEXT_FREE else _powers(32))
    for tensor, pipeline, context in product(tensors, pipelines, contexts):
        if chips.devices % (tensor * pipeline * context) or not _stages_divide(model.depth, pipeline):
            continue
        ranks = chips.devices // (tensor * pipeline * context)
        for fsdp in _shards(question, ranks, pipeline):
            for virtual, experts in product(_virtual(question, pipeline), _experts(question, ranks * tensor * context)):
                yield Mesh(
                    tensor=tensor, pipeline=pipeline, virtual=virtual, context=context, experts=experts, fsdp=fsdp, data=ranks // fsdp
                )


def _sizes(question: Question, axis: str, usual: list[int]) -> list[int]:
    """The sizes of an axis to try: the one that is given, or the usual ones up to the most."""
    if axis in question.mesh.sizes:
        return [question.mesh.sizes[axis]]
    most = question.most.get(axis, question.chips.devices)
    return [size for size in usual if size <= most]


def _powers(most: int) -> list[int]:
    return [2**power for power in range(most.bit_length()) if 2**power <= most]


def _stages_divide(depth: int, pipeline: int) -> bool:
    """Whether stages have as many layers each, embedding and head counting as two or none, or one stage less."""
    return pipeline == 1 or (pipeline <= depth and min(depth % pipeline, (depth + 2) % pipeline, (depth + 1) % pipeline) == 0)


def _virtual(question: Question, pipeline: int) -> list[int]:
    if pipeline == 1:
        return [] if question.mesh.sizes.get("vp", 1) > 1 else [1]
    depth = question.model.depth
    return [
        size
        for size in _sizes(question, "vp", list(VIRTUAL))
        if "vp" in question.mesh.sizes or size == 1 or 0 in (depth % (pipeline * size), (depth + 2) % (pipeline * size))
    ]


def _experts(question: Question, ranks: int) -> list[int]:
    counts = [layer.feed.count for layer in question.model.layers if isinstance(layer.feed, Experts)]
    if not counts:
        return [] if question.mesh.sizes.get("ep", 1) > 1 else [1]
    usual = [1] if question.chips.is_tpu else _powers(64)
    return [size for size in _sizes(question, "ep", usual) if max(counts) % size == 0 and size <= ranks]


def _shards(question: Question, ranks: int, pipeline: int) -> list[int]:
    """The FSDP ranks to try: all, one, or those of a domain or slice; whichever of fsdp and data is given fixes both."""
    sizes, rest = question.mesh.sizes, question.mesh.rest
    if "fsdp" in sizes or "data" in sizes:
        fsdp = sizes.get("fsdp") or ranks // sizes["data"]
        return [fsdp] if fsdp * sizes.get("data", ranks // fsdp) == ranks else []
    slices = question.chips.slices
    if question.chips.is_tpu:
        return [ranks // slices] if ranks % slices == 0 else [ranks]
    if rest == "fsdp":
        return [ranks]
    shards = [1] if rest == "data" or pipeline > 1 else [ranks, 1]
    near = question.chips.domain
    if pipeline == 1 and near < ranks and ranks % near == 0:
        shards.append(near)
    if question.stack.name in ("torchtitan", "torchtitan-eager", "llm-foundry"):
        shards = [ranks, *(size for size in shards if 1 < size < ranks)]
    most = question.most.get("fsdp", ranks)
    return [size for size in dict.fromkeys(shards) if size <= most]
