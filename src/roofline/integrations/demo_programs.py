"""Small programs for `roofline chips demo`: a matmul, attention, a normalisation and an elementwise chain, fused and unfused.

With JAX they run under its profiler; without it NumPy runs them, each op timed and priced by its formula.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

from msgspec import Struct

from ..analysis import analyze
from ..capture.session import Capture
from ..cost import Cost
from ..formulas import batched_matmul, bias, layernorm, matmul, relu, scale, softmax
from ..jax import require_jax
from ..ledger import Ledger
from ..machine import Machine
from ..operation import Label
from ..report import Report
from ..units import plain, show
from ..workload import Op, Recording, Workload

ROWS, WIDTH, WIDER, HEADS = 768, 512, 2048, 8
STEPS = 4
REPEATS, MOST_S = 8, 1.0  # executions of an op, and the seconds after which no more are started
BLOCK_ROWS = 16  # rows of the chain at a time, so that its intermediates stay in the L1 and L2 caches
FORMAT = "fp32"


def run_jax(chip: Machine) -> Report:
    """The program under JAX's profiler, on the CPU: steps ``unfused`` run each stage separately, steps ``fused`` one program."""
    jax = require_jax()
    stages = _jax_stages(jax)

    def together(x: Any) -> Any:
        return _in_turn(stages, x)

    with jax.default_device(jax.devices("cpu")[0]):
        unfused, fused = partial(_in_turn, [jax.jit(stage) for stage in stages]), jax.jit(together)
        x = jax.random.normal(jax.random.key(0), (ROWS, WIDTH), jax.numpy.float32)
        jax.block_until_ready((unfused(x), fused(x)))  # compiles
        with Capture(chip=chip) as captured:
            for name, run in (("unfused", unfused), ("fused", fused)):
                for step in range(STEPS):
                    with jax.profiler.StepTraceAnnotation(name, step_num=step):
                        jax.block_until_ready(run(x))
        return captured.report


def fused_and_unfused(report: Report) -> str:
    """The effect of fusion in a report of `run_jax` or `run_numpy`, in one line."""
    if report.steps:
        whats = "the program, stage by stage", "as one program"
        unfused, fused = (median(one.span_s or 0.0 for one in report.steps if one.name == name) for name in ("unfused", "fused"))
    else:
        whats = "the elementwise chain, op by op", "all ops on a few rows at a time"
        unfused, fused = (
            sum((op.time_s or 0.0) / op.count for op in report.ops if op.scope == f"chain/{name}") for name in ("unfused", "fused")
        )
    change = f"{plain(unfused / fused, 3)} times as fast" if fused else "too short to tell"
    return f"unfused ({whats[0]}): {show(unfused, 's', 3)}; fused ({whats[1]}): {show(fused, 's', 3)}, {change}"


def _in_turn(stages: Sequence[Callable[[Any], Any]], x: Any) -> Any:
    for stage in stages:
        x = stage(x)
    return x


def _jax_stages(jax: Any) -> list[Callable[[Any], Any]]:
    """The stages of the program, each a function of one array; their names become the names of compiled programs."""
    jnp = jax.numpy

    def product(x: Any) -> Any:
        return x @ (jnp.ones((WIDTH, WIDTH), x.dtype) / WIDTH)

    def attention(x: Any) -> Any:
        q = x.reshape(ROWS, HEADS, WIDTH // HEADS)
        weights = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", q, q) / (WIDTH // HEADS) ** 0.5)
        return jnp.einsum("hqk,khd->qhd", weights, q).reshape(ROWS, WIDTH)

    def normalisation(x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)

    def scaled(x: Any) -> Any:
        return x * 1.5

    def shifted(x: Any) -> Any:
        return x + 0.5

    def rectified(x: Any) -> Any:
        return jnp.maximum(x, 0)

    return [product, attention, normalisation, scaled, shifted, rectified]


class _Timed(Struct, frozen=True, kw_only=True):
    """An op of the NumPy program: its label, its scope, its formula's ledger, and the function that runs it."""

    label: str
    scope: str
    ledger: Ledger
    run: Callable[[], object]
    note: str = ""


def run_numpy(chip: Machine) -> Report:
    """The program in NumPy, each op timed and priced by its formula."""
    ops = tuple(_measured(number, one) for number, one in enumerate(_numpy_ops()))
    notes = ("NumPy has no profiler: each op was timed alone and priced by its formula, with every array read or written once",)
    return analyze(Recording(workload=Workload(ops), format="numpy", notes=notes), chip)


def _numpy_ops() -> list[_Timed]:
    import numpy as np

    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape, dtype=np.float32) for shape in ((ROWS, WIDTH), (WIDTH, WIDER)))
    q = random.standard_normal((HEADS, ROWS, WIDTH // HEADS), dtype=np.float32)
    wide = np.matmul(x, w)
    multiplied = _Timed(label="matmul", scope="mlp", ledger=matmul(ROWS, WIDTH, WIDER, dtype=FORMAT), run=lambda: np.matmul(x, w, out=wide))
    return [multiplied, *_attention_ops(q), _norm_op(wide), *_chain_ops(wide)]


_SEVERAL_CALLS = "several NumPy calls, each of which reads and writes whole arrays: a fused kernel would read once and write once"


def _attention_ops(q: Any) -> list[_Timed]:
    """Self-attention with stored scores."""
    import numpy as np

    head = WIDTH // HEADS
    scores = np.matmul(q, q.transpose(0, 2, 1))
    weights, mixed = np.empty_like(scores), np.empty_like(q)

    def soften() -> None:
        np.subtract(scores, scores.max(-1, keepdims=True), out=weights)
        np.exp(weights, out=weights)
        np.divide(weights, weights.sum(-1, keepdims=True), out=weights)

    return [
        _Timed(
            label="scores",
            scope="attention",
            ledger=batched_matmul(HEADS, ROWS, head, ROWS, dtype=FORMAT),
            run=lambda: np.matmul(q, q.transpose(0, 2, 1), out=scores),
        ),
        _Timed(label="softmax", scope="attention", ledger=softmax(HEADS * ROWS, ROWS, dtype=FORMAT), run=soften, note=_SEVERAL_CALLS),
        _Timed(
            label="values",
            scope="attention",
            ledger=batched_matmul(HEADS, ROWS, ROWS, head, dtype=FORMAT),
            run=lambda: np.matmul(weights, q, out=mixed),
        ),
    ]


def _norm_op(x: Any) -> _Timed:
    import numpy as np

    out = np.empty_like(x)

    def normalise() -> None:
        np.subtract(x, x.mean(-1, keepdims=True), out=out)
        np.divide(out, np.sqrt(np.square(out).mean(-1, keepdims=True) + 1e-5), out=out)

    ledger = layernorm(ROWS, WIDER, dtype=FORMAT)
    return _Timed(label="layer norm", scope="normalisation", ledger=ledger, run=normalise, note=_SEVERAL_CALLS)


def _chain_ops(x: Any) -> list[_Timed]:
    """A chain of three elementwise ops: one after the other, and over a few rows at a time."""
    import numpy as np

    out, count = np.empty_like(x), ROWS * WIDER
    half, none, more = np.float32(0.5), np.float32(0), np.float32(1.5)

    def chain_in_blocks() -> None:
        for first in range(0, ROWS, BLOCK_ROWS):
            part, block = x[first : first + BLOCK_ROWS], out[first : first + BLOCK_ROWS]
            np.multiply(part, more, out=block)
            np.add(block, half, out=block)
            np.maximum(block, none, out=block)

    # A fused chain reads its first array and writes its last.
    work = Cost.total(one(count, dtype=FORMAT).work for one in (scale, bias, relu))
    fused = Ledger("chain", work=work, rows=scale(count, dtype=FORMAT).rows)
    singly: list[tuple[str, Ledger, Callable[[], object]]] = [
        ("scale", scale(count, dtype=FORMAT), lambda: np.multiply(x, more, out=out)),
        ("bias", bias(count, dtype=FORMAT), lambda: np.add(out, half, out=out)),
        ("relu", relu(count, dtype=FORMAT), lambda: np.maximum(out, none, out=out)),
    ]
    return [
        *(_Timed(label=label, scope="chain/unfused", ledger=ledger, run=run) for label, ledger, run in singly),
        _Timed(
            label="scale, bias, relu in blocks",
            scope="chain/fused",
            ledger=fused,
            run=chain_in_blocks,
            note="the chain over a few rows at a time, so that intermediates stay in the caches",
        ),
    ]


def _measured(number: int, one: _Timed) -> Op:
    """The op with the time of its executions; the first, which touches the memory, does not count."""
    one.run()
    spent, count = 0.0, 0
    while count < REPEATS and spent < MOST_S:
        began = time.perf_counter()
        one.run()
        spent += time.perf_counter() - began
        count += 1
    return Op(
        name=f"{one.label}.{number}",
        label=Label(does=one.label),
        scope=one.scope,
        cost=count * one.ledger.cost,
        count=count,
        time_s=spent,
        self_time_s=spent,
        work_provenance="formula",
        bytes_provenance="formula",
        operation=one.ledger.operation,
        notes=(one.note,) if one.note else (),
    )
