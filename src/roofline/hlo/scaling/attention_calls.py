"""Attention calls of libraries: which dimensions of their arrays are batch, heads, queries and keys, and their configuration after scaling.

The numbers of queries and keys are in the call's configuration, not only in its shapes, and both may grow with one sequence.
"""

import json

from ..ir.amending import amended
from ..ir.module import Computation, Instruction
from ..ir.shapes import Shape
from ..partition.propagation import Key
from ..price.calls.settings import Config, flag, integers, section
from ..price.calls.traffic import Misfit
from ..read.backend_config import backend_config

_CUDNN, _ENGINE = "__cudnn$fmha", "te_fused_attn_"
_SECTION, _SCORES = "cudnn_fmha_backend_config", "intermediate_tensor_shape"
BATCH, HEADS, QUERIES, KEYS, SHARED_HEADS, WIDTH, VALUE_WIDTH = range(7)  # factors of the dimensions of a call's arrays
Factors = tuple[tuple[int, ...], ...]
# Sizes in a configuration of Transformer Engine: the operand that has it, and which of its dimensions.
_ENGINE_SIZES = {"input_batch": (0, 0), "attn_heads": (0, -2), "q_max_seqlen": (0, 1), "kv_max_seqlen": (1, 1)}
_ROWS = 4  # dimensions of queries, keys and values


def attention_arrays(
    number: int, computation: Computation, index: int, instruction: Instruction
) -> tuple[list[tuple[Key, Factors]], tuple[int, ...]] | None:
    """The arrays of a cuDNN attention call with the factors of their dimensions, and the factors' sizes; ``None`` for any other call."""
    scores = _scores(instruction)
    operands = [computation[operand].shape for operand in instruction.operands]
    if scores is None or len(operands) < 3 or any(shape.rank != _ROWS for shape in operands[:3]):
        return None
    arrays = [
        ((number, instruction.operands[place], 0), shape, _factors(instruction, shape, scores, place, is_result=False))
        for place, shape in enumerate(operands)
    ]
    arrays += [
        ((number, index, part), shape, _factors(instruction, shape, scores, part, is_result=True))
        for part, shape in enumerate(instruction.shape.leaves)
    ]
    sizes = {factor: shape.dims[place] for _, shape, axes in arrays for place, axis in enumerate(axes) for factor in axis}
    return [(key, factors) for key, _, factors in arrays if factors], tuple(sizes.get(factor, 1) for factor in range(VALUE_WIDTH + 1))


def _factors(instruction: Instruction, shape: Shape, scores: tuple[int, ...], place: int, *, is_result: bool) -> Factors:
    """The factor of each dimension of an operand or result."""
    backward, paged = "Backward" in instruction.custom_call_target, _is_paged(instruction)
    if shape.rank == 1 and shape.dims[0] == scores[BATCH] and not is_result:
        return ((BATCH,),)  # sequence lengths
    if shape.rank == 3:  # row sums of the softmax
        return tuple((role,) if size == scores[role] else () for role, size in enumerate(shape.dims))
    if shape.rank != _ROWS:
        return ()
    bias = 5 if backward else 3
    if place == bias and "Bias" in instruction.custom_call_target and not is_result:
        return tuple((role,) if size == scores[role] else () for role, size in enumerate(shape.dims))
    of_keys = place in (1, 2) and (backward or not is_result)
    if of_keys and paged:
        return ()
    values = place == 2 if of_keys else (is_result and not backward) or place > 2
    axis = _length_axis(shape, scores[KEYS if of_keys else QUERIES], is_result=is_result)
    heads = SHARED_HEADS if of_keys and shape.dims[3 - axis] != scores[HEADS] else HEADS
    factors = [(BATCH,), (heads,), (heads,), (VALUE_WIDTH if values else WIDTH,)]
    factors[axis] = (KEYS if of_keys else QUERIES,)
    return tuple(factors)


def _length_axis(shape: Shape, length: int, *, is_result: bool) -> int:
    """Which dimension of queries, keys or values counts them: operands have it before the heads, results after them."""
    usual = 2 if is_result else 1
    return usual if shape.dims[usual] == length or shape.dims[3 - usual] != length else 3 - usual


def refitted(instruction: Instruction, before: list[Shape], after: list[Shape], operation: Instruction) -> Instruction:
    """An attention call with the sizes of its new shapes in its configuration; any other call unchanged."""
    config = dict(backend_config(instruction))
    if (scores := _scores(instruction)) is not None and len(before) > 2 and all(shape.rank == _ROWS for shape in before[:2]):
        query = _length_axis(before[0], scores[QUERIES], is_result=False)
        key = _length_axis(before[1], scores[KEYS], is_result=False)
        new = [after[0].dims[0], after[0].dims[3 - query], after[0].dims[query], after[1].dims[key]]
        if _is_paged(instruction):
            new[KEYS] = scores[KEYS]
        settings = dict(section(config, _SECTION))
        settings[_SCORES] = {**section(settings, _SCORES), "dimensions": new}
        return amended(operation, backend_config=json.dumps({**config, _SECTION: settings}))
    if instruction.custom_call_target.startswith(_ENGINE) and len(before) > 1:
        for name, (operand, place) in _ENGINE_SIZES.items():
            operand = operand if before[operand].rank >= _ROWS else 0  # queries and keys may be in one array
            if before[operand].rank >= _ROWS and before[operand].dims[place] == config.get(name):
                config[name] = after[operand].dims[place]
        return amended(operation, backend_config=json.dumps(config))
    return operation


def _settings(instruction: Instruction) -> Config:
    return section(backend_config(instruction), _SECTION)


def _is_paged(instruction: Instruction) -> bool:
    return flag(_settings(instruction), "is_paged_attention")


def _scores(instruction: Instruction) -> tuple[int, ...] | None:
    """Batch, heads, queries and keys of a cuDNN attention call."""
    if not instruction.custom_call_target.startswith(_CUDNN):
        return None
    try:
        scores = integers(section(_settings(instruction), _SCORES), "dimensions")
    except Misfit:
        return None
    return scores if len(scores) == _ROWS else None
