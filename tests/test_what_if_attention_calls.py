"""A longer sequence in a library's attention: queries and keys both grow, and with them what the call computes."""

import pytest

from every import every
from program_texts import program_text
from roofline.hlo.ir.module import HloModule
from roofline.hlo.price.collectives import Network
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.price.types import Site
from roofline.hlo.read import parse
from roofline.hlo.scaling.growth import Program
from roofline.hlo.scaling.named_dimensions import dimension_named
from roofline.hlo.scaling.scaled import scaled

BATCH, LENGTH, HEADS, SHARED, WIDTH = 2, 64, 8, 2, 16


def program(mask: str, scores: int = LENGTH) -> HloModule:
    """Attention of grouped heads and its gradients by cuDNN, as XLA writes them: results have heads before their rows."""
    config = (
        f'{{"cudnn_fmha_backend_config":{{"intermediate_tensor_shape":{{"dimensions":["{BATCH}","{HEADS}","{LENGTH}","{scores}"]}},'
        f'"mask_type":"{mask}"}}}}'
    )
    q, kv = f"bf16[{BATCH},{LENGTH},{HEADS},{WIDTH}]{{3,2,1,0}}", f"bf16[{BATCH},{scores},{SHARED},{WIDTH}]{{3,2,1,0}}"
    made, shared = f"bf16[{BATCH},{HEADS},{LENGTH},{WIDTH}]{{3,1,2,0}}", f"bf16[{BATCH},{SHARED},{scores},{WIDTH}]{{3,1,2,0}}"
    sums = f"f32[{BATCH},{HEADS},{LENGTH}]{{2,1,0}}"
    text = program_text("what_if_attention_calls/program.hlo", q=q, kv=kv, made=made, shared=shared, sums=sums, config=config)
    return parse(text.encode(), "attend")


def arithmetic(module: HloModule, name: str) -> float:
    entry = module.entry_computation
    one = next(one for one in entry if one.name == name)
    return float(Pricer(module, "gpu", Network.of(None, "gpu")).price(Site(module, entry, one, "gpu")).cost["matrix/bf16"])


def grown(module: HloModule, times: int, *names: str) -> HloModule:
    for name in names:
        followed = Program(module)
        dimension = dimension_named(followed, name)
        assert dimension is not None
        module = scaled(followed, dimension.marks, times)
    return module


@every("call", ["forward", "backward"])
@every("mask", ["NO_MASK", "CAUSAL"])
def test_four_times_the_pairs_of_twice_the_queries_and_keys(mask: str, call: str) -> None:
    before = program(mask)
    alone, batch = arithmetic(before, call), arithmetic(grown(before, 2, "q[0]"), call)
    assert batch == 2 * alone
    assert arithmetic(grown(before, 2, "q[1]", "k[1]"), call) == pytest.approx(4 * alone, rel=0.03)  # but for the diagonal
    assert arithmetic(grown(before, 2, "k[1]"), call) == (alone if mask == "CAUSAL" else 2 * alone)  # no query sees later keys


def test_the_sums_and_gradients_of_a_call_grow_with_its_operands() -> None:
    after = grown(program("NO_MASK", 3 * LENGTH), 2, "k[1]")
    shapes = {one.name: one.shape for one in after.entry_computation}
    assert shapes["dk"].dims == shapes["dv"].dims == (BATCH, SHARED, 6 * LENGTH, WIDTH)
    assert shapes["dq"].dims == (BATCH, HEADS, LENGTH, WIDTH)
    assert shapes["v"].dims == (BATCH, 6 * LENGTH, SHARED, WIDTH)
    longer = {one.name: one.shape for one in grown(program("NO_MASK", 3 * LENGTH), 2, "q[1]").entry_computation}
    assert longer["rows"].dims == (BATCH, HEADS, 2 * LENGTH)
    assert longer["dk"].dims == (BATCH, SHARED, 3 * LENGTH, WIDTH)


def test_sizes_in_the_settings_of_transformer_engine_grow_with_its_operands() -> None:
    shape = "bf16[2,64,8,16]{3,2,1,0}"
    config = (
        '{"input_batch":2,"attn_heads":8,"q_max_seqlen":64,"kv_max_seqlen":64,"qk_head_dim":16,"v_head_dim":16,"mask_type":2,"bias_type":0}'
    )
    text = program_text(
        "what_if_attention_calls/sizes_in_the_settings_of_transformer_engine_grow_with_its_operands.hlo", shape=shape, config=config
    )
    before = parse(text.encode(), "attend")
    assert arithmetic(grown(before, 2, "q[1]"), "call") == pytest.approx(4 * arithmetic(before, "call"), rel=0.03)
    assert arithmetic(grown(before, 2, "q[0]"), "call") == 2 * arithmetic(before, "call")
