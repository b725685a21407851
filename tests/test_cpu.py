"""The CPU as operating systems describe it, and the limits estimated from that."""

from pathlib import Path

from msgspec.structs import replace

from every import every
from roofline.machines.cpu import Cache, Cpu, from_linux, from_sysctl, this_cpu
from roofline.machines.cpu_estimate import estimate, vector_units

XEON = """processor	: 0
vendor_id	: GenuineIntel
cpu family	: 6
model name	: Intel(R) Xeon(R) Processor @ 2.50GHz
cpu MHz		: 3211.754
flags		: fpu sse2 avx avx2 fma avx512f
bogomips	: 4999.99

processor	: 1
model name	: another
"""
GRAVITON = """processor	: 0
BogoMIPS	: 2100.00
Features	: fp asimd sve
CPU implementer	: 0x41
CPU part	: 0xd40
"""


def tree(root: Path, cpuinfo: str, files: dict[str, str] | None = None) -> Path:
    for name, text in {"proc/cpuinfo": cpuinfo, "proc/meminfo": "MemTotal:  1024 kB\n", **(files or {})}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def siblings(*groups: str) -> dict[str, str]:
    """The topology of four logical CPUs."""
    return {f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list": f"{group}\n" for number, group in enumerate(groups)}


def caches(number: int, *shared: str) -> dict[str, str]:
    folder = f"sys/devices/system/cpu/cpu{number}/cache"
    found = {}
    for index, (level, kind, size, cpus) in enumerate(
        [
            ("1", "Data", "32K", shared[0]),
            ("1", "Instruction", "32K", shared[0]),
            ("2", "Unified", "1024K", shared[0]),
            ("3", "Unified", "36M", shared[1]),
        ]
    ):
        for name, text in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", cpus)):
            found[f"{folder}/index{index}/{name}"] = f"{text}\n"
    return found


def test_linux_tells_model_clock_vectors_and_memory(tmp_path: Path) -> None:
    cpu = from_linux(tree(tmp_path, XEON), [0, 1])
    assert (cpu.model, cpu.vendor, cpu.family) == ("Intel(R) Xeon(R) Processor @ 2.50GHz", "Intel", 6)
    assert cpu.name == "intel-xeon-processor-2.50ghz"
    assert (cpu.clock_hz, cpu.clock_source) == (2.5e9, "nominal clock, in the model's name")  # never the clock of the moment
    assert cpu.memory_bytes == 2**20
    assert {"avx512f", "fma"} <= cpu.instructions


def test_hardware_threads_of_one_core_are_one_core_and_share_its_caches(tmp_path: Path) -> None:
    files = siblings("0,2", "1,3", "0,2", "1,3") | caches(0, "0,2", "0-3") | caches(1, "1,3", "0-3") | caches(2, "0,2", "0-3")
    root = tree(tmp_path, XEON, files)
    cpu = from_linux(root, [0, 1, 2, 3])
    assert (cpu.cores, cpu.threads) == (2, 4)
    assert cpu.caches == (
        Cache(level=1, bytes=32 * 2**10, count=2),
        Cache(level=2, bytes=2**20, count=2),
        Cache(level=3, bytes=36 * 2**20, count=1),
    )
    pinned = from_linux(root, [0, 2])
    assert (pinned.cores, pinned.threads, pinned.caches[1].count) == (1, 2, 1)


def test_a_containers_quota_limits_the_cores(tmp_path: Path) -> None:
    root = tree(tmp_path, XEON, siblings("0", "1", "2", "3") | {"sys/fs/cgroup/cpu.max": "150000 100000\n"})
    assert from_linux(root, range(4)).cores == 2
    (root / "sys/fs/cgroup/cpu.max").write_text("max 100000\n")
    assert from_linux(root, range(4)).cores == 4


def test_the_highest_clock_comes_first_and_the_counters_last(tmp_path: Path) -> None:
    fast = tree(tmp_path / "fast", XEON, {"sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3900000\n"})
    assert from_linux(fast, [0]).clock_hz == 3.9e9
    bare = tree(tmp_path / "bare", XEON.replace(" @ 2.50GHz", "").replace("4999.99", "5389.41"))
    assert from_linux(bare, [0]).clock_hz == 2.69e9
    assert from_linux(tmp_path / "nothing", [0]).clock_source == "assumed"


def test_arm_cores_are_named_by_their_part(tmp_path: Path) -> None:
    cpu = from_linux(tree(tmp_path, GRAVITON), range(4))
    assert (cpu.model, cpu.vendor, cpu.clock_source) == ("Neoverse V1", "Arm", "assumed")  # BogoMIPS is not a clock there


def test_macos_tells_the_same() -> None:
    said = {
        "machdep.cpu.brand_string": "Apple M2",
        "hw.physicalcpu": "8",
        "hw.logicalcpu": "8",
        "hw.perflevel0.l1dcachesize": "131072",
        "hw.perflevel0.l2cachesize": "16777216",
        "hw.perflevel0.cpusperl2": "4",
        "hw.memsize": "17179869184",
    }
    cpu = from_sysctl(said)
    assert (cpu.model, cpu.vendor, cpu.cores, cpu.memory_bytes) == ("Apple M2", "Apple", 8, 2**34)
    assert cpu.caches == (Cache(level=1, bytes=2**17, count=8), Cache(level=2, bytes=2**24, count=2))
    assert vector_units(cpu).flop_per_cycle(4) == 32
    intel = from_sysctl(
        {"machdep.cpu.brand_string": "Intel(R) Core(TM) i9", "hw.optional.avx2_0": "1", "hw.optional.avx1_0": "1", "hw.optional.fma": "1"}
    )
    assert vector_units(intel).name == "AVX2"


XEON_CPU = Cpu(
    model="Xeon",
    vendor="Intel",
    cores=2,
    threads=4,
    clock_hz=2.5e9,
    clock_source="nominal clock",
    instructions=frozenset({"avx", "avx2", "fma", "avx512f"}),
    caches=(Cache(level=1, bytes=2**15, count=2), Cache(level=2, bytes=2**20, count=2)),
    memory_bytes=2**34,
)


@every(
    ("changes", "flop_per_cycle"),
    [
        ({}, 64),  # two units of 16 lanes, a multiply-add each
        ({"vendor": "AMD", "family": 25}, 32),  # Zen 4: in two halves
        ({"vendor": "AMD", "family": 26}, 64),
        ({"instructions": frozenset({"avx", "avx2", "fma"})}, 32),
        ({"instructions": frozenset({"avx"})}, 16),
        ({"instructions": frozenset({"sse2"})}, 8),
        ({"instructions": frozenset({"asimd"}), "vendor": "Arm", "model": "Neoverse N1"}, 16),
        ({"instructions": frozenset({"asimd", "sve"}), "vendor": "Arm", "model": "Neoverse V1"}, 32),
    ],
)
def test_the_vector_rate_is_cores_times_clock_times_lanes(changes: dict[str, object], flop_per_cycle: int) -> None:
    machine = estimate(replace(XEON_CPU, **changes))  # type: ignore[arg-type]
    assert machine.rate("vector/fp32") == 2 * 2.5e9 * flop_per_cycle  # physical cores: hardware threads share the units
    assert machine.rate("vector/fp64") == machine.rate("vector/fp32") / 2


def test_an_estimate_says_so_and_names_the_command_that_measures() -> None:
    machine = estimate(XEON_CPU)
    assert {ceiling.provenance for ceiling in machine.ceilings} == {"derived"}
    assert "roofline chips measure" in machine.notes[0]
    hbm = machine.ceiling("hbm")
    assert hbm is not None
    assert (hbm.rate, hbm.citation[:8]) == (32e9, "assumed:")  # two cores of 16 GB/s
    assert estimate(replace(XEON_CPU, cores=64)).rate("hbm") == 8 * 25.6e9  # a channel for every 8 cores
    assert (machine.capacity("l2"), machine.capacity("hbm")) == (2**21, 2**34)
    assert machine.rate("l2") == 2 * 2.5e9 * 64


def test_products_in_bf16_have_a_rate_where_the_cpu_has_instructions_for_them() -> None:
    assert estimate(XEON_CPU).ceiling("matrix/bf16") is None
    amx = replace(XEON_CPU, instructions=XEON_CPU.instructions | {"amx_tile", "amx_bf16", "avx512_bf16"})
    assert estimate(amx).rate("matrix/bf16") == 2 * 2.5e9 * 1024
    dots = replace(XEON_CPU, instructions=XEON_CPU.instructions | {"avx512_bf16"})
    assert estimate(dots).rate("matrix/bf16") == 2 * estimate(XEON_CPU).rate("vector/fp32")


def test_this_computer_has_a_description() -> None:
    cpu = this_cpu()
    assert cpu.model
    assert 1 <= cpu.cores <= cpu.threads
    assert estimate(cpu) == estimate(cpu)
