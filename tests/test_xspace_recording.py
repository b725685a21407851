"""Profiles as recordings: the real captures hold to what is known of them, and hosts merge in any order to the same digits."""

import gzip
import pickle
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.analysis.counters.joining import join
from roofline.cost import Cost
from roofline.errors import SourceError
from roofline.machines import load
from roofline.placement import place
from roofline.sources import read
from roofline.sources.ncu.recording import read_counters
from roofline.sources.parts import DevicePart, Extent, Instance, Part, Share, Subject, Tally, numbered
from roofline.sources.xspace.recognition import sniff
from roofline.sources.xspace.recording import merge, read_part
from roofline.workload import Recording
from xspace_profiles import MICROSECOND, Instruction, annotation, gpu, hlo, host, kernel, launch, programs, write
from xspace_writer import space

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[2] / "shared" / "data" / "h200"
US = MICROSECOND
# Captures: steps, FLOP of products a step, operations with (executions, mean µs), known from the programs and their authors.
KNOWN: dict[str, tuple[int, int, dict[str, tuple[int, float]]]] = {
    "jax_train": (6, 13_941_463_842_816, {"custom-call.21": (6, 1360.56)}),
    "jax_scan": (5, 3_573_412_790_272, {"fusion.39": (40, 238.67), "gemm_fusion_dot.3": (40, 167.72), "custom-call.1": (40, 130.22)}),
    "jax_custom": (5, 274_877_906_944, {}),
    "jax_fusion": (30, 0, {}),
    "jax_mix": (6, 793_948_192_768, {}),
    "jax_remat": (6, 549_755_813_888, {}),
    "jax_offload": (6, 1_649_267_441_664, {}),
    "jax_attention": (6, 5_222_680_231_936, {}),
}


def capture(name: str) -> Path:
    folder = DATA / "h200"
    return next(path for path in (folder / f"{name}.xplane.pb.gz", folder / f"{name}.xplane.pb") if path.exists())


@every("name", KNOWN)
def test_real_captures_are_attributed_priced_and_exact(name: str) -> None:
    steps, product, means = KNOWN[name]
    recording = read(capture(name))
    coverage = recording.coverage
    assert coverage.busy_s
    assert coverage.wall_s
    assert coverage.busy_s <= coverage.wall_s
    assert coverage.attributed_s == coverage.priced_s == coverage.busy_s
    assert [(step.complete, step.busy_s <= (step.time_s or 0)) for step in recording.steps if step.busy_s] == [(True, True)] * steps
    products = sum(amount for op in recording.workload for resource, amount in op.cost.amounts if resource.unit == "matrix")
    assert products / steps == product
    for op, (count, mean_us) in means.items():
        found = [one for one in recording.workload if one.name == op and one.count == count]
        assert any((one.time_s or 0) / count * 1e6 == pytest.approx(mean_us, rel=1e-3) for one in found)
    assert recording.notes == ()


@every("name", KNOWN)
def test_no_operation_of_a_real_capture_is_above_its_roof(name: str) -> None:
    chip = load("h200-sxm")
    costly = [op for op in read(capture(name)).workload if op.cost.amounts]
    assert costly
    for op in costly:
        assert (place(op.cost, chip, op.time_s, executions=op.launches).efficiency or 0) <= 1.02, op.name


@every("name", KNOWN)
def test_shares_of_steps_and_devices_add_up_to_their_operation(name: str) -> None:
    workload = read(capture(name)).workload
    assert len(workload) > 0
    for op in workload:
        assert sum(share.count for share in op.by_device) == op.count
        assert sum(share.time_s for share in op.by_device) == pytest.approx(op.time_s)
        if op.category not in ("copy", "memset") and op.module:
            assert sum(share.count for share in op.by_step) == op.count
            assert sum(share.time_s for share in op.by_step) == pytest.approx(op.time_s, rel=1e-6)


def test_the_training_capture_is_busy_for_the_union_of_its_kernels() -> None:
    recording = read(capture("jax_train"))
    # 167.93 ms busy, durations sum to 168.34; nearly all of the difference lies between operations.
    assert recording.coverage.busy_s == pytest.approx(0.16793, rel=1e-4)
    assert sum(op.self_time_s or 0 for op in recording.workload) == pytest.approx(recording.coverage.busy_s, rel=1e-12)
    assert sum(op.time_s or 0 for op in recording.workload) == pytest.approx(0.16834, rel=1e-4)
    assert sum(step.time_s or 0 for step in recording.steps) / 6 == pytest.approx(28.2e-3, rel=0.01)


def test_thirty_steps_with_three_numbers_are_thirty_steps() -> None:
    steps = read(capture("jax_fusion")).steps
    assert [step.number for step in steps] == [4] * 10 + [2] * 10 + [1] * 10
    assert [step.step for step in steps] == list(range(30))
    walls = [[step.time_s or 0 for step in steps[first : first + 10]] for first in (0, 10, 20)]
    # The last of each ten lasts until the first of the next, which waits for the host.
    assert [sorted(wall)[5] for wall in walls] == pytest.approx([1.30e-3, 0.80e-3, 0.53e-3], rel=0.02)


def test_the_pallas_kernel_moves_six_bytes_an_element() -> None:
    kernel_ = next(op for op in read(capture("jax_custom")).workload if op.name == "pallas_call.1")
    assert kernel_.cost["hbm"] == 5 * 6 * 67_108_864


def test_copies_of_a_program_to_the_host_and_of_the_runtime_are_on_its_bus() -> None:
    recording = read(capture("jax_offload"))
    moved = {op.name: op.cost["pcie"] for op in recording.workload if op.cost["pcie"]}
    # 67 MB in and out by the program in each of six steps, 4 MB in by the runtime, and a scalar of two bytes out.
    assert moved == {"copy-start.2": 6 * 2**26, "copy-start.1.0": 6 * 2**26, "MemcpyH2D": 6 * 2**22, "MemcpyD2H": 12}


def test_source_lines_and_scopes_come_with_the_operations() -> None:
    ops = {op.name: op for op in read(capture("jax_scan")).workload}
    assert (ops["fusion.39"].scope, ops["fusion.39"].location) == ("attn", "/home/user/src/programs/jax_programs.py:26")
    forward = {op.phase for op in read(capture("jax_train")).workload}
    assert forward == {"forward", "backward", ""}


def test_counters_join_the_kernels_of_a_profile() -> None:
    recording = read(capture("jax_fusion"))
    joined = join(recording, read_counters(DATA / "ncu_jax_fusion.csv.gz")[0])
    assert joined.notes == ("counters: 10 of 10 launches matched to 10 of 10 ops with kernels",)
    assert {use.grid for use in recording.kernels} >= {(16384, 1, 1), (524288, 1, 1)}


@pytest.mark.skipif(not (SHARED / "jax_matmuls.xplane.pb").exists(), reason="the capture is not here")
def test_products_of_every_size_are_two_mkn_an_execution() -> None:
    recording = read(SHARED / "jax_matmuls.xplane.pb")
    shapes = [(n, n, n) for n in (256, 512, 1024, 2048, 4096, 8192)] + [(b, 8192, 8192) for b in (1, 16, 64, 128, 256, 512)]
    total = sum(amount for op in recording.workload for resource, amount in op.cost.amounts if resource.unit == "matrix")
    assert total == 2 * 5 * sum(2 * m * k * n for m, k, n in shapes)  # five times each in two formats
    assert len({op.module for op in recording.workload}) == 24
    assert recording.steps == ()
    chip = load("h200-sxm")
    assert max(place(op.cost, chip, op.time_s, executions=op.launches).efficiency or 0 for op in recording.workload) < 1


def test_profiles_are_known_by_their_first_bytes_and_nothing_else_is() -> None:
    with gzip.open(capture("jax_scan")) as file:
        assert sniff(file.read(512), Path("x"))
    for head in (b"", b"HloModule m", b'{"schema": 1}', b"name,flops\n"):
        assert not sniff(head, Path("x"))


ADD = hlo("jit_f", {"main": [Instruction("x", "parameter"), Instruction("add.1", "add", ("x", "x"))]})


def one_host(folder: Path, name: str, times: int, program: int = 7, module: bytes = ADD) -> Path:
    """A host of a run: as many executions as asked for, in two steps."""
    threads = [annotation(number, number * 50 * US, 40 * US) for number in range(2)]
    threads += [launch(n, (n % 2 * 50 + n) * US) for n in range(times)]
    events = [
        kernel("add_1", n * 10 * US, 3 * US, hlo_op="add.1", program_id=program, correlation_id=n, scope_range_id=n) for n in range(times)
    ]
    ordered = sorted(threads, key=lambda event: event.offset_ps)
    return write(folder, [gpu(events), programs({program: module}), host(ordered)], f"{name}.xplane.pb", (name,))


def test_hosts_of_a_run_merge_into_one_whatever_ids_their_processes_gave(tmp_path: Path) -> None:
    paths = [one_host(tmp_path, "b", 4, program=7), one_host(tmp_path, "a", 6, program=9), one_host(tmp_path, "c", 2, program=1)]
    merged = [read(order) for order in permutations(paths)]
    assert all(recording == merged[0] for recording in merged)
    recording = merged[0]
    (add,) = recording.workload
    assert (add.count, add.module) == (12, "jit_f")
    assert recording.hosts == ("a", "b", "c")
    assert [(device.id, device.host) for device in recording.devices] == [(0, "a"), (1, "b"), (2, "c")]
    assert [(share.key, share.count) for share in add.by_device] == [(0, 6), (1, 4), (2, 2)]
    assert [(step.number, step.complete) for step in recording.steps] == [(0, True), (1, True)]
    assert [share.count for share in add.by_step] == [6, 6]


def test_programs_of_one_name_that_differ_stay_apart(tmp_path: Path) -> None:
    other = hlo("jit_f", {"main": [Instruction("x", "parameter", dims=(8,)), Instruction("add.1", "add", ("x", "x"), dims=(8,))]})
    recording = read([one_host(tmp_path, "a", 2), one_host(tmp_path, "b", 2, module=other)])
    assert sorted(op.cost["vector/fp32"] for op in recording.workload) == [16, 2048]
    assert len({op.module for op in recording.workload}) == 2


def test_a_step_that_one_host_lacks_is_not_complete(tmp_path: Path) -> None:
    recording = read([one_host(tmp_path, "a", 4), one_host(tmp_path, "b", 1)])
    assert [step.complete for step in recording.steps] == [True, False]


def test_files_that_name_one_host_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, [gpu([kernel("k", 0, US)])], "one.xplane.pb", ("vm",))
    write(tmp_path, [gpu([kernel("k", 0, US)])], "two.xplane.pb", ("vm",))
    recording = read(sorted(tmp_path.glob("*.pb")))
    assert recording.hosts == ("vm (one.xplane.pb)", "vm (two.xplane.pb)")
    assert [device.id for device in recording.devices] == [0, 1]


def test_parts_travel_between_processes(tmp_path: Path) -> None:
    part = read_part(one_host(tmp_path, "a", 3), shared=True)
    assert merge([pickle.loads(pickle.dumps(part))]) == merge([part])


SUBJECTS = [Subject(name=f"op.{n}", module="m", program="1", cost=Cost.of({"hbm": 8 * n})) for n in range(3)]
STEPS = numbered([("train", 0), ("train", 1), ("train", 1)])


@st.composite
def parts(draw: st.DrawFn) -> list[Part]:
    numbers = st.integers(0, 10**13)

    def tally() -> Tally:
        shares = draw(st.dictionaries(st.integers(0, 2), st.builds(Share, st.integers(1, 5), numbers)))
        return Tally(draw(st.integers(1, 9)), draw(st.integers(1, 99)), draw(numbers), draw(numbers), shares, {"pcie": draw(numbers)})

    def device(number: int) -> DevicePart:
        wall = draw(numbers)
        rows = {subject: tally() for subject in draw(st.lists(st.sampled_from(SUBJECTS), unique=True))}
        steps = {
            mark: Extent(draw(numbers), draw(numbers), draw(numbers), draw(st.booleans())) for mark in draw(st.sets(st.integers(0, 2)))
        }
        return DevicePart(
            plane=f"/device:GPU:{number}", ordinal=number, name="g", rates={}, wall_ps=wall, busy_ps=wall, rows=rows, steps=steps
        )

    return [
        Part(
            file=f"{name}.pb",
            host=name,
            devices=tuple(device(n) for n in range(draw(st.integers(1, 2)))),
            instances=STEPS,
            notes=(f"{name}!",),
        )
        for name in draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
    ]


@given(parts(), st.randoms(use_true_random=False))
def test_merging_in_any_order_gives_the_same_digits(some: list[Part], chance: object) -> None:
    shuffled = list(some)
    chance.shuffle(shuffled)
    one, other = merge(some), merge(shuffled)
    assert one == other
    assert (one.workload.cost, one.coverage) == (other.workload.cost, other.coverage)
    total = sum(tally.executions for part in some for device in part.devices for tally in device.rows.values())
    assert sum(op.count for op in one.workload) == total


def test_steps_of_one_number_are_counted() -> None:
    assert numbered([("a", 1), ("a", 1), ("b", None)]) == (Instance("a", 1, 0), Instance("a", 1, 1), Instance("b", None, 0))


def test_a_profile_in_which_nothing_ran_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no device activity"):
        read(write(tmp_path, [host([annotation(0, 0, US)])]))
    with pytest.raises(SourceError, match="no profile"):
        read([])


def test_a_damaged_file_is_an_error_and_salvage_reads_what_is_there(tmp_path: Path) -> None:
    whole = one_host(tmp_path, "a", 50)
    cut = tmp_path / "cut.xplane.pb"
    # The plane of the GPU comes first, its events before their names.
    data = whole.read_bytes()
    cut.write_bytes(data[: len(data) // 3])
    with pytest.raises(SourceError, match=r"truncated after .* bytes \(in plane '/device:GPU:0'"):
        read(cut)
    saved = read(cut, salvage=True)
    assert saved.coverage.busy_s
    assert any("truncated" in note for note in saved.notes)


def test_what_the_profiler_complains_of_is_a_note(tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(
        space([gpu([kernel("k", 0, US)], stats={"dropped_traces": "7 events"})], errors=["lost"], warnings=["slow"], hostnames=["host"])
    )
    notes = read(path).notes
    assert notes[:2] == ("profiler message: lost", "profiler message: slow")
    assert any("dropped events (7 events)" in note for note in notes)


def test_progress_is_told_and_data_may_be_in_memory(tmp_path: Path) -> None:
    path, told = one_host(tmp_path, "a", 3), list[tuple[int, int]]()
    recording = read(path, progress=lambda done, total: told.append((done, total)))
    assert told
    assert told[-1][0] == told[-1][1]
    assert merge([read_part(path, data=path.read_bytes())]) == recording


def test_one_file_reads_the_same_gzipped_or_not(tmp_path: Path) -> None:
    plain = one_host(tmp_path, "a", 3)
    packed = tmp_path / "packed.xplane.pb.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))

    def without_name(recording: Recording) -> tuple[object, ...]:
        return recording.workload, recording.steps, recording.coverage, recording.devices

    assert without_name(read(plain)) == without_name(read(packed))
