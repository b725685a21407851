"""Fusions are one kernel: the arithmetic of the body where somebody needs it, the bytes of what it really touches."""

from priced import ADD, amounts, capture, fused, price, priced, site
from program_texts import program_text
from roofline.hlo.price.collectives import Network
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.price.types import Price, Site
from roofline.hlo.read import parse


def test_a_chain_reads_its_inputs_and_writes_its_output_once() -> None:
    body = """
  %m = f32[100]{0} multiply(%p0, %p1)
  %e = f32[100]{0} exponential(%m)
  ROOT %r = f32[100]{0} add(%e, %p0)"""
    assert amounts(fused(body, "f32[100]{0}", "f32[100]{0}", "f32[100]{0}").cost) == {
        "vector/fp32": 200,
        "vector/transcendental": 100,
        "hbm": 3 * 400,
    }


def test_each_instruction_counts_by_its_own_shape() -> None:
    body = """
  %s = f32[10]{0} multiply(%p1, %p1)
  %w = f32[5,10]{1,0} broadcast(%s), dimensions={1}
  ROOT %r = f32[5,10]{1,0} add(%p0, %w)"""
    # The square is made for 10 elements and broadcast, the sum for 50.
    assert fused(body, "f32[5,10]{1,0}", "f32[5,10]{1,0}", "f32[10]{0}").cost["vector/fp32"] == 10 + 50


def test_work_that_feeds_a_slice_is_done_for_the_slice() -> None:
    body = """
  %e = f32[1000]{0} exponential(%p0)
  ROOT %r = f32[10]{0} slice(%e), slice={[5:15]}"""
    assert amounts(fused(body, "f32[10]{0}", "f32[1000]{0}").cost) == {"vector/transcendental": 10, "hbm": 80}


def test_a_parameter_used_whole_and_in_part_is_read_whole() -> None:
    body = """
  %s = f32[10]{0} slice(%p0), slice={[0:10]}
  %w = f32[100]{0} pad(%s, %z), padding=0_90
  ROOT %r = f32[100]{0} add(%w, %p0)""".replace("%s =", "%z = f32[] constant(0)\n  %s =", 1)
    assert fused(body, "f32[100]{0}", "f32[100]{0}").cost["hbm"] == 800


def test_two_slices_of_a_parameter_count_what_either_takes() -> None:
    body = """
  %a = f32[50]{0} slice(%p0), slice={[0:50]}
  %b = f32[50]{0} slice(%p0), slice={[25:75]}
  ROOT %r = f32[50]{0} add(%a, %b)"""
    assert fused(body, "f32[50]{0}", "f32[100]{0}").cost["hbm"] == 4 * (75 + 50)


def test_a_slice_is_seen_through_a_bitcast() -> None:
    body = """
  %b = f32[4,6,8]{2,1,0} bitcast(%p0)
  %s = f32[4,6,2]{2,1,0} slice(%b), slice={[0:4], [0:6], [2:4]}
  ROOT %r = f32[4,6,2]{2,1,0} negate(%s)"""
    assert fused(body, "f32[4,6,2]{2,1,0}", "f32[24,8]{1,0}").cost["hbm"] == 2 * 4 * 48


def test_a_slice_of_a_stacked_weight_reads_one_layer() -> None:
    body = """
  %z = s32[] constant(0)
  %s = bf16[1,16,32]{2,1,0} dynamic-slice(%p0, %p1, %z, %z), dynamic_slice_sizes={1,16,32}
  ROOT %r = bf16[16,32]{1,0} bitcast(%s)"""
    assert fused(body, "bf16[16,32]{1,0}", "bf16[8,16,32]{2,1,0}", "s32[]").cost["hbm"] == 2 * 1024 + 4


UPDATE = """
  %z = s32[] constant(0)
  %n = f32[1,64]{1,0} negate(%p1)
  ROOT %r = f32[1000,64]{1,0} dynamic-update-slice(%p0, %n, %p2, %z)"""


def test_an_update_in_place_writes_what_it_changes_and_reads_nothing_of_it() -> None:
    cache = "f32[1000,64]{1,0}"
    assert fused(UPDATE, cache, cache, "f32[1,64]{1,0}", "s32[]").cost["hbm"] == 256 + 256 + 4


def test_an_update_of_a_new_array_writes_all_of_it() -> None:
    body = """
  %o = f32[] constant(0)
  %w = f32[1000,64]{1,0} broadcast(%o), dimensions={}
  ROOT %r = f32[1000,64]{1,0} dynamic-update-slice(%w, %p0, %p1, %p1)"""
    assert fused(body, "f32[1000,64]{1,0}", "f32[1,64]{1,0}", "s32[]").cost["hbm"] == 256_000 + 256 + 4


def test_an_update_that_reads_the_place_it_writes() -> None:
    body = """
  %z = s32[] constant(0)
  %old = f32[1,64]{1,0} dynamic-slice(%p0, %p2, %z), dynamic_slice_sizes={1,64}
  %new = f32[1,64]{1,0} add(%old, %p1)
  ROOT %r = f32[1000,64]{1,0} dynamic-update-slice(%p0, %new, %p2, %z)"""
    cache = "f32[1000,64]{1,0}"
    assert fused(body, cache, cache, "f32[1,64]{1,0}", "s32[]").cost["hbm"] == 3 * 256 + 4


def test_updates_one_on_another_and_beside_other_results() -> None:
    body = """
  %z = s32[] constant(0)
  %a = f32[1000,64]{1,0} dynamic-update-slice(%p0, %p1, %p2, %z)
  %b = f32[1000,64]{1,0} dynamic-update-slice(%a, %p1, %z, %z)
  %n = f32[1,64]{1,0} negate(%p1)
  ROOT %r = (f32[1000,64]{1,0}, f32[1,64]{1,0}) tuple(%b, %n)"""
    cache = "f32[1000,64]{1,0}"
    # The update is read once, written into two places, and negated into a result of its own.
    assert fused(body, f"({cache}, f32[1,64]{{1,0}})", cache, "f32[1,64]{1,0}", "s32[]").cost["hbm"] == 4 * 256 + 4


def test_an_update_in_place_through_a_change_of_packing_changes_a_part_alone() -> None:
    # TPUs unpack 16-bit elements of the whole array by a fusion inside the kernel, which runs on what is changed
    text = """HloModule m, is_scheduled=true
unpack {
  a = bf16[16,1024]{1,0:T(16,128)(2,1)} parameter(0)
  ROOT b = bf16[16,1024]{1,0:T(8,128)(2,1)} copy(a)
}
body {
  stack = bf16[16,1024]{1,0:T(16,128)(2,1)} parameter(0)
  row = bf16[1,1024]{1,0} parameter(1)
  at = s32[] parameter(2)
  whole = bf16[16,1024]{1,0:T(8,128)(2,1)} fusion(stack), kind=kLoop, calls=unpack
  zero = s32[] constant(0)
  ROOT new = bf16[16,1024]{1,0:T(16,128)(2,1)} dynamic-update-slice(whole, row, at, zero)
}
ENTRY main {
  stack = bf16[16,1024]{1,0:T(16,128)(2,1)} parameter(0)
  row = bf16[1,1024]{1,0} parameter(1)
  at = s32[] parameter(2)
  ROOT out = bf16[16,1024]{1,0:T(16,128)(2,1)} fusion(stack, row, at), kind=kLoop, calls=body
}"""
    module = parse(text)
    moved = Pricer(module, "tpu", None).price(Site(module, module.entry_computation, module.entry_computation[3], "tpu")).cost.known("hbm")
    assert 2 * 2 * 1024 <= moved < 16 * 1024 * 2  # the row read and written, not the stack


def test_a_scatter_in_place() -> None:
    text = program_text("price_bodies/a_scatter_in_place.hlo", ADD=ADD)
    module = parse(text)
    found = price(Site(module, module.entry_computation, module.entry_computation.root_instruction))
    # Five updates doubled and added; each is read, and the place it goes to is read and written; five indices.
    assert amounts(found.cost) == {"vector/fp32": 10, "hbm": 3 * 20 + 20}


def test_every_result_of_several_is_written() -> None:
    body = """
  %a = f32[100]{0} add(%p0, %p0)
  %b = bf16[100]{0} convert(%a)
  ROOT %r = (f32[100]{0}, bf16[100]{0}) tuple(%a, %b)"""
    assert fused(body, "(f32[100]{0}, bf16[100]{0})", "f32[100]{0}").cost["hbm"] == 400 + 400 + 200


def test_the_same_array_under_two_shapes_is_read_once() -> None:
    text = program_text("price_bodies/the_same_array_under_two_shapes_is_read_once.hlo")
    module = parse(text)
    assert price(Site(module, module.entry_computation, module.entry_computation.root_instruction)).cost["hbm"] == 800


def test_fusions_within_fusions_are_one_kernel() -> None:
    computations = program_text("price_bodies/fusions_within_fusions_are_one_kernel.hlo")
    found = priced("f32[10]{0} fusion(%0), kind=kLoop, calls=%outer", "f32[1000]{0}", computations=computations)
    assert amounts(found.cost) == {"vector/transcendental": 10, "hbm": 80}


def test_a_running_total_of_which_the_last_is_taken_adds_for_the_last() -> None:
    body = """
  %o = f32[] constant(0)
  %t = f32[16,8]{1,0} reduce-window(%p0, %o), window={size=16x1 pad=15_0x0_0}, to_apply=%add
  ROOT %r = f32[1,8]{1,0} slice(%t), slice={[15:16], [0:8]}"""
    text = ADD + "\n\n%body {\n  %p0 = f32[16,8]{1,0} parameter(0)" + body + "\n}"
    found = priced("f32[1,8]{1,0} fusion(%0), kind=kLoop, calls=%body", "f32[16,8]{1,0}", computations=text)
    # The last of each column is the sum of all 16 elements.
    assert found.cost["vector/fp32"] == 8 * 15


def test_a_fused_product_is_a_matmul_with_its_epilogue() -> None:
    body = """
  %d = f32[8,4]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %r = f32[8,4]{1,0} tanh(%d)"""
    found = fused(body, "f32[8,4]{1,0}", "bf16[8,16]{1,0}", "bf16[16,4]{1,0}", kind="kCustom")
    assert found.category == "matmul"
    assert amounts(found.cost) == {"matrix/bf16": 2 * 8 * 16 * 4, "vector/transcendental": 32, "hbm": 256 + 128 + 128}


def test_vmem_and_host_memory_are_not_hbm() -> None:
    tiled = "f32[8,128]{1,0:T(8,128)%s}"
    hbm, vmem, host = (tiled % space for space in ("", "S(1)", "S(5)"))
    assert amounts(priced(f"{vmem} add(%0, %1)", hbm, vmem, platform="tpu").cost) == {
        "vector/fp32": 1024,
        "hbm": 4096,
        "vmem.read": 4096,
        "vmem.write": 4096,
    }
    start = priced(f"({vmem}, {hbm}, u32[]{{:S(2)}}) copy-start(%0)", hbm, platform="tpu")
    assert amounts(start.cost) == {"hbm": 4096, "vmem.write": 4096}
    # Between a device and its host the bytes are counted once, on the link between them.
    away = priced(f"({host}, {hbm}, u32[]{{:S(2)}}) copy-start(%0)", hbm, platform="tpu")
    assert (amounts(away.cost), away.category) == ({"pcie": 4096}, "host transfer")
    assert amounts(priced(f"{hbm} add(%0, %1)", hbm, host, platform="tpu").cost) == {"vector/fp32": 1024, "hbm": 8192, "pcie": 4096}
    # Elsewhere space 1 is ordinary memory.
    assert amounts(priced("f32[8]{0:S(1)} copy(%0)", "f32[8]{0}", platform="gpu").cost) == {"hbm": 64}


def test_constants_are_part_of_the_program_unless_they_are_arrays() -> None:
    body = """
  %c = f32[4]{0} constant({1, 2, 3, 4})
  ROOT %r = f32[4]{0} add(%p0, %c)"""
    assert fused(body, "f32[4]{0}", "f32[4]{0}").cost["hbm"] == 3 * 16


def test_no_kernel_of_a_real_program_moves_more_than_its_operands_and_results() -> None:
    module = capture("train")
    entry = module.entry_computation
    fusions = [instruction for instruction in entry if instruction.opcode == "fusion"]
    assert len(fusions) > 100
    for instruction in fusions:
        found = price(Site(module, entry, instruction))
        most = instruction.shape.bytes + sum(operand.shape.bytes for operand in entry.operands(instruction))
        assert 0 < found.cost.bytes() <= most


def test_an_all_reduce_fused_with_its_slice_is_a_reduce_scatter() -> None:
    computations = (
        ADD
        + """

%body {
  %p0 = f32[64]{0} parameter(0)
  %p1 = s32[] parameter(1)
  %a = f32[64]{0} all-reduce(%p0), replica_groups={{0,1,2,3}}, to_apply=%add
  ROOT %s = f32[16]{0} dynamic-slice(%a, %p1), dynamic_slice_sizes={16}
}"""
    )
    found = priced("f32[16]{0} fusion(%0, %1), kind=kCustom, calls=%body", "f32[64]{0}", "s32[]", computations=computations, platform="tpu")
    # A ring of four: three quarters of the 256 bytes leave each device, half each way round, to a device two hops away at most.
    assert (found.category, amounts(found.cost)) == ("reduce-scatter", {"ici": 96, "ici/hop": 2})


def test_a_fusion_of_nothing_it_calls_is_unknown() -> None:
    assert price(site("f32[8]{0} fusion(%0), kind=kLoop", "f32[8]{0}")).cost.flops is None


def test_a_call_that_nobody_knows_inside_a_fusion_is_not_free() -> None:
    body = """
  %k = f32[8]{0} custom-call(%p0), custom_call_target="somebodys_kernel"
  %e = f32[8]{0} exponential(%p0)
  ROOT %r = f32[8]{0} add(%k, %e)"""
    found = fused(body, "f32[8]{0}", "f32[8]{0}")
    assert found.cost.flops is None
    assert (found.cost["vector/fp32"], found.cost["hbm"]) == (8, 64)


def both(body: str, other: str, result: str, operand: str, first: str = "%x", second: str = "%y") -> tuple[Price, Price]:
    """The prices of two fusions of one program, each with a body of its own; the program passes them two arrays."""
    bodies = "".join(
        f"%fused_{name} (p0: {operand}, p1: {operand}) -> {result} {{\n"
        f"  %p0.{name} = {operand} parameter(0)\n  %p1.{name} = {operand} parameter(1)\n"
        f"{text.replace('@', f'.{name}')}\n}}\n\n"
        for name, text in (("a", body), ("b", other))
    )
    module = parse(
        f"HloModule two\n\n{ADD}\n\n%most (a: f32[], b: f32[]) -> f32[] {{\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
        f"  ROOT %m = f32[] maximum(%a, %b)\n}}\n\n{bodies}ENTRY %main (x: {operand}, y: {operand}) -> ({result}, {result}) {{\n"
        f"  %x = {operand} parameter(0)\n  %y = {operand} parameter(1)\n"
        f"  %one = {result} fusion(%x, %y), kind=kLoop, calls=%fused_a\n"
        f"  %two = {result} fusion({first}, {second}), kind=kLoop, calls=%fused_b\n  ROOT %r = ({result}, {result}) tuple(%one, %two)\n}}\n"
    )
    pricer = Pricer(module, "gpu", Network.of(None, "gpu"))
    one, two = (Site(module, *found, "gpu") for name in ("one", "two") if (found := module.find(name)))
    return pricer.price(one), pricer.price(two)


def test_fusions_that_are_alike_cost_the_same() -> None:
    body = "  ROOT %s@ = f32[10]{0} add(%p0@, %p1@)"
    one, two = both(body, body, "f32[10]{0}", "f32[10]{0}")
    assert one == two
    assert amounts(one.cost) == {"vector/fp32": 10, "hbm": 3 * 40}


def test_a_body_like_another_on_one_array_twice_reads_it_once() -> None:
    body = "  ROOT %s@ = f32[10]{0} add(%p0@, %p1@)"
    one, two = both(body, body, "f32[10]{0}", "f32[10]{0}", "%x", "%x")
    assert (one.cost["hbm"], two.cost["hbm"]) == (3 * 40, 2 * 40)


def test_bodies_that_differ_only_in_where_they_slice_read_what_each_takes() -> None:
    body = """  %h@ = f32[50]{0} slice(%p0@), slice={[0:50]}
  %t@ = f32[50]{0} slice(%p0@), slice={[FROM:TO]}
  ROOT %s@ = f32[50]{0} add(%h@, %t@)"""
    one, two = both(body.replace("FROM:TO", "0:50"), body.replace("FROM:TO", "50:100"), "f32[50]{0}", "f32[100]{0}")
    assert (one.cost["hbm"], two.cost["hbm"]) == (4 * (50 + 50), 4 * (100 + 50))


def test_bodies_that_differ_only_in_what_a_slice_takes_of_a_broadcast_read_what_each_needs() -> None:
    body = """  %w@ = f32[8,8]{1,0} broadcast(%p0@), dimensions={AXIS}
  ROOT %s@ = f32[1,8]{1,0} slice(%w@), slice={[0:1], [0:8]}"""
    one, two = both(body.replace("AXIS", "0"), body.replace("AXIS", "1"), "f32[1,8]{1,0}", "f32[8]{0}")
    # The first row holds one element eight times, or each once.
    assert (one.cost["hbm"], two.cost["hbm"]) == (4 * (1 + 8), 4 * (8 + 8))


def test_bodies_that_differ_only_in_what_they_apply_count_that() -> None:
    body = """  %z@ = f32[] constant(0)
  ROOT %s@ = f32[] reduce(%p0@, %z@), dimensions={0}, to_apply=%RULE"""
    one, two = both(body.replace("%RULE", "%add"), body.replace("%RULE", "%most"), "f32[]", "f32[10]{0}")
    # Nine additions; comparisons are not FLOP.
    assert (one.cost["vector/fp32"], two.cost["vector/fp32"]) == (9, 0)


def test_bodies_that_differ_only_in_the_precision_of_a_product_run_on_their_own_units() -> None:
    body = "  ROOT %d@ = f32[8,8]{1,0} dot(%p0@, %p1@), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    one, two = both(body, f"{body}, operand_precision={{highest,highest}}", "f32[8,8]{1,0}", "f32[8,8]{1,0}")
    assert (one.cost["matrix/tf32"], two.cost["matrix/fp32"]) == (1024, 1024)
