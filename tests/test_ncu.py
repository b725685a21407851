"""Counters are read as they were counted: kernels of known work, every form of the file, and the fusion capture's compulsory traffic."""

import csv
import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.analysis.counters.kernel_names import named
from roofline.cost import Cost
from roofline.errors import SourceError
from roofline.sources.ncu.csv_table import scale
from roofline.sources.ncu.recording import read, read_counters, sniff
from roofline.workload import Launch, Recording, is_caveat

DATA = Path(__file__).parent / "data"
FUSION = DATA / "ncu_jax_fusion.csv.gz"
TORCH = DATA / "ncu_torch_eager.csv.gz"
FULL = DATA / "ncu_probe_full.csv.gz"  # data/ncu_probe.cu under --set full
EVERY = sorted(DATA.glob("ncu_jax_fusion.csv.gz")) + sorted(DATA.glob("ncu_probe_*.csv.gz")) + [TORCH]

THREADS, STEPS = 1320 * 256, 1024  # of the arithmetic kernels of the probe
TENSOR = 2**28 * 2  # bytes of 32 x 2048 x 4096 in bf16


def cost(path: Path, name: str) -> Cost:
    return next(op.cost for op in read(path).workload if op.name.startswith(name))


def launch(path: Path, place: int) -> Launch:
    return read_counters(path)[0][place]


def table(path: Path) -> list[list[str]]:
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith('"ID"'))
    return list(csv.reader(lines[start:]))


def written(tmp_path: Path, rows: list[list[str]], before: str = "") -> Path:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    path = tmp_path / "counters.csv"
    path.write_text(before + out.getvalue())
    return path


def wide(tmp_path: Path, metrics: dict[str, tuple[str, str]], **words: str) -> Path:
    """One launch with these metrics: name to unit and value."""
    given = {"ID": "0", "Kernel Name": "k", "Grid Size": "(2, 1, 1)", "Block Size": "(32, 1, 1)", "Device": "0", "CC": "9.0", **words}
    rows = [
        [*given, *metrics],
        ["" for _ in given] + [unit for unit, _ in metrics.values()],
        [*given.values(), *(value for _, value in metrics.values())],
    ]
    return written(tmp_path, rows)


@every(
    ("kernel", "resource", "flop"),
    [
        ("fma32", "vector/fp32", THREADS * STEPS * 2),
        ("addmul32", "vector/fp32", THREADS * STEPS * 2),  # an add and a multiply
        ("fma64", "vector/fp64", THREADS * STEPS * 2),
        ("fmabf16", "vector/fp16", THREADS * STEPS * 4),  # two numbers at once
        ("readonly", "vector/fp32", 2 * 2**26),  # an add for each float, 64 Mi of them in either launch
        # 1320 blocks of 4 warps, 256 products each of 2mnk FLOP.
        ("void mma<__nv_bfloat16, float", "matrix/bf16", 1320 * 4 * 256 * 2 * 16**3),
        ("void mma<__half, float", "matrix/fp16", 1320 * 4 * 256 * 2 * 16**3),
        ("void mma<__half, __half", "matrix/fp16", 1320 * 4 * 256 * 2 * 16**3),
        ("void mma<signed char", "matrix/int8", 1320 * 4 * 256 * 2 * 16**3),
        ("void mma<float, float", "matrix/tf32", 1320 * 4 * 256 * 2 * 16 * 16 * 8),
        ("void mma<double", "matrix/fp64", 1320 * 4 * 256 * 2 * 8 * 8 * 4),
    ],
)
def test_arithmetic_of_known_kernels_is_counted_exactly(kernel: str, resource: str, flop: int) -> None:
    assert cost(FULL, kernel)[resource] == flop


def test_bytes_of_a_copy_are_the_same_at_every_level_but_what_stays_in_cache() -> None:
    n = 2**28
    copied = cost(FULL, "copy")
    # L1 and L2 see each byte twice; some of what was written is still in L2 when the kernel ends.
    assert (copied["l1"], copied["l2"]) == (2 * n, 2 * n)
    assert n < (copied["hbm"] or 0) < 2 * n


def test_bytes_served_by_a_cache_stop_there() -> None:
    again = launch(FULL, 2)  # 16 MiB, read 16 times, past L1
    assert again.cost["l2"] == 16 * 2**24
    assert again.cost["hbm"] == pytest.approx(2**24, rel=0.001)


def test_shared_memory_belongs_to_l1() -> None:
    # 1320 blocks of 32 warps load 128 bytes 1024 times; a few accesses are repeated.
    assert cost(FULL, "shared")["l1"] == pytest.approx(1320 * 32 * 1024 * 128, rel=0.01)
    assert cost(FULL, "fma32")["l1"] == 0


def test_l1_is_the_sum_of_its_parts_where_it_has_no_total(tmp_path: Path) -> None:
    rows = table(FULL)
    kept = [place for place, name in enumerate(rows[0]) if not name.startswith(("l1tex__t_bytes.", "l1tex__t_sectors."))]
    parts = read(written(tmp_path, [[row[place] for place in kept] for row in rows]))
    whole = [op.cost["l1"] for op in read(FULL).workload]
    assert [op.cost["l1"] for op in parts.workload] == pytest.approx(whole, rel=0.01)  # counted in another run of the kernel


def test_every_kernel_of_the_fusion_capture_moves_its_compulsory_traffic() -> None:
    kernels = read(FUSION).workload
    assert len(kernels) > 1
    for kernel in kernels:
        # Each reads one tensor and writes one; the small one reads nothing and writes a row of 4096 bytes.
        reads, writes = (0, 4096) if kernel.name == "loop_compare_fusion" else (TENSOR, TENSOR)
        moved = float(kernel.cost["hbm"] or 0) / kernel.count
        assert 0.98 * reads <= moved <= 1.02 * (reads + writes), kernel.name
        if reads + writes >= 10_000_000:
            assert 1.0175 <= (reads + writes) / moved <= 1.0215, kernel.name


def test_a_rate_becomes_a_count_by_the_average_cycles() -> None:
    # GELU in fp32: 3 multiplies and 9 fused multiply-adds for each of 2^28 elements, 21 FLOP. With the maximum of cycles it would be 21.06.
    assert cost(FUSION, "loop_multiply_fusion")["vector/fp32"] == pytest.approx(21 * 2**28, rel=1e-4)


def test_matrix_flop_of_a_training_step_are_those_of_its_shapes() -> None:
    # Four layers (qkv, output, up, down) and the vocabulary, on 8 x 1024 tokens; the backward pass is twice the forward one.
    tokens, width, wide, words = 8 * 1024, 2048, 8192, 32000
    layers = 2 * tokens * 4 * (4 * width * width + 2 * width * wide)
    assert cost(TORCH, "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT")["matrix/bf16"] == layers
    products = sum(op.cost.known("matrix/bf16") for op in read(TORCH).workload if op.name.startswith("nvjet"))
    # Tiles that do not divide a product are padded: a little more is computed than was asked for.
    assert 1 < products / (3 * (layers + 2 * tokens * width * words)) < 1.005


def test_a_kernel_is_an_op_with_all_its_launches() -> None:
    recording = read(TORCH)
    assert len(recording.workload) == 44
    assert sum(op.count for op in recording.workload) == 200
    twice = next(op for op in read(FUSION).workload if op.name == "loop_add_fusion")
    assert (twice.count, twice.kernels, twice.time_s) == (2, 2, pytest.approx(640.896e-6))
    assert (twice.work_provenance, twice.bytes_provenance) == ("counter", "counter")
    assert twice.notes == ("counted: grid 524288x1x1 block 128x1x1",)
    assert twice.by_device[0].count == 2
    assert not any(is_caveat(note) for note in twice.notes)  # a grid is no caveat for the terminal


def test_launches_come_in_order_with_their_shapes() -> None:
    launches = read_counters(FUSION)[0]
    assert [one.name for one in launches[:3]] == ["fusion_4", "loop_multiply_fusion", "loop_compare_fusion"]
    assert (launches[0].grid, launches[0].block, launches[0].time_s) == ((65536, 1, 1), (128, 1, 1), 276.608e-6)
    assert named(launch(TORCH, 0).name) == "vectorized_gather_kernel"


def test_the_device_tells_its_name_and_dense_peaks() -> None:
    (device,) = read(FUSION).devices
    assert (device.id, device.name) == (0, "NVIDIA H200")
    # 1504 bytes in a cycle at 3.2 GHz; 132 SMs at 1.98 GHz with 4096 dense bf16 FLOP, 256 in fp32, and 128 bytes of L1 in a cycle.
    clock = 1.98e9
    expected = {"hbm": 1504 * 3.2e9, "matrix/bf16": 132 * 4096 * clock, "vector/fp32": 132 * 256 * clock, "l1": 132 * 128 * clock}
    for resource, rate in expected.items():
        assert device.rates[resource] == pytest.approx(rate, rel=0.01), resource
    # A peak that may be the sparse one is not told: fp8 has a dense one of its own, twice bf16.
    assert device.rates["matrix/fp8"] == 2 * device.rates["matrix/bf16"]
    assert "matrix/int1" not in device.rates


def same(first: Recording, second: Recording, rel: float) -> None:
    assert [op.name for op in first.workload] == [op.name for op in second.workload]
    for one, other in zip(first.workload, second.workload, strict=True):
        assert one.time_s == pytest.approx(other.time_s, rel=max(rel, 1e-12))
        for resource in one.cost:
            if one.cost[resource] is not None and other.cost[resource] is not None:
                assert float(one.cost[resource] or 0) == pytest.approx(float(other.cost[resource] or 0), rel=rel, abs=300), (
                    one.name,
                    resource,
                )


def test_units_of_any_form_say_the_same() -> None:
    same(read(FULL), read(DATA / "ncu_probe_full_auto.csv.gz"), rel=1e-3)  # half precision is counted by rates, with two decimals
    exact = [op.cost["hbm"] for op in read(FULL).workload]
    assert exact == [op.cost["hbm"] for op in read(DATA / "ncu_probe_full_auto.csv.gz").workload]


def test_parts_in_parentheses_behind_a_value_are_left_alone() -> None:
    assert read(DATA / "ncu_probe_instances.csv.gz").workload == read(DATA / "ncu_probe_full_auto.csv.gz").workload


def test_the_details_page_says_the_same_where_it_says_anything() -> None:
    recording = read(DATA / "ncu_probe_details.csv.gz")
    same(recording, read(FULL), rel=0.01)  # two decimals
    assert recording.workload.ops[0].cost["matrix"] is None
    assert recording.workload.ops[0].time_s == pytest.approx(195.62e-6)  # "Duration"


def test_the_roofline_set_counts_the_same_but_caches_by_their_reads() -> None:
    roofline, full = DATA / "ncu_probe_roofline.csv.gz", FULL
    for kernel in ("fma32", "void mma<__nv_bfloat16", "fma64"):
        assert cost(roofline, kernel).flops == pytest.approx(
            float((cost(full, kernel).flops or 0) - cost(full, kernel).known("vector/int32")), rel=1e-3
        )
    assert cost(roofline, "copy")["l2"] == pytest.approx(2**28, rel=0.01)  # what L2 sent out
    assert "l2 bytes: reads only" in read(roofline).notes


def test_what_was_not_counted_is_unknown_and_said() -> None:
    recording = read(DATA / "ncu_probe_long.csv.gz")  # DRAM, time and one instruction
    first = recording.workload.ops[0]
    assert first.cost["hbm"] == 517_345_536
    assert first.cost.flops is None
    assert {str(resource) for resource in first.cost.unknown} == {"matrix", "vector/fp16", "vector/fp32", "vector/fp64"}
    missing = recording.notes[-1]
    assert "fp32 arithmetic (smsp__sass_thread_inst_executed_op_{fadd,fmul,ffma}_pred_on.sum)" in missing
    assert missing.endswith("collect everything with: ncu --set full --csv --page raw")
    assert recording.coverage.priced_s == 0


TENSOR_OPS = "sm__ops_path_tensor_src_"
EVERY_FORMAT = {f"{TENSOR_OPS}{name}.sum": ("", "0") for name in ("fp16", "bf16_dst_fp32", "tf32_dst_fp32", "fp64", "int8", "fp8")}


def test_tensor_work_is_known_when_every_format_of_the_chip_was_counted(tmp_path: Path) -> None:
    some = {f"{TENSOR_OPS}bf16_dst_fp32.sum": ("", "64")}
    assert launch(wide(tmp_path, some), 0).cost["matrix"] is None
    assert launch(wide(tmp_path, {**EVERY_FORMAT, **some}), 0).cost["matrix"] == 0
    assert launch(wide(tmp_path, some, CC="6.0"), 0).cost["matrix"] == 0  # no tensor cores at all
    turing = {f"{TENSOR_OPS}fp16_bf16_tf32_dst_fp32.sum": ("", "64"), f"{TENSOR_OPS}int8.sum": ("", "0")}
    old = launch(wide(tmp_path, turing, CC="7.5"), 0).cost
    assert (old["matrix"], old["matrix/fp16"]) == (0, 64)


def test_nothing_is_counted_twice(tmp_path: Path) -> None:
    several = {
        f"{TENSOR_OPS}bf16_dst_fp32.sum": ("", "100"),
        f"{TENSOR_OPS}bf16_dst_fp32_sparsity_off.sum": ("", "60"),
        f"{TENSOR_OPS}bf16_dst_fp32_sparsity_on.sum": ("", "40"),
        f"{TENSOR_OPS}bf16_dst_fp32_realtime.sum": ("", "100"),
        "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum": ("", "100"),
        # Only in parts: with and without sparsity, and by the format of the result.
        f"{TENSOR_OPS}fp8_sparsity_off.sum": ("", "7"),
        f"{TENSOR_OPS}fp8_sparsity_on.sum": ("", "1"),
        f"{TENSOR_OPS}fp16_dst_fp16.sum": ("", "20"),
        f"{TENSOR_OPS}fp16_dst_fp32.sum": ("", "3"),
        # Only by instruction.
        "sm__ops_path_tensor_op_hmma_src_tf32_dst_fp32_sparsity_off.sum": ("", "5"),
        "sm__ops_path_tensor_op_hgmma_src_tf32_dst_fp32_sparsity_off.sum": ("", "6"),
    }
    counted = launch(wide(tmp_path, several), 0).cost
    assert [counted[f"matrix/{name}"] for name in ("bf16", "fp8", "fp16", "tf32")] == [100, 8, 23, 11]


@pytest.mark.parametrize(
    ("metrics", "moved"),
    [
        ({"dram__bytes.sum": ("Mbyte", "1.5")}, 1_500_000),
        ({"dram__bytes_read.sum": ("Kbyte", "1"), "dram__bytes_write.sum": ("byte", "24")}, 1024),
        ({"dram__bytes_op_read.sum": ("byte", "1,000"), "dram__bytes_op_write.sum": ("byte", "24")}, 1024),
        ({"dram__sectors_read.sum": ("sector", "2"), "dram__sectors_write.sum": ("sector", "1")}, 96),
        ({"dram__bytes.sum.per_second": ("Tbyte/s", "2"), "gpu__time_duration.sum": ("us", "3")}, 6_000_000),
        ({"dram__bytes.sum.per_second": ("Gbyte/second", "2"), "gpu__time_duration.sum": ("msecond", "3")}, 6_000_000),
        ({"dram__bytes.sum.per_second": ("byte/ns", "2"), "gpu__time_duration.sum": ("nsecond", "3,000")}, 6_000),
        ({"dram__bytes_read.sum": ("byte", "5")}, None),  # half of it
        ({"dram__bytes.sum.per_second": ("Tbyte/s", "2")}, None),  # a rate of an unknown time
        ({"dram__bytes.sum": ("byte", "n/a")}, None),
        ({"dram__bytes.sum": ("byte", "(!) nan")}, None),
    ],
)
def test_main_memory_is_found_under_any_of_its_names_and_units(
    tmp_path: Path, metrics: dict[str, tuple[str, str]], moved: int | None
) -> None:
    assert launch(wide(tmp_path, metrics), 0).cost["hbm"] == moved


def test_numbers_with_decimal_commas_are_read_only_when_nothing_else_is_possible(tmp_path: Path) -> None:
    german = {
        "gpu__time_duration.sum": ("us", "9,25"),
        "dram__bytes.sum": ("byte", "1.234"),
        "dram__bytes.sum.per_second": ("byte/s", "1.234,5"),
    }
    read_as = launch(wide(tmp_path, german), 0)
    assert (read_as.time_s, read_as.cost["hbm"]) == (9.25e-6, 1234)
    english = {"gpu__time_duration.sum": ("us", "9,250"), "dram__bytes.sum": ("byte", "1,234")}
    assert launch(wide(tmp_path, english), 0).time_s == 9250e-6
    with pytest.raises(SourceError, match=r"row 1, column 'gpu__time_duration.sum': '9,25' is not a number"):
        read(wide(tmp_path, {"gpu__time_duration.sum": ("us", "9,25"), "dram__bytes.sum": ("byte", "1,234.5")}))


def test_a_table_without_units_is_in_base_units(tmp_path: Path) -> None:
    path = written(tmp_path, [["ID", "Kernel Name", "gpu__time_duration.sum", "dram__bytes.sum"], ["0", "k", "1,500", "32"]])
    assert (launch(path, 0).time_s, launch(path, 0).cost["hbm"]) == (1.5e-6, 32)


def test_talk_around_and_between_is_passed_over(tmp_path: Path) -> None:
    rows = table(FUSION)
    quiet = read(written(tmp_path, rows))
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    head, units, first, *rest = out.getvalue().splitlines()
    talk = ['loss "0.3', "==PROF== Profiling: 0%....100%", "42", "step, 7", ""]
    path = tmp_path / "counters.csv"
    path.write_text("\r\n".join([*talk, head, units, *talk, first, *talk, *rest, *talk]))
    assert read(path).workload == quiet.workload


def test_text_redirected_as_utf_16_is_read(tmp_path: Path) -> None:
    path = tmp_path / "counters.csv"
    path.write_bytes(gzip.decompress(FUSION.read_bytes()).decode().encode("utf-16"))
    assert sniff(path.read_bytes()[:65536], path)
    assert read(path).workload == read(FUSION).workload


def test_tables_one_after_the_other_are_one_recording(tmp_path: Path) -> None:
    path = tmp_path / "counters.csv"
    path.write_bytes(2 * gzip.decompress(FUSION.read_bytes()))
    assert len(read_counters(path)[0]) == 20


@given(order=st.permutations(range(11, 60)))
def test_columns_are_found_by_name_in_any_order(tmp_path_factory: pytest.TempPathFactory, order: list[int]) -> None:
    rows = [row[:60] for row in table(DATA / "ncu_probe_roofline.csv.gz")[:4]]
    shuffled = [row[:11] + [row[place] for place in order] for row in rows]
    folder = tmp_path_factory.mktemp("order")
    assert read(written(folder, shuffled)).workload == read(written(folder, rows)).workload


def test_counter_files_are_known_by_their_content() -> None:
    for path in EVERY:
        data = path.read_bytes()
        assert sniff(gzip.decompress(data)[:65536] if path.suffix == ".gz" else data, path), path.name
    assert sniff(b"==PROF== Connected to process 1\n" + b"epoch\n" * 20_000, Path("x"))  # the table is further down
    assert not sniff(b"name,time,hbm\nffn,9.1 ms,1 GB\n", Path("x"))
    assert not sniff(b'[{"ID": 1}]', Path("x"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,time\nx,1\n", "no kernel table; create one with: ncu --set full --csv --page raw"),
        ("==PROF== Connected\n==PROF== Disconnected\n", "no kernel table"),
        ('"ID","Kernel Name","dram__bytes.sum"\n"","","byte"\n', "no kernels in the table; check that the profiled range launches any"),
        ('"ID","Kernel Name","dram__bytes.sum"\n"","","byte"\n"0","k","many"\n', "row 1, column 'dram__bytes.sum': 'many' is not a number"),
        ('"ID","Kernel Name","dram__bytes.sum"\n"","","byte"\n"0","k","-4"\n', "row 1, column 'dram__bytes.sum': '-4' is negative"),
        ('"ID","Kernel Name","dram__bytes.sum"\n"","","stone"\n"0","k","4"\n', "row 1, column 'dram__bytes.sum': unknown unit 'stone'"),
        ('"ID","Kernel Name","dram__bytes.sum"\n"0","k","4"\n"1","k"\n', "row 2: 2 cells, but the header has 3; the copy is incomplete"),
        ('"ID","Kernel Name","Metric Name","Metric Value"\n"0","k","x","4"\n', "the table has 'Metric Name' but no 'Metric Unit'"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "counters.csv"
    path.write_text(text)
    with pytest.raises(SourceError) as error:
        read(path)
    assert f"{path}: " in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_damaged_archive_is_a_source_error(tmp_path: Path) -> None:
    data = bytearray(FUSION.read_bytes())
    data[5000:5040] = bytes(40)
    path = tmp_path / "counters.csv.gz"
    path.write_bytes(data)
    with pytest.raises(SourceError):
        read(path)


def outcome(path: Path) -> Recording | None:
    try:
        return read(path)
    except SourceError:
        return None


@given(data=st.binary(max_size=400), header=st.booleans())
def test_any_bytes_are_a_recording_or_a_source_error(tmp_path_factory: pytest.TempPathFactory, data: bytes, header: bool) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.csv"
    path.write_bytes((b'"ID","Kernel Name","gpu__time_duration.sum"\n"","","ns"\n' if header else b"") + data)
    outcome(path)


@given(at=st.integers(0, 20_000), byte=st.integers(0, 255), cut=st.booleans())
def test_damage_anywhere_is_a_recording_or_a_source_error(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int, cut: bool) -> None:
    data = bytearray(gzip.decompress((DATA / "ncu_probe_roofline.csv.gz").read_bytes()))
    at %= len(data)
    data[at] = byte
    path = tmp_path_factory.mktemp("fuzz") / "x.csv"
    path.write_bytes(bytes(data[:at] if cut else data))
    outcome(path)


@given(cell=st.text(max_size=80), unit=st.sampled_from(["", "byte", "Gbyte/s", "us", "cycle", "Ghz", "x/y"]))
def test_any_cell_is_a_number_or_a_source_error(tmp_path_factory: pytest.TempPathFactory, cell: str, unit: str) -> None:
    outcome(wide(tmp_path_factory.mktemp("fuzz"), {"dram__bytes.sum": (unit, cell), "gpu__time_duration.sum": ("ns", "5")}))


def test_units_are_decimal() -> None:
    assert (scale("Kbyte"), scale("Ghz"), scale("byte/us")) == (1000, 10**9, 10**6)
    assert scale("furlong") is None


TIME = "gpu__time_duration.sum"


@pytest.mark.parametrize(
    ("bytes_moved", "share"),
    # Thousands as points, blanks, apostrophes or commas; a share that nothing here needs says what the comma is.
    [("27.595.520", "65,77"), ("27 595 520", "65,77"), ("27'595'520", "65.77"), ("27,595,520", "65.77"), ("2,75,95,520", "65.77")],
)
def test_numbers_of_any_locale(tmp_path: Path, bytes_moved: str, share: str) -> None:
    path = wide(tmp_path, {"dram__bytes.sum": ("byte", bytes_moved), "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", share)})
    assert launch(path, 0).cost["hbm"] == 27_595_520


def test_a_decimal_comma_anywhere_decides_what_a_point_is(tmp_path: Path) -> None:
    for share, seconds in (("65,77", 1234e-9), ("65.77", 1.234e-9)):
        path = wide(tmp_path, {TIME: ("ns", "1.234"), "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", share)})
        assert launch(path, 0).time_s == pytest.approx(seconds)


def test_chosen_metrics_give_time_from_cycles_and_no_tensor_work_from_a_zero(tmp_path: Path) -> None:
    # 1,500 cycles at 1.5 GHz are a microsecond.
    metrics = {
        "sm__cycles_elapsed.avg": ("cycle", "1,500.00"),
        "sm__cycles_elapsed.avg.per_second": ("cycle/nsecond", "1.50"),
        **{f"sm__sass_thread_inst_executed_op_{op}_pred_on.sum": ("inst", "10") for op in ("fadd", "fmul", "ffma")},
    }
    none = launch(wide(tmp_path, {**metrics, "sm__inst_executed_pipe_tensor.sum": ("inst", "0")}), 0)
    some = launch(wide(tmp_path, {**metrics, "sm__inst_executed_pipe_tensor.sum": ("inst", "7")}), 0)
    assert none.time_s == some.time_s == pytest.approx(1e-6)
    assert none.cost["vector/fp32"] == 40
    assert "matrix" not in {resource.name for resource in none.cost.unknown}
    assert "matrix" in {resource.name for resource in some.cost.unknown}


def test_columns_in_any_order_say_the_same(tmp_path: Path) -> None:
    for file in ("ncu_probe_long.csv.gz", "ncu_probe_roofline.csv.gz"):
        rows = [row for row in table(DATA / file) if len(row) > 8]
        width = len(rows[0])
        turned = [(row + [""] * (width - len(row)))[::-1] for row in rows]
        assert read_counters(written(tmp_path, turned))[0] == read_counters(DATA / file)[0]


def test_a_summary_is_every_launch_at_the_average(tmp_path: Path) -> None:
    about = {"Process ID": "1", "Kernel Name": "k", "Block Size": "(32, 1, 1)", "Grid Size": "(2, 1, 1)", "Device": "0", "CC": "9.0"}
    columns = [*about, "Invocations", "Section Name", "Metric Name", "Metric Unit", "Minimum", "Maximum", "Average"]
    rows = [columns]
    for kernel, launches in (("k", "3"), ("other", "1")):
        words = [*{**about, "Kernel Name": kernel}.values(), launches, "Command line profiler metrics"]
        rows += [[*words, TIME, "us", "1.00", "3.00", "2.00"], [*words, "dram__bytes.sum", "byte", "100", "300", "200"]]
    recording = read(written(tmp_path, rows))
    assert [(op.name, op.count, op.cost["hbm"]) for op in recording.workload] == [("k", 3, 600), ("other", 1, 200)]
    assert [op.time_s for op in recording.workload] == pytest.approx([6e-6, 2e-6])
    assert "a summary: each launch of a kernel has the average over all its launches" in recording.notes
