"""Rules that say what to do next: one kind a situation, doubt first, then seconds saved."""

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofline as rl
from every import every
from roofline import formulas
from roofline.analysis import analyze
from roofline.analysis.findings.order import in_order
from roofline.analysis.findings.single_ops import EXTRA, PRIMARY, Placed, explain, op_evidence, unknown, unrated
from roofline.analysis.findings.writing import Writer
from roofline.analysis.summary import summary
from roofline.cost import Cost
from roofline.ledger import Ledger
from roofline.machine import Machine
from roofline.operation import Product
from roofline.placement import Corrections, place
from roofline.report import Finding, MachineInfo, Point
from roofline.rules.words import kinds as all_kinds
from roofline.rules.words import page, words_of
from roofline.workload import Op, Recording, Workload
from toys import toy

V7X = Machine.of("v7x", {"matrix/bf16": "2307 TFLOP/s", "hbm": "7.2 TB/s", "vmem": "150 TB/s"})


def op(id: int, amounts: Mapping[str, float | None], time_s: float | None, machine: Machine | None = None, **details: object) -> Placed:
    made = Op(name=str(details.pop("name", f"op{id}")), cost=Cost.of(amounts), time_s=time_s, **details)  # type: ignore[arg-type]
    return Placed(id, made, place(made.cost, machine or toy(), time_s, executions=made.launches))


def advise(ops: Iterable[Placed], machine: Machine) -> tuple[Finding, ...]:
    """The findings about ops that are judged one by one, in order."""
    ops = list(ops)
    writer = Writer((machine.kind,), names={one.id: one.op.name for one in ops})
    return in_order(map(writer.finding, op_evidence(ops, machine)), {one.id: one.placement.time_s for one in ops})


def kinds(*ops: Placed, machine: Machine | None = None) -> list[str]:
    return [finding.kind for finding in advise(ops, machine or toy())]


def only(one: Placed) -> Finding:
    (finding,) = advise([one], one.placement.machine)
    return finding


# On the toy, 10 B take 1 s of memory, and 100 bf16 FLOP take 1 s of the matrix unit.
MEMORY = {"hbm": 10}
COMPUTE = {"matrix/bf16": 100, "hbm": 1}


@every(
    ("amounts", "time_s", "kind"),
    [
        (MEMORY, 1 / 0.7, "memory-close"),  # at least 0.7 is close
        (MEMORY, 1 / 0.69, "memory-middle"),
        (MEMORY, 1 / 0.4, "memory-middle"),
        (MEMORY, 1 / 0.39, "memory-far"),  # below 0.4 is far
        (MEMORY, 1 / 0.1, "memory-far"),
        (MEMORY, 1 / 0.09, "far-below"),  # below 0.1 it is no longer the kernel
        (MEMORY, 1.0, "memory-close"),
        (MEMORY, 0.5, "above-roof"),
        (COMPUTE, 1 / 0.8, "compute-close"),
        (COMPUTE, 1 / 0.5, "compute-middle"),
        (COMPUTE, 1 / 0.2, "compute-far"),
        (COMPUTE, 0.9, "above-roof"),
        ({"ici": 1}, 1.1, "network-bound"),
        ({"ici": 1}, 4.0, "network-bound"),
        (MEMORY, None, "memory-bound"),
        (COMPUTE, None, "compute-bound"),
        ({"ici": 1}, None, "network-bound"),
    ],
)
def test_each_zone_has_its_kind(amounts: dict[str, float], time_s: float | None, kind: str) -> None:
    finding = only(op(0, amounts, time_s))
    assert finding.kind == kind
    assert finding.ops == (0,)
    assert finding.levers == words_of(kind, "one op" if kind == "latency" else "").levers


def test_a_memory_bound_message_carries_the_numbers() -> None:
    finding = only(op(3, MEMORY, 4.0, name="transpose"))
    assert finding.message == "transpose is memory-bound (hbm) at 25% of its roofline: 4 s, minimum 1 s."
    assert finding.saving_s == 3.0


def test_an_op_above_its_roof_saves_nothing_and_counts_with_its_time() -> None:
    # Of 0.5 s in doubt and 0.4 s (1.4 s less the minimum of 1 s) to save, the doubt comes first; of 0.5 s and 999 s the saving.
    doubt = op(0, MEMORY, 0.5, name="tiny")
    told, *_ = advise([op(1, MEMORY, 1.4), doubt], toy())
    assert told.kind == "above-roof"
    assert told.message == "tiny is faster than the roofline allows (500 ms, minimum 1 s on hbm): check the count and the ceiling."
    assert told.saving_s is None
    assert [one.kind for one in advise([op(1, MEMORY, 1000.0), doubt], toy())] == ["far-below", "above-roof"]


def test_a_time_exactly_on_the_roof_is_not_above_it() -> None:
    cost = {"hbm": 3}
    assert only(op(0, cost, 3 / 10)).kind == "memory-close"


def test_between_two_memory_roofs_tiling_is_the_lever() -> None:
    # 50 FLOP/B: 360 TFLOP/s under HBM at 7.2 TB/s; a well-tiled kernel at 1260 needs 25.2 TB/s, below VMEM's 150.
    time_s = 50 / 1260
    finding = only(op(0, {"matrix/bf16": 50e12, "hbm": 1e12}, time_s, V7X, name="tiled"))
    assert finding.kind == "between-roofs"
    assert finding.message == (
        "tiled achieves 25.2 TB/s, between the bandwidth of hbm (7.2 TB/s) and vmem (150 TB/s): "
        "part of its data stays on chip; improve its tiling."
    )
    # What is left then is the matrix unit: 50e12 FLOP at 2307 TFLOP/s.
    assert finding.saving_s == pytest.approx(time_s - 50 / 2307)


@every(
    ("amounts", "time_s"),
    [
        ({"hbm": 150e12}, 0.9),  # above the VMEM roof too: 150 TB in 0.9 s
        ({"matrix/bf16": 2307e12, "hbm": 8e12}, 0.9),  # above the compute roof as well
        ({"matrix/bf16": 2307e12, "hbm": 1}, 0.9),  # compute bound
    ],
)
def test_above_every_roof_is_doubt_and_not_tiling(amounts: dict[str, float], time_s: float) -> None:
    assert "above-roof" in kinds(op(0, amounts, time_s, V7X))
    assert "between-roofs" not in kinds(op(0, amounts, time_s, V7X))


def test_a_cost_that_is_an_upper_bound_raises_no_doubt() -> None:
    assert not {"between-roofs", "above-roof"} & {*kinds(op(0, {"hbm": 20}, 1.0, notes=("upper bound: the grid's blocks",)))}
    assert "above-roof" in kinds(op(0, {"hbm": 20}, 1.0))


def test_without_a_faster_memory_there_is_nothing_to_be_between() -> None:
    assert only(op(0, {"hbm": 10}, 0.5)).kind == "above-roof"


def test_a_time_near_the_sum_means_no_overlap() -> None:
    # 1 s of memory and 0.6 s of matrix: T_min 1 s, T_max 1.6 s. 1.5 s is within a tenth of T_max.
    finding = only(op(0, {"hbm": 10, "matrix/bf16": 60}, 1.5, name="gemm"))
    assert finding.kind == "no-overlap"
    assert finding.message == ("gemm takes 1.5 s, about its serial time on hbm + matrix (1.6 s; minimum 1 s): nothing overlaps.")
    assert finding.saving_s == pytest.approx(0.5)


def test_a_sum_that_is_hardly_longer_says_nothing_about_overlap() -> None:
    # 1 s and 0.1 s: T_max is only a tenth above T_min.
    assert kinds(op(0, {"hbm": 10, "vector/fp32": 2}, 1.1)) == ["memory-close"]


def test_small_kernels_are_bound_by_their_launches_one_by_one() -> None:
    # 1000 launches of 5 µs, each with 1 µs of work: under the 2 µs of a launch and five of them.
    finding = only(op(0, {"hbm": 10e-3}, 5e-3, count=1000, name="add"))
    assert finding.kind == "latency"
    assert finding.message == "add is latency-bound: 5 µs per launch, of which the work needs 1 µs."
    assert finding.saving_s == pytest.approx(4e-3)
    # The same total in one launch is a slow kernel.
    assert only(op(0, {"hbm": 10e-3}, 5e-3)).kind == "memory-far"


def test_kernels_count_rather_than_executions_where_known() -> None:
    assert only(op(0, {"hbm": 10e-3}, 5e-3, count=1, kernels=1000)).kind == "latency"


def test_near_the_ridge_both_sides_are_named() -> None:
    # 100 FLOP and 9 B: 1 s of matrix against 0.9 of memory, a factor of 1.11; at 0.8 it is exactly 1.25.
    findings = advise([op(0, {"matrix/bf16": 100, "hbm": 9}, 1.2, name="mlp")], toy())
    assert [finding.kind for finding in findings] == ["compute-close", "near-ridge"]
    assert findings[1].message == ("mlp is near the ridge point at 11.11 FLOP/B (ridge 10 FLOP/B): matrix needs 1 s, hbm 900 ms.")
    assert "near-ridge" in kinds(op(0, {"matrix/bf16": 100, "hbm": 8}, 1.2))
    assert "near-ridge" not in kinds(op(0, {"matrix/bf16": 100, "hbm": 7.9}, 1.2))


def test_a_product_in_fp32_on_the_vector_unit_is_told_of_the_matrix_unit() -> None:
    # 400 FLOP at 20 take 20 s; tf32 at 50 would take 8.
    gpu = Machine.of("gpu", {"matrix/bf16": 100, "matrix/tf32": 50, "vector/fp32": 20, "hbm": 10})
    findings = advise([op(0, {"matrix/fp32": 400}, 21.0, gpu, name="linear")], gpu)
    assert [finding.kind for finding in findings] == ["vector-instead-of-matrix", "compute-close"]
    assert findings[0].message == ("linear does 400 FLOP of fp32 matmuls on the vector unit: minimum 20 s, on matrix/tf32 8 s.")
    assert findings[0].saving_s == 12.0


@every(
    ("name", "expected"),
    [
        ("dot_general.3", True),
        ("sgemm_128x64", True),
        ("conv2d", True),
        ("convolution.1", True),
        ("convert.7", False),
        ("add", False),
    ],
)
def test_products_are_known_by_name_where_they_are_billed_as_vector_work(name: str, expected: bool) -> None:
    found = kinds(op(0, {"vector/fp32": 400}, 21.0, name=name))
    assert ("vector-instead-of-matrix" in found) is expected


def test_products_in_double_precision_are_left_alone() -> None:
    chip = Machine.of("chip", {"matrix/bf16": 100, "vector/fp64": 20, "hbm": 10})
    assert kinds(op(0, {"matrix/fp64": 400}, 21.0, chip)) == ["compute-close"]


def test_a_product_at_half_the_ridge_is_told_to_batch() -> None:
    # 40 FLOP over 10 B is 4 FLOP/B, under half of the ridge at 10; at 5.1 it is above half.
    findings = advise([op(0, {"matrix/bf16": 40, "hbm": 10}, 1.1, name="decode")], toy())
    assert [finding.kind for finding in findings] == ["memory-close", "low-batch"]
    assert findings[1].message == (
        "decode has 4 FLOP/B, far below the matrix/bf16 ridge at 10 FLOP/B: if nearly all its bytes are weights, "
        "about 2.5 times as many rows would take the same time."
    )
    assert "low-batch" not in kinds(op(0, {"matrix/bf16": 51, "hbm": 10}, 1.1))
    assert "low-batch" not in kinds(op(0, {"vector/fp32": 4, "hbm": 10}, 1.1))


@every(
    ("ledger", "said"),
    [
        (formulas.matmul(1, 10_000, 10_000), "about 10 times as many rows would take the same time"),
        # r rows have 2·r·n² FLOP and 2·n² + 4·r·n B, which is 10 FLOP/B where r = 10·n/(n − 20): 12, in 17,280/14,640 of the time.
        (formulas.matmul(1, 120, 120), "about 12 times as many rows would take 1.2 times as long"),
        (formulas.matmul(1, 32, 32), ""),  # 26.7 rows, 2.5 times as long
        (formulas.matmul(10_000, 10_000, 1), ""),
        (formulas.attention_decode(8, 4, 1000, 128), ""),
        (formulas.per_example_weights(8, 1000, 1000), ""),
        (formulas.conv2d(8, 64, 64, 56, 56, groups=64), ""),
    ],
)
def test_more_rows_are_advised_only_where_weights_are_most_of_the_bytes(ledger: Ledger, said: str) -> None:
    one = op(0, dict(ledger.cost.amounts), None, ledger=ledger)
    found = [finding.message for finding in advise([one], toy()) if finding.kind == "low-batch"]
    assert (said in found[0]) if said else not found


@every(
    ("product", "advised"),
    [
        (Product(m=1, k=100, n=100), True),
        (Product(m=100, k=100, n=1), True),
        (Product(m=100, k=100, n=1, batch=2), False),
        (Product(m=5, k=100, n=5), False),
    ],
)
def test_of_a_product_in_a_profile_the_larger_operand_is_taken_for_weights(product: Product, advised: bool) -> None:
    found = kinds(op(0, {"matrix/bf16": product.flops, "hbm": product.bytes}, None, operation=product))
    assert ("low-batch" in found) is advised


def test_resources_without_a_rate_are_named_once_for_all_ops() -> None:
    ops = [op(id, {"hbm": 10, "dcn": 5}, 1.1) for id in range(2)]
    finding = next(finding for finding in advise(ops, toy()) if finding.kind == "unrated")
    assert finding.message == "toy has no known rate for dcn: the minimum time of op0 and op1 excludes it, and the bound is not known."
    assert finding.ops == (0, 1)


def test_unknown_latencies_of_links_are_no_finding() -> None:
    chip = Machine.of("toy", {"hbm": 10, "dcn": 10})
    assert "unrated" not in kinds(op(0, {"dcn": 5, "dcn/hop": 1}, 1.1, chip), machine=chip)


@every(("unknown_s", "first"), [(6.0, "unknown"), (4.0, "memory")])
def test_what_is_unknown_comes_first_where_it_is_most_of_the_time(unknown_s: float, first: str) -> None:
    # The copy needs 1 s of its 10 s less the time of the unknown op.
    ops = (
        Op(name="copy", cost=Cost.of({"hbm": 10}), time_s=10.0 - unknown_s),
        Op(name="kernel", cost=Cost.of({"hbm": None}), time_s=unknown_s),
    )
    report = analyze(Recording(workload=Workload(ops), format="table"), toy())
    kinds = [finding.kind for finding in report.findings]
    assert kinds[0] == first
    assert "unknown" in kinds


def test_the_summary_says_how_to_record_what_is_not_known() -> None:
    findings = Finding(kind="unknown", message="b", levers=("record shapes",)), Finding(kind="memory", message="a", saving_s=1.0)
    point = Point(scope="average", time_s=10.0, lost={"unpriced": 6.0})
    assert summary([point], MachineInfo(name="toy", ceilings=()), [], findings).endswith("To know more, record shapes.")


@every(
    ("cost", "findings"),
    [
        ({"hbm": 10, "vmem.write": 5}, ["memory", "unrated"]),  # VMEM is faster than HBM: its rate changes no bound
        ({"hbm": 10, "dcn": 5}, ["unrated", "memory"]),  # the exchange may take longer than the memory
        ({"hbm": 1, "vector/fp32": None}, ["memory", "unknown"]),  # 0.1 s of 1.1 s
        ({"hbm": 20, "vector/fp32": None}, ["unknown", "memory"]),  # 2 s of 3 s
    ],
)
def test_a_doubt_comes_first_only_where_it_may_change_the_bound(cost: dict[str, float | None], findings: list[str]) -> None:
    ops = Op(name="kernel", cost=Cost.of(cost)), Op(name="copy", cost=Cost.of({"hbm": 10}))
    report = analyze(Recording(workload=Workload(ops), format="hlo"), toy())
    assert [finding.kind for finding in report.findings] == findings


def test_the_unpriced_share_of_time_is_told() -> None:
    ops = [op(0, MEMORY, 1.0), op(1, {"hbm": None}, 3.0, name="custom-call")]
    finding = next(finding for finding in advise(ops, toy()) if finding.kind == "unknown")
    assert finding.message == "Ops with 75% of the measured time (3 s) have no known cost: custom-call."
    assert finding.ops == (1,)


def test_how_to_record_an_unknown_cost_comes_first() -> None:
    ways = ["unpriced: record with the first", "unpriced: record with the second", "no PyTorch op launched it"]
    ops = [op(id, {"hbm": None}, id + 1.0, notes=(ways[id],)) for id in range(3)]
    finding = next(finding for finding in advise(ops, toy()) if finding.kind == "unknown")
    assert finding.levers[:2] == ("record with the second", "record with the first")
    assert "give the FLOP and bytes of ops" in finding.levers[2]


def test_a_hundredth_of_unknown_time_is_not_worth_a_line() -> None:
    assert "unknown" not in kinds(op(0, MEMORY, 1000.0), op(1, {"hbm": None}, 3.0))
    assert "unknown" in kinds(op(0, MEMORY, None), op(1, {"hbm": None}, None))


def test_an_op_that_nobody_can_price_is_doubted_but_not_advised() -> None:
    # Its floor is too low: a time below even that is wrong, and a time above it says nothing.
    assert kinds(op(0, {"hbm": 10, "vector/fp32": None}, 0.5)) == ["above-roof", "unknown"]
    assert kinds(op(0, {"hbm": 10, "vector/fp32": None}, 5.0)) == ["unknown"]


def test_the_middle_zone_is_told_only_where_its_seconds_are() -> None:
    # Half of 2 s is a saving of 1 s: nothing beside 1000 s, something beside 50.
    middle = op(0, MEMORY, 2.0)
    assert kinds(middle, op(1, {"hbm": 10_000}, 1000.0)) == ["memory-close"]
    assert kinds(middle, op(1, {"hbm": 500}, 50.0)) == ["memory-middle", "memory-close"]


def test_findings_come_by_seconds_saved() -> None:
    found = advise([op(0, MEMORY, 3.0), op(1, COMPUTE, 6.0), op(2, {"ici": 1}, 2.0)], toy())
    assert [finding.saving_s for finding in found] == [5.0, 2.0, 1.0]


def test_many_ops_of_one_kind_share_a_finding() -> None:
    # Six slow copies of 3 to 8 s where 1 s would do: 2 + 3 + ... + 7 = 27 s to save.
    ops = [op(id, MEMORY, 3.0 + id, name=f"copy.{id}") for id in range(6)]
    (finding,) = advise(ops, toy())
    assert finding.ops == (5, 4, 3, 2, 1, 0)
    assert finding.saving_s == 27.0
    assert finding.message == ("6 ops are memory-bound below 40% of their roofline: copy.5, copy.4, copy.3 and 3 more.")
    assert len(advise(ops[:5], toy())) == 5


def test_long_names_are_cut() -> None:
    message = only(op(0, MEMORY, 4.0, name="k" * 500)).message
    assert message.startswith("k" * 59 + "… is memory-bound (hbm)")


def test_work_that_asks_for_nothing_gets_no_advice() -> None:
    assert advise([op(0, {}, 1.0)], toy()) == ()
    assert explain(place(Cost(), toy())) is None


def test_explaining_a_formula_says_what_binds_and_where_the_ridge_is() -> None:
    found = explain(place(Cost.of({"matrix/bf16": 50, "hbm": 10}), toy()), "matmul")
    assert found is not None
    assert found.kind == "memory-bound"
    assert found.message == "matmul is memory-bound (hbm) at 5 FLOP/B (ridge 10 FLOP/B): minimum time 1 s."
    assert (found.ops, found.saving_s) == ((), None)
    assert len(found.levers) >= 2


def test_explaining_work_near_the_ridge_says_so_first() -> None:
    found = explain(place(Cost.of({"matrix/bf16": 100, "hbm": 10}), toy()))
    assert found is not None
    assert found.kind == "near-ridge"


def test_explaining_a_measured_op_is_the_same_advice() -> None:
    found = explain(place(Cost.of(MEMORY), toy(), time_s=4.0))
    assert found is not None
    assert (found.kind, found.saving_s) == ("memory-far", 3.0)


def test_corrections_lower_the_roof_that_advice_speaks_of() -> None:
    # At half the bandwidth, 2 s for 10 B is on the roof.
    found = explain(place(Cost.of(MEMORY), toy(), 2.0, Corrections(sustained=0.5)))
    assert found is not None
    assert found.kind == "memory-close"


ALONE = [kind for kind in all_kinds() if page(kind).chapter in ("Single operations", "Suspect figures")]


def test_every_kind_has_two_to_four_levers_and_a_sentence() -> None:
    for kind in ALONE:
        assert 1 <= len(page(kind).levers) <= 4, kind
        assert page(kind).sentence, kind
        assert page(kind).together or page(kind).chapter == "Suspect figures", kind


def test_every_rule_says_what_it_looks_for() -> None:
    for rule in (*PRIMARY, *EXTRA, unrated, unknown):
        assert rule.__doc__


RESOURCES = st.sampled_from(["matrix/bf16", "matrix/fp32", "vector/fp32", "hbm", "ici", "dcn"])
AMOUNTS = st.dictionaries(RESOURCES, st.one_of(st.none(), st.floats(0.01, 1000)), max_size=3)
TIMES = st.one_of(st.none(), st.floats(1e-6, 1000))


def rated(amounts: dict[str, float | None]) -> bool:
    return all(amount is None for name, amount in amounts.items() if name == "dcn")


@given(st.lists(st.tuples(AMOUNTS.filter(rated), TIMES), max_size=12), st.randoms(use_true_random=False))
def test_advice_is_the_same_in_any_order_of_the_ops(rows: list[tuple[dict[str, float | None], float | None]], random: object) -> None:
    ops = [op(id, amounts, time_s) for id, (amounts, time_s) in enumerate(rows)]
    shuffled = list(ops)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    found = advise(ops, toy())
    assert found == advise(shuffled, toy()) == advise(ops, toy())
    assert {finding.kind for finding in found} <= {*all_kinds()}
    savings = [finding.saving_s or 0.0 for finding in found if finding.kind != "above-roof"]
    assert savings == sorted(savings, reverse=True)
    assert all(saving >= 0 for saving in savings)


def test_caches_and_main_memory_are_one_path_and_do_not_wait_for_one_another() -> None:
    chip = toy().override({"l2": 10})
    # 1 s through l2 and 1 s through hbm, 2 s measured: a slow copy, not two paths in turn.
    assert kinds(op(0, {"hbm": 10, "l2": 10}, 2.0, chip), machine=chip) == ["memory-middle"]
    # 1 s of arithmetic besides: now 2 s are the two paths in turn.
    assert kinds(op(0, {"hbm": 10, "l2": 10, "matrix/bf16": 90}, 1.9, chip), machine=chip)[0] == "no-overlap"


@every(("size", "kind"), [(64, "latency"), (8192, "compute-bound")])
def test_a_formula_smaller_than_its_launch_is_told_to_batch_not_to_save_bytes(size: int, kind: str) -> None:
    report = rl.price([rl.formulas.matmul(size, size, size)], rl.chip("h100"))
    assert report.findings[0].kind == kind
    assert ("per launch, of which the work needs" in report.findings[0].message) == (kind == "latency")
