"""Which axes of a slice the groups of a program's collectives span, and what its compiler says of them."""

import gzip

import pytest

from every import every
from hlo_programs import SHARED, differences
from priced import DATA, amounts, price, site
from roofline import analyze
from roofline.formulas.network import network_of
from roofline.formulas.slices import Plan
from roofline.hlo.ir.module import HloModule
from roofline.hlo.price.collective_plans import plan_of
from roofline.hlo.price.collectives import COLLECTIVES
from roofline.hlo.price.program import executed
from roofline.hlo.price.types import Price
from roofline.hlo.read import parse
from roofline.machines import load

SHARD = 512 * 4096 * 2  # bytes of each device's array in the programs
SUM = "%add {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n  ROOT %c = f32[] add(%a, %b)\n}"


def program(name: str) -> HloModule:
    path = DATA / "tpu" / f"{name}.gz"
    return parse(gzip.decompress(path.read_bytes()), path.name)


def link_bytes(module: HloModule, chip: str) -> dict[str, float]:
    """The payloads of a shard over the busiest link, by the kind of collective and its op."""
    ops = executed(module, "tpu", link=network_of(load(chip)))
    return {one.op.name: float(one.price.cost["ici"] or 0) / SHARD for one in ops if one.price.category in COLLECTIVES}


# Gathered along x, summed along y, summed over all, permuted along x, exchanged along y.
@every("form", ["txt", "pb"])
def test_axes_of_a_v6e_that_do_not_wrap_are_lines(form: str) -> None:
    assert link_bytes(program(f"collectives_v6e_4x4.hlo.{form}"), "v6e:4x4") == {
        "all_gather.3": 3.0,  # 3/4 of four shards through the one link of an end chip
        "psum.14": 1.0,
        "psum.15": 30 / 48,  # 2 x 15 messages over 24 links, both ways
        "collective-permute-start": 1.0,  # one chip on, and from the last back to the first the other way
        "all_to_all.15": 1.0,  # two chips send half of their array to the other two
    }


def test_axes_of_a_v5p_of_whole_cubes_are_rings() -> None:
    # A mesh of 4 x 16 on 4x4x4 chips: x is one axis, y is two.
    assert link_bytes(program("collectives_v5p_4x4x4.hlo.txt"), "v5p:4x4x4") == {
        "all_gather.3": 1.5,  # 3/4 of four shards over both directions
        "psum.14": pytest.approx(2 * 15 / 16 / 4),
        "psum.15": pytest.approx(2 * 63 / 64 / 6),
        "collective-permute-start": 1.0,
        "all_to_all.15": 0.5,
    }


def test_devices_of_one_chip_exchange_over_no_link_and_share_those_that_there_are() -> None:
    # A mesh of 4 x 2 on 2x2x1 chips of two devices: y is within a chip, and along x both groups of 4 cross the same links.
    assert link_bytes(program("collectives_v7x_2x2x1.hlo.txt"), "v7x:2x2x1") == {
        "all-gather.2.cloned.1.call-start": 2 * 4 * 3 / 4 / 2,  # two groups, each 3/4 of its four shards, over the two links of a corner
        "all-reduce.3.cloned.1.call-start": 0.0,
        "all-reduce.5.cloned.1.call-start": 2 * 3 / 8,  # summed on each chip first
        "collective-permute-start": 2.0,
        "all_to_all.15": 0.0,
    }


def test_work_handed_to_a_sparse_core_is_what_runs_there() -> None:
    ops = {one.op.name: one.price for one in executed(program("collectives_v7x_2x2x1.hlo.txt"), "tpu")}
    assert ops["all-gather.2.cloned.1.call-start"].category == "all-gather"
    assert not any(price.cost.unknown for price in ops.values())


def test_text_and_protobuf_of_a_program_have_the_same_groups() -> None:
    for name in ("collectives_v6e_4x4", "gathered_layers_v5e"):
        text, proto = program(f"{name}.hlo.txt"), program(f"{name}.hlo.pb")
        groups = [
            [one.replica_groups and one.replica_groups.groups for computation in module for one in computation if one.opcode in COLLECTIVES]
            for module in (text, proto)
        ]
        assert groups[0] == groups[1]
        assert not [line for line in differences(text, proto) if "replica_groups" in line]
    meshes = [one.replica_groups for computation in text for one in computation if one.opcode == "all-gather"]
    assert [(found.count, found.size, found.mesh is not None) for found in meshes if found] == [(1, 16, True)] * 4


def on(chip: str, groups: str, kind: str = "all-reduce", header: str = ", num_partitions=16", config: str = "") -> Price:
    """A collective of 1,024 bytes a device."""
    extra = f", backend_config={config}" if config else ""
    dimensions = ", dimensions={0}" if kind == "all-gather" else ", to_apply=%add"
    shape = "f32[4096]{0}" if kind == "all-gather" else "f32[256]{0}"
    text = f"{shape} {kind}(%0), replica_groups={groups}{dimensions}{extra}"
    return price(site(text, "f32[256]{0}", computations=SUM, platform="tpu", header=header), network_of(load(chip)))


@every(
    ("chip", "groups", "sent"),
    [
        # Along the last axis of 4x16, a ring, and along the first, a line.
        ("v6e:4x16", "[4,16]<=[64]", 2 * 15 / 16 / 2),
        ("v6e:4x16", "[16,4]<=[4,16]T(1,0)", 1),
        ("v6e:4x16", "mesh['a'=4,'b'=16] {'a'}", 1),
        ("v6e:4x16", "mesh['a'=4,'b'=16] {'b'}", 2 * 15 / 16 / 2),
        ("v6e:4x16", "{}", 2 * 63 / 224),
        # Along the first and the last axis of 4x4x4, in the order of its devices.
        ("v5p:4x4x4", "[4,16]<=[4,4,4]T(1,0,2)", 2 * 15 / 16 / 4),
        # Every second device of 4x4: no axis. A block of 2x4 has 10 links.
        ("v6e:4x4", "[2,8]<=[8,2]T(1,0)", 2 * 7 / 20),
    ],
)
def test_groups_span_the_axes_along_which_their_devices_differ(chip: str, groups: str, sent: float) -> None:
    devices = load(chip).topology
    assert devices is not None
    found = on(chip, groups, header=f", num_partitions={devices.devices}")
    assert float(found.cost["ici"] or 0) / 1024 == pytest.approx(sent)
    assert any("compact group is assumed" in note for note in found.notes) == ("8,2" in groups)


def strategy(name: str, colours: int, sides: str) -> str:
    debug = f"{name}{{colors:{colours} phases:2 cores:{{{sides}}},{{{sides}}} nophase0:0}}"
    return f'{{"collective_algorithm_config":{{"emitter":"RotatedPincerEmitter","strategy":"{name}","debug":"{debug}"}}}}'


def test_the_compilers_sides_win_over_the_order_of_the_devices_and_both_are_told() -> None:
    # By number {0,1,2,3} is the last axis of 2x2x4, a ring; the compiler runs it over 2x2: 2 x 3 messages over 8 links.
    config = strategy("UniDirectionNDRingStrategy", 4, "2 2")
    found = on("v5p:2x2x4", "[4,4]<=[16]", config=config)
    assert found.cost["ici"] == 1024 * 6 // 8
    assert any("by the devices' numbers it would be over 4 (ring)" in note for note in found.notes)


def test_the_compilers_sides_are_lines_or_rings_also_without_a_slice() -> None:
    config = strategy("UniDirectionNDRingStrategy", 4, "4 4")
    assert on("v6e", "{}", config=config).cost["ici"] == 1024 * 30 // 48  # axes of 4 do not wrap on a v6e
    assert on("v5p", "{}", config=config).cost["ici"] == 1024 * 2 * 15 // 64  # they do on a v5p
    assert on("v6e", "{}").cost["ici"] == 1024 * 15 // 16  # nothing is stated: one ring of 16


def test_a_strategy_with_fewer_links_than_the_slice_has_is_what_runs() -> None:
    config = '{"collective_algorithm_config":{"emitter":"1DAllGatherNonMajorDimImbalanced","debug":"group_size = 16"}}'
    found = on("v5p:4x4x4", "[4,16]<=[64]", kind="all-gather", header=", num_partitions=64", config=config)
    assert found.cost["ici"] == 16 * 1024 * 15 // 32  # one ring both ways, not two
    assert any("all links of these axes would carry 23%" in note for note in found.notes)


@every(
    ("config", "plan"),
    [
        # A colour goes one way in a UniDirection strategy, and both ways in others: the same torus has six, or three.
        (strategy("UniDirectionNDRingStrategy", 6, "4 4 4"), Plan("UniDirectionNDRingStrategy", 6, (4, 4, 4))),
        (strategy("StrategyND", 3, "4 4 4"), Plan("StrategyND", 6, (4, 4, 4))),
        (strategy("StrategyRing", 1, "4"), Plan("StrategyRing", 2, (4,))),
        ('{"collective_algorithm_config":{"emitter":"1DAllGatherOnMajorDim"}}', Plan("1DAllGatherOnMajorDim", 2)),
        ('{"collective_algorithm_config":{"emitter":"AllToAllEmitter","debug":"max_rdma_size_bytes: 32768"}}', None),
        ('{"collective_algorithm_config":[]}', None),
        ('{"window_config":{}}', None),
    ],
)
def test_a_compilers_plan_is_read_from_its_configuration(config: str, plan: Plan | None) -> None:
    text = f"f32[256]{{0}} all-reduce(%0), replica_groups={{}}, to_apply=%add, backend_config={config}"
    assert plan_of(site(text, "f32[256]{0}", computations=SUM).instruction) == plan


def test_collectives_on_sparse_cores_say_their_colours() -> None:
    module = program("collectives_v7x_2x2x1.hlo.txt")
    plans = [plan_of(one) for computation in module for one in computation if one.opcode == "all-reduce"]
    assert plans == [Plan("SparseCore rings", 2), Plan("SparseCore rings", 4)]


@every(
    ("pairs", "payloads"),
    [
        ("{{0,2},{1,3},{2,0},{3,1}}", 2),  # two on along a line: both payloads cross the middle
        ("{{0,4},{4,8},{8,12},{12,0}}", 1),
        ("{{0,3},{3,0}}", 1),
        ("{{0,5}}", 1),  # two axes: taken to be neighbours
    ],
)
def test_a_permute_crosses_the_links_on_its_way(pairs: str, payloads: int) -> None:
    text = f"f32[256]{{0}} collective-permute(%0), source_target_pairs={pairs}"
    found = price(site(text, "f32[256]{0}", platform="tpu", header=", num_partitions=16"), network_of(load("v6e:4x4")))
    assert amounts(found.cost)["ici"] == 1024 * payloads


def test_a_program_is_compared_with_one_device_of_a_chip_that_is_two(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "program.hlo.gz"
    path.write_bytes((DATA / "tpu" / "collectives_v7x_2x2x1.hlo.txt.gz").read_bytes())
    report = analyze(path, "v7x")
    assert (report.machine.name, report.machine.scope) == ("tpu-v7x/device", "device")
    hbm = {ceiling.resource: ceiling.rate for ceiling in report.machine.ceilings}["hbm"]
    assert hbm == load("v7x").rate("hbm") / 2
    assert any("--chip tpu-v7x:2x2x1" in note for note in report.input.notes)
    assert any("runs on 8 devices; the slice 2x2x2 of tpu-v7x:2x2x2 has 16" in note for note in analyze(path, "v7x:2x2x2").input.notes)
    assert not any("devices:" in note for note in analyze(path, "v7x:2x2x1").input.notes)


@pytest.mark.skipif(not (SHARED / "tpu" / "more").exists(), reason="the shared TPU programs are not here")
def test_a_training_step_on_a_pod_uses_the_links_that_its_compiler_names() -> None:
    # On 16x16 chips whose axes wrap, all-reduces use all four links, gathers that wait one ring, gathers under products all links.
    path = SHARED / "tpu" / "more" / "train_mt16_v5e.pb.gz"
    module = parse(gzip.decompress(path.read_bytes()), path.name)
    ops = {one.op.name: one.price for one in executed(module, "tpu", link=network_of(load("v5e:16x16")))}
    head = 2 * 32000 * 4096
    assert float(ops["all-reduce.11"].cost["ici"] or 0) == pytest.approx(head * 2 * 255 / 256 / 4)
    assert float(ops["all-gather.200"].cost["ici"] or 0) == pytest.approx(head * 255 / 256 / 2)
