"""Peak memory: how much a program holds at once, by liveness and by the compiler's own buffer assignment."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from program_texts import program_text
from protobufs import integer, message
from roofline.analysis import analyze
from roofline.hlo.fusion.compiler_model import fuse
from roofline.hlo.fusion.copies import with_copies
from roofline.hlo.ir.module import HloModule
from roofline.hlo.memory.owners import owners_of
from roofline.hlo.memory.peak import live_bytes, peak_memory
from roofline.hlo.price.program import program
from roofline.hlo.read import parse
from roofline.machine import Capacity, Machine
from roofline.peak_memory import PeakMemory
from roofline.render.screen import report_text
from roofline.resource import HBM
from roofline.sources import read
from xspace_writer import bytes_field

KB = 1024  # the bytes of f32[256]


def module(body: str, header: str = ", is_scheduled=true", others: str = "") -> HloModule:
    return parse(f"HloModule m{header}\n{others}\nENTRY main {{\n{body}\n}}")


def peak(body: str, header: str = ", is_scheduled=true", others: str = "") -> PeakMemory:
    found = peak_memory(module(body, header, others), "gpu")
    assert found is not None
    return found


CHAIN = """
    x = f32[256] parameter(0)
    a = f32[256] sine(x), metadata={op_name="jit(f)/first/sin"}
    b = f32[256] reverse(a), dimensions={0}, metadata={op_name="jit(f)/second/rev"}
    ROOT d = f32[256] reverse(b), dimensions={0}
"""


def test_an_array_lives_to_its_last_use() -> None:
    # Argument and result are held throughout. a is needed to make b, and is gone when d is made, so it can be where d will be.
    found = peak(CHAIN)
    assert (found.arguments, found.outputs, found.temporaries, found.peak_bytes) == (KB, KB, KB, 3 * KB)
    assert found.method == "liveness over the schedule"
    assert sum(row.bytes for row in found.at_peak) == found.peak_bytes


def test_what_is_live_at_the_peak_is_told_by_scope_and_by_array() -> None:
    found = peak("""
        x = f32[256] parameter(0)
        a = f32[512] concatenate(x, x), dimensions={0}, metadata={op_name="jit(f)/layer0/attn/concatenate"}
        b = f32[512] reverse(a), dimensions={0}, metadata={op_name="jit(f)/layer0/mlp/rev"}
        s = f32[512] add(a, b)
        ROOT d = f32[256] slice(s), slice={[0:256]}
    """)
    # a and b are 2 KiB each and both needed for s, which takes over one of them.
    assert [(row.kind, row.scope, row.bytes, row.buffers) for row in found.at_peak] == [
        ("temporary", "layer0/attn", 2 * KB, 1),
        ("temporary", "layer0/mlp", 2 * KB, 1),
        ("argument", "", KB, 1),
        ("output", "", KB, 1),
    ]
    assert [(one.name, one.shape) for one in found.largest[:2]] == [("a", "f32[512]"), ("b", "f32[512]")]


def test_elementwise_work_writes_over_an_operand_that_nothing_else_needs() -> None:
    body = """
        x = f32[256] parameter(0)
        a = f32[512] concatenate(x, x), dimensions={{0}}
        b = f32[512] sine(a)
        c = f32[512] {last}
        ROOT d = f32[256] slice(c), slice={{[0:256]}}
    """
    assert peak(body.format(last="cosine(b)")).temporaries == 2 * KB
    assert peak(body.format(last="add(a, b)")).temporaries == 4 * KB


def test_the_memory_in_use_follows_the_program() -> None:
    # Arguments and results throughout; a and its copy in reverse while that is made, then the loop's two arrays at a time, twice at most
    loop = """
body {
  p = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = f32[256] get-tuple-element(p), index=1
  inner = f32[256] reverse(v), dimensions={0}
  outer = f32[256] reverse(inner), dimensions={0}
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT t = (s32[], f32[256]) tuple(next, outer)
}
condition {
  p = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  ten = s32[] constant(10)
  ROOT less = pred[] compare(i, ten), direction=LT
}"""
    text = """
  x = f32[256] parameter(0)
  zero = s32[] constant(0)
  a = f32[256] reverse(x), dimensions={0}
  start = (s32[], f32[256]) tuple(zero, a)
  done = (s32[], f32[256]) while(start), condition=condition, body=body
  ROOT r = f32[256] get-tuple-element(done), index=1"""
    program = module(text, others=loop)
    memory = peak_memory(program, "gpu")
    assert memory
    live = live_bytes(program, "gpu", memory)
    assert max(live.values()) == memory.peak_bytes
    assert live["inner"] == live["a"] + KB + 4  # a trip holds one array more than its result, and the counter
    assert live["x"] < live["inner"]


def test_activations_are_told_by_layer() -> None:
    # What a forward pass makes and its backward pass uses: 1 KB of each of two layers
    memory = peak("""
        x = f32[256] parameter(0), metadata={op_name="x"}
        a = f32[256] reverse(x), dimensions={0}, metadata={op_name="jit(f)/jvp(layer0)/mlp/rev"}
        b = f32[256] reverse(a), dimensions={0}, metadata={op_name="jit(f)/jvp(layer1)/mlp/rev"}
        c = f32[256] reverse(b), dimensions={0}, metadata={op_name="jit(f)/transpose(jvp(layer1))/mlp/rev"}
        d = f32[256] divide(c, b), metadata={op_name="jit(f)/transpose(jvp(layer1))/mlp/div"}
        ROOT e = f32[256] divide(d, a), metadata={op_name="jit(f)/transpose(jvp(layer0))/mlp/div"}""")
    (activations,) = [row for row in memory.owners if row.owner == "activations"]
    assert {(layer.layer, layer.bytes) for layer in activations.layers} == {("layer0", KB), ("layer1", KB)}


def test_an_argument_and_its_next_value_have_one_shape_over_all_devices() -> None:
    # Two arguments of as much on each of four devices: the second is of 1,024 over all of them, as the result is, the first is whole
    text = """
        whole = f32[256] parameter(0), sharding={replicated}
        divided = f32[256] parameter(1), sharding={devices=[4]<=[4]}
        ROOT r = f32[256] add(whole, divided)"""
    owners = {divided: owners_of(replace(module(text), result_sharding=sharding), "gpu") for divided, sharding in PARTITIONED.items()}
    assert owners == {True: {"whole": "inputs", "divided": "state"}, False: {"whole": "state", "divided": "inputs"}}


def test_what_a_decoder_is_multiplied_by_are_weights_and_its_cache_is_state() -> None:
    memory = peak_memory(
        module(
            """
        w = f32[256,256] parameter(0), metadata={op_name="params"}
        cache = f32[8,256] parameter(1), metadata={op_name="cache"}
        x = f32[8,256] parameter(2), metadata={op_name="x"}
        h = f32[8,256] sine(x), metadata={op_name="jit(f)/sin"}
        y = f32[8,256] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/dot_general"}
        kept = f32[8,256] add(cache, y), metadata={op_name="jit(f)/add"}
        ROOT out = (f32[8,256], f32[8,256]) tuple(kept, y)""",
            ", is_scheduled=true, input_output_alias={ {0}: (1, {}, may-alias) }",
        ),
        "tpu",
    )
    assert memory
    assert {row.owner: row.bytes for row in memory.owners if row.owner in ("weights", "state", "inputs")} == {
        "weights": 256 * KB,
        "state": 8 * KB,
        "inputs": 8 * KB,
    }


PARTITIONED = {True: "{devices=[4]<=[4]}", False: "{replicated}"}


def test_tuples_and_bitcasts_are_names() -> None:
    found = peak("""
        x = f32[256] parameter(0)
        a = f32[256] reverse(x), dimensions={0}
        t = (f32[256], f32[256]) tuple(a, x)
        g = f32[256] get-tuple-element(t), index=0
        v = f32[16,16] bitcast(g)
        ROOT r = f32[16,16] transpose(v), dimensions={1,0}
    """)
    assert (found.temporaries, found.peak_bytes) == (KB, 3 * KB)


def test_a_donated_argument_and_its_result_are_one() -> None:
    body = "x = f32[256] parameter(0)\nROOT y = f32[256] sine(x)"
    kept, given = peak(body), peak(body, ", is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }")
    assert (kept.peak_bytes, kept.donated) == (2 * KB, 0)
    assert (given.peak_bytes, given.donated, given.arguments, given.outputs) == (KB, KB, KB, KB)


LOOP = program_text("memory/loop.hlo")


def test_a_loop_runs_in_place_and_holds_what_its_body_holds() -> None:
    found = peak(
        """
        a = f32[256,256] parameter(0)
        zero = s32[] constant(0)
        k = f32[256,256] copy(a)
        init = (s32[], f32[256,256]) tuple(zero, k)
        w = (s32[], f32[256,256]) while(init), condition=condition, body=body
        ROOT out = f32[256,256] get-tuple-element(w), index=1
        """,
        others=LOOP,
    )
    # The carried array is the result; the product in the body needs a second one, however often it runs.
    matrix = 256 * KB
    assert found.temporaries // matrix == 1
    assert found.peak_bytes // matrix == 3
    assert found.largest[0].bytes == matrix
    assert {one.name for one in found.largest if one.kind == "temporary"} & {"y", "z"}


def test_a_branch_counts_with_the_most_that_one_of_them_holds() -> None:
    branches = """
    small { p = f32[256] parameter(0)
        ROOT r = f32[256] reverse(p), dimensions={0} }
    large { q = f32[256] parameter(0)
        w = f32[1024] concatenate(q, q, q, q), dimensions={0}
        ROOT s = f32[256] slice(w), slice={[0:256]} }
    """
    found = peak(
        """
        i = s32[] parameter(0)
        x = f32[256] parameter(1)
        ROOT c = f32[256] conditional(i, x, x), branch_computations={small, large}
        """,
        others=branches,
    )
    assert (found.temporaries, found.largest[0].name) == (4 * KB, "w")


def test_an_asynchronous_pair_holds_its_operand_until_it_is_done() -> None:
    found = peak(program_text("memory/an_asynchronous_pair_holds_its_operand_until_it_is_done.hlo"))
    # a and its copy; b waits where the result will be.
    assert found.temporaries // KB == 4


def test_host_memory_is_not_device_memory() -> None:
    found = peak("""
        x = f32[256]{0} parameter(0)
        h = f32[256]{0:S(5)} copy(x)
        ROOT y = f32[256]{0} copy(h)
    """)
    assert found.peak_bytes == 2 * KB


def test_a_dimension_without_bound_has_no_peak() -> None:
    assert peak_memory(module("x = f32[?] parameter(0)\nROOT y = f32[?] sine(x)"), "gpu") is None


def test_without_a_schedule_the_programs_order_is_used_and_said() -> None:
    found = peak("x = f32[256] parameter(0)\nROOT y = f32[256] sine(x)", header="")
    assert (found.method, found.is_estimate) == ("liveness in program order", True)


def test_the_peak_before_compilation_is_called_an_estimate(tmp_path: Path) -> None:
    written = tmp_path / "program.hlo"
    for header, says in (("", "estimated before compilation"), (", is_scheduled=true", "; by liveness over")):
        written.write_text(f"HloModule m{header}\n\nENTRY e {{\n  x = f32[256] parameter(0)\n  ROOT y = f32[256] sine(x)\n}}\n")
        chip = Machine.of("toy", {"vector/fp32": 100, "hbm": 10})
        assert says in " ".join(report_text(analyze(written, chip), details=True).split())


def test_a_buffer_assignment_is_read_with_its_trace() -> None:
    bare = module(CHAIN)
    temporary, result, argument = 2, 1, 0
    buffers = [(1, 4 * KB, "a"), (2, 2 * KB, "b"), (3, KB, "b"), (4, KB, "d"), (5, KB, "x")]
    events = [(0, 1), (0, 2), (1, 1), (0, 3), (1, 2), (1, 3)]  # a and b together take 6 KiB, later there are 3
    allocations = [
        (argument, KB, integer(5, 1), buffers[4:]),
        (result, KB, integer(7, 1), buffers[3:4]),
        (temporary, 7 * KB, b"", buffers[:3]),
        (3, 99 * KB, integer(3, 1), []),  # on the stack of a thread
    ]
    data = b"".join(
        [
            *(
                message(1, integer(1, number), integer(2, size), message(3, bytes_field(2, name.encode())))
                for number, size, name in buffers
            ),
            *(
                message(
                    3, integer(1, number), integer(2, size), flag, *(message(9, integer(1, one[0]), integer(3, one[1])) for one in inside)
                )
                for number, size, flag, inside in allocations
            ),
            message(4, *(message(1, integer(1, kind), integer(2, number)) for kind, number in events), integer(3, temporary)),
        ]
    )
    found = peak_memory(replace(bare, buffer_assignment=data), "gpu")
    assert found is not None
    assert (found.method, found.allocated_bytes, found.temporaries) == ("buffer assignment", 9 * KB, 7 * KB)
    assert found.peak_bytes == 8 * KB  # without the KiB of the temporaries that is free at their peak
    assert {(row.kind, row.scope): row.bytes for row in found.at_peak} == {
        ("argument", ""): KB,
        ("output", ""): KB,
        ("temporary", "first"): 4 * KB,
        ("temporary", "second"): 2 * KB,
        ("unused", ""): KB,
    }


def test_a_damaged_assignment_leaves_liveness() -> None:
    found = peak_memory(replace(module(CHAIN), buffer_assignment=b"\x0a\xff"), "gpu")
    assert found is not None
    assert found.method == "liveness over the schedule"


def _tiny(capacity: int) -> Machine:
    bare = Machine.of("tiny", {"vector/fp32": "1 GFLOP/s", "matrix/fp32": "1 GFLOP/s", "hbm": "1 GB/s"})
    return replace(bare, kind="gpu", capacities=(Capacity(level=HBM, bytes=capacity, provenance="user"),))


STACK = """
    start = f32[256] parameter(0), metadata={source_file="/me/train.py" source_line=2}
    zero = s32[] constant(0)
    stack = f32[64,256] custom-call(), custom_call_target="AllocateBuffer", metadata={source_file="/me/train.py" source_line=1}
    state = (s32[], f32[64,256]) tuple(zero, stack)
    loop = (s32[], f32[64,256]) while(state), condition=more, body=layer
    ROOT rows = f32[64,256] get-tuple-element(loop), index=1
"""
ROWS = """
more {
  state = (s32[], f32[64,256]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(64)
  ROOT is_less = pred[] compare(i, n), direction=LT
}
layer {
  state = (s32[], f32[64,256]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  all = f32[64,256] get-tuple-element(state), index=1
  one = f32[1,256] constant({...})
  zero = s32[] constant(0)
  next = f32[64,256] dynamic-update-slice(all, one, i, zero), metadata={source_file="/me/model.py" source_line=7}
  more = s32[] constant(1)
  j = s32[] add(i, more)
  ROOT after = (s32[], f32[64,256]) tuple(j, next)
}
"""


def test_the_largest_arrays_have_the_lines_that_fill_them() -> None:
    # The stack is allocated before the loop, whose body writes a row of it in each trip.
    found = peak(STACK, others=ROWS)
    assert {one.name: one.location for one in found.largest}["stack"] == "/me/model.py:7"
    assert "/me/train.py:2" in {one.location for one in found.largest}


def test_a_program_that_does_not_fit_is_the_first_thing_said(tmp_path: Path) -> None:
    file = tmp_path / "chain.hlo"
    file.write_text(f"HloModule m, is_scheduled=true\nENTRY main {{{CHAIN}}}")
    roomy, tight = (analyze(read(file, machine), machine) for machine in (_tiny(1_000_000), _tiny(3000)))
    assert roomy.memory is not None
    assert (roomy.memory.peak_bytes, roomy.memory.capacity_bytes) == (3 * KB, 1_000_000)
    assert "out-of-memory" not in {finding.kind for finding in roomy.findings}
    assert tight.findings[0].kind == "out-of-memory"
    assert tight.findings[0].message == (
        "m needs 3.072 kB of memory and tiny has 3 kB: 72 B too much. The largest arrays: 1.024 kB f32[256] (second), 1.024 kB f32[256] "
        "(output d), 1.024 kB f32[256] (argument x)."
    )
    # After the sentence.
    assert "Does not fit into memory: it needs 3.072 kB, and tiny has 3 kB." in tight.summary
    assert report_text(tight).splitlines()[5].strip().startswith("m needs 3.072 kB of memory and tiny has 3 kB")
    assert "does not fit: peak 3.072 kB of 3 kB" in report_text(tight, details=True)
    assert "does not fit" not in report_text(roomy, details=True)


UPDATE = """
    cache = f32[4096,64] parameter(0)
    new = f32[1,64] parameter(1)
    i = s32[] parameter(2)
    zero = s32[] constant(0)
    ROOT u = f32[4096,64] dynamic-update-slice(cache, new, i, zero)
"""
DONATED = ", input_output_alias={ {}: (0, {}, may-alias) }"
WHOLE, ROW = 4 * 4096 * 64, 4 * 64
UPDATED = "update_dynamic_update_slice_fusion"


def moved(body: str, header: str = "", others: str = "") -> dict[str, float]:
    """The bytes of each op of a program that was not compiled."""
    ready = with_copies(fuse(module(body, header, others), "gpu"), "gpu")
    return {op.name: float(op.cost["hbm"] or 0) for op in program(ready, "gpu")}


def test_an_argument_that_is_updated_is_copied_unless_it_is_donated() -> None:
    assert moved(UPDATE) == {"copy_cache": 2 * WHOLE, UPDATED: 2 * ROW + 4}
    assert moved(UPDATE, DONATED) == {UPDATED: 2 * ROW + 4}


def test_a_copy_that_donation_makes_unnecessary_is_left_out() -> None:
    body = UPDATE.replace("ROOT u", "k = f32[4096,64] copy(cache)\nROOT u").replace("slice(cache", "slice(k")
    assert set(moved(body)) == {"k", UPDATED}
    assert set(moved(body, DONATED)) == {UPDATED}


def test_an_array_that_is_read_after_its_update_is_copied() -> None:
    body = program_text("memory/an_array_that_is_read_after_its_update_is_copied.hlo")
    less = "less { p = f32[] parameter(0)\n q = f32[] parameter(1)\n ROOT l = pred[] compare(p, q), direction=LT }"
    assert "copy_a" in moved(body.replace("{read}", "a"), others=less)
    assert "copy_a" not in moved(body.replace("{read}", "u"), others=less)


@pytest.mark.parametrize(("header", "copies"), [("", True), (", input_output_alias={ {1}: (0, {}, may-alias) }", False)])
def test_a_loop_changes_a_copy_of_an_argument_that_is_not_donated(header: str, copies: bool) -> None:
    body = """
        a = f32[256,256] parameter(0)
        zero = s32[] constant(0)
        init = (s32[], f32[256,256]) tuple(zero, a)
        ROOT w = (s32[], f32[256,256]) while(init), condition=condition, body=body
    """
    assert ("copy_a" in moved(body, header, LOOP)) is copies


def test_a_loop_that_changes_one_array_twice_gets_a_copy_of_it() -> None:
    # XLA computes the sine once, and copies it for the second of two arrays that the loop changes.
    others = program_text("memory/a_loop_that_changes_one_array_twice_gets_a_copy_of_it.hlo")
    body = """
        a = f32[256,256] parameter(0)
        zero = s32[] constant(0)
        x = f32[256,256] sine(a)
        y = f32[256,256] {second}(a)
        init = (s32[], f32[256,256], f32[256,256]) tuple(zero, x, y)
        ROOT w = (s32[], f32[256,256], f32[256,256]) while(init), condition=condition, body=body
    """
    assert [name for name in moved(body.replace("{second}", "sine"), others=others) if "copy" in name] == ["copy_x"]
    assert not [name for name in moved(body.replace("{second}", "cosine"), others=others) if "copy" in name]


def test_a_result_that_is_returned_twice_is_computed_once_and_copied() -> None:
    body = """
        x = f32[64,64] parameter(0)
        a = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        b = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        ROOT t = (f32[64,64], f32[64,64]) tuple(a, b)
    """
    assert moved(body) == {"a": 2 * 4 * 64 * 64, "copy_a": 2 * 4 * 64 * 64}


@pytest.mark.jax
def test_donation_in_jax_saves_the_copy_and_the_memory() -> None:
    jax = pytest.importorskip("jax")
    import roofline.jax

    def step(cache, new, i):  # type: ignore[no-untyped-def]
        return jax.lax.dynamic_update_slice(cache, new, (i, 0))

    shapes = [jax.ShapeDtypeStruct(dims, kind) for dims, kind in (((4096, 64), "float32"), ((1, 64), "float32"), ((), "int32"))]
    kept = roofline.jax.analyze(step, chip="h100")(*shapes)
    ways = (roofline.jax.analyze(step, chip="h100", donate_argnums=0), roofline.jax.analyze(jax.jit(step, donate_argnums=0), chip="h100"))
    assert kept.memory is not None
    assert kept.memory.peak_bytes == 2 * WHOLE + ROW + 4
    for given in (way(*shapes) for way in ways):
        assert given.memory is not None
        assert (given.memory.peak_bytes, given.memory.donated) == (WHOLE + ROW + 4, WHOLE)
        assert sum(op.bytes["hbm"] or 0 for op in kept.ops) - sum(op.bytes["hbm"] or 0 for op in given.ops) == 2 * WHOLE


@pytest.mark.jax
def test_the_peak_is_xlas_own() -> None:
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    def layers(weights, x):  # type: ignore[no-untyped-def]
        return (jax.lax.scan(lambda x, w: (x + jnp.tanh(x @ w), None), x, weights)[0] ** 2).sum()

    shapes = (jax.ShapeDtypeStruct((4, 256, 256), "float32"), jax.ShapeDtypeStruct((512, 256), "float32"))
    remat = jax.checkpoint(layers)
    for function in (layers, jax.grad(layers), jax.grad(remat)):
        compiled = jax.jit(function).lower(*shapes).compile()
        stats = compiled.memory_analysis()
        expected = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes - stats.alias_size_in_bytes
        read_back = parse(compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto())
        found = peak_memory(read_back, "cpu")
        assert found is not None
        assert found.peak_bytes == pytest.approx(expected, rel=0.001)
