"""Collectives and transfers: bytes through the busiest link, by replica groups and by the way chips are joined."""

from every import every
from priced import ADD, amounts, frozen, price, priced, site
from roofline.hlo.price.collectives import Network
from roofline.hlo.price.program import program
from roofline.hlo.price.types import Price
from roofline.topology import Torus

SHARD = "f32[256]{0}"  # 1,024 bytes
GROUPS = "replica_groups={{0,1,2,3},{4,5,6,7}}"
RING = Network("ici", "ring")


def on_a_ring(instruction: str, *operands: str, header: str = "") -> Price:
    return price(site(instruction, *operands, computations=ADD, platform="tpu", header=header), RING)


@every(
    ("instruction", "sent", "hops"),
    [
        # A ring of p = 4: gathering 4 shards brings in three of them, reducing and scattering sends out three quarters.
        (f"f32[1024]{{0}} all-gather(%0), {GROUPS}, dimensions={{0}}", 3 * 1024, 3),
        (f"f32[64]{{0}} reduce-scatter(%0), {GROUPS}, dimensions={{0}}, to_apply=%add", 768, 3),
        # An all-reduce is both, one after the other.
        (f"f32[256]{{0}} all-reduce(%0), {GROUPS}, to_apply=%add", 2 * 768, 6),
        # Each quarter goes 1, 2 or 3 steps round a one-way ring: (1 + 2 + 3)/4 of the buffer over every link.
        (f"f32[256]{{0}} all-to-all(%0), {GROUPS}, dimensions={{0}}", 1536, 3),
        ("f32[256]{0} collective-permute(%0), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}", 1024, 1),
        (f"f32[256]{{0}} collective-broadcast(%0), {GROUPS}", 1024, 3),
        # Half of an asynchronous pair: the start carries the cost.
        (f"f32[256]{{0}} all-reduce-start(%0), {GROUPS}, to_apply=%add", 2 * 768, 6),
        (f"(f32[256]{{0}}, f32[1024]{{0}}) all-gather-start(%0), {GROUPS}, dimensions={{0}}", 3 * 1024, 3),
    ],
)
def test_a_ring_of_four(instruction: str, sent: int, hops: int) -> None:
    assert amounts(on_a_ring(instruction, SHARD).cost) == {"ici": sent, "ici/hop": hops}


@every("groups", ["{{0,1,2,3},{4,5,6,7}}", "[2,4]<=[8]", "[2,4]<=[4,2]T(1,0)"])
def test_groups_may_be_spelled_in_any_way(groups: str) -> None:
    found = on_a_ring(f"{SHARD} all-reduce(%0), replica_groups={groups}, to_apply=%add", SHARD)
    assert found.cost["ici"] == 2 * 768


def test_an_empty_group_is_everybody() -> None:
    instruction = f"{SHARD} all-reduce(%0), replica_groups={{}}, channel_id=1, use_global_device_ids=true, to_apply=%add"
    found = on_a_ring(instruction, SHARD, header=", replica_count=1, num_partitions=8")
    assert found.cost["ici"] == 2 * 1024 * 7 // 8


def test_nothing_crosses_within_a_group_of_one() -> None:
    for instruction in (
        f"{SHARD} all-reduce(%0), replica_groups={{{{0}},{{1}}}}, to_apply=%add",
        f"{SHARD} collective-permute(%0), source_target_pairs={{{{0,0}},{{1,1}}}}",
    ):
        found = priced(instruction, SHARD, computations=ADD, platform="tpu")
        assert amounts(found.cost) == {"hbm": 2048}


def test_several_arrays_go_together() -> None:
    both = f"({SHARD}, bf16[256]{{0}}) all-reduce(%0, %1), {GROUPS}, to_apply=%add"
    assert on_a_ring(both, SHARD, "bf16[256]{0}").cost["ici"] == 2 * 3 * (1024 + 512) // 4


def test_the_link_and_its_wiring_are_the_callers_to_choose() -> None:
    one = site(f"{SHARD} all-reduce(%0), {GROUPS}, to_apply=%add", SHARD, computations=ADD, platform="gpu")
    assert amounts(price(one).cost) == {"nvlink": 1536, "nvlink/hop": 2}  # a switch: one hop there, one back
    assert amounts(price(one, "dcn").cost) == {"dcn": 1536, "dcn/hop": 6}
    # Eighteen links side by side carry an eighteenth each.
    assert price(one, Network("nvlink", "switch", 18)).cost["nvlink"] * 18 == 1536
    # Without a switch, three of seven links lead to the other three of a group, and one to a single other chip.
    direct = Network("xgmi", "switch", 7, peers=7)
    assert price(one, direct).cost["xgmi"] * 3 == 1536
    sent = site(f"{SHARD} collective-permute(%0), source_target_pairs={{{{0,1}},{{1,0}}}}", SHARD, platform="gpu")
    assert price(sent, direct).cost["xgmi"] == 1024


def test_an_exchange_through_a_switch_sends_all_but_ones_own_part() -> None:
    found = priced(f"{SHARD} all-to-all(%0), {GROUPS}, dimensions={{0}}", SHARD, platform="gpu")
    assert found.cost["nvlink"] == 768


def test_transfers_with_the_host_cross_pcie() -> None:
    token = "token[]"
    assert amounts(priced(f"({SHARD}, token[]) infeed(%0)", token, platform="tpu").cost) == {"pcie": 1024}
    assert amounts(priced("token[] outfeed(%0, %1), outfeed_shape=f32[256]{0}", SHARD, token, platform="tpu").cost) == {"pcie": 1024}
    send = f"({SHARD}, u32[], token[]) send(%0, %1), channel_id=1"
    assert amounts(priced(send + ", is_host_transfer=true", SHARD, token, platform="tpu").cost) == {"pcie": 1024}
    assert amounts(priced(send, SHARD, token, platform="tpu").cost) == {"ici": 1024, "ici/hop": 1}
    receive = f"({SHARD}, u32[], token[]) recv(%0), channel_id=1"
    assert amounts(priced(receive + ", is_host_transfer=true", token, platform="tpu").cost) == {"pcie": 1024}
    assert amounts(priced(receive, token, platform="tpu").cost) == {}  # counted where it is sent
    # Between slices the hosts send it on: for a sum of four slices 2 x 3/4 of it leave each, of a gather's result 3/4 come from others.
    between = '_xla_host_transfer_handler_name="xla_megascale_runtime",_xla_megascale_target="{0:3}x{0:15}"'
    for kind, crossing in (("ALL_REDUCE", 1536), ("ALL_GATHER", 768)):
        words = f'{receive}, is_host_transfer=true, frontend_attributes={{{between},_xla_megascale_transfer_type="{kind}"}}'
        assert amounts(priced(words, token, platform="tpu").cost) == {"pcie": 1024, "dcn": crossing}


def test_the_done_half_costs_nothing() -> None:
    for opcode in ("all-reduce-done", "collective-permute-done", "copy-done"):
        assert amounts(priced(f"{SHARD} {opcode}(%0)", SHARD).cost) == {}


def test_collectives_that_jax_compiles_are_found() -> None:
    # 8 devices hold 8 x 32 floats each, 1,024 bytes; through a switch of p = 8.
    expected = {
        "all_reduce": 2 * 1024 * 7 // 8,
        "all_gather": 7 * 1024,
        "reduce_scatter": 1024 * 7 // 8,
        "all_to_all": 1024 * 7 // 8,
        "permute": 1024,
    }
    for form in ("before", "after"):
        found = {name: program(frozen(f"collective_{name}", form), "gpu").cost["nvlink"] for name in expected}
        assert found == expected


def test_a_machines_own_links_carry_its_collectives() -> None:
    from roofline.hlo.price.collectives import network_of
    from roofline.machines import load

    # A switch joins the 18 NVLinks of an H200, so all carry; on an axis of a torus both directions do.
    assert network_of(load("h200")) == Network("nvlink", "switch", 18, reach=8)
    assert network_of(load("v5e")) == Network("ici", "bidirectional", 1, torus=Torus((16, 16), ring=16))
    assert network_of(load("mi300x")) == Network("xgmi", "switch", 7, peers=7, reach=8)
    assert network_of(load("apple-m1")) is None
    assert network_of(load("h200"), "pcie") == Network("pcie", "switch", 1)


def test_a_collective_takes_the_best_algorithm_of_its_network_unless_one_is_asked_for() -> None:
    from roofline.hlo.price.collectives import asked_network
    from roofline.machines import load

    v5e, gather = load("v5e"), f"f32[1024]{{0}} all-gather(%0), {GROUPS}, dimensions={{0}}"
    one = site(gather, SHARD, platform="tpu")
    # 3,072 bytes come in: over both directions of a ring of four, over one, or over both links of a 2x2 torus, whose axes have one lane.
    for words, sent in (((None, None), 1536), ((None, "ring"), 3072), (("2x2", None), 1536), (("4", None), 1536), (("ring", None), 1536)):
        assert price(one, asked_network(v5e, None, *words)).cost["ici"] == sent, words
