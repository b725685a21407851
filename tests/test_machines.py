"""The catalogue: its figures, its names, its files, and what users may write in theirs."""

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.cost import Cost
from roofline.errors import MachineError, RooflineError, UsageError
from roofline.machine import Ceiling, Machine
from roofline.machines import card, cards, catalogue, load, names, parse_settings, read
from roofline.machines.catalogue import CHIPS, _index, _key
from roofline.machines.citations import SOURCES, source_of, sources
from roofline.machines.machine_file import MachineFile
from roofline.machines.reading import build
from roofline.machines.toml_files import typed
from roofline.placement import place
from roofline.resource import Resource, bound_words
from roofline.units import parse

DATA = Path(__file__).parent / "data" / "machines"
REFERENCE = Path(__file__).parents[2] / "shared" / "reference" / "hardware.toml"


@every(
    ("chip", "resource", "rate"),
    [
        ("h100-sxm", "matrix/bf16", "989.4 TFLOP/s"),
        ("h100-sxm", "matrix/fp8", "1979 TFLOP/s"),
        ("h100-sxm", "vector/fp32", "67 TFLOP/s"),
        ("h100-sxm", "hbm", "3.35 TB/s"),
        ("h100-pcie", "hbm", "2039 GB/s"),
        ("h100-nvl", "matrix/bf16", "835.5 TFLOP/s"),
        ("h200-sxm", "hbm", "4.8 TB/s"),
        ("gh200", "hbm", "4 TB/s"),
        ("gb200", "hbm", "8 TB/s"),
        ("b200", "matrix/fp4", "9000 TFLOP/s"),
        ("b300", "matrix/fp4", "13.5 PFLOP/s"),
        ("a100-sxm4-80", "matrix/tf32", "156 TFLOP/s"),
        ("a100-pcie-80", "hbm", "1935 GB/s"),
        ("v100-sxm2", "matrix/fp16", "125 TFLOP/s"),
        ("l4", "hbm", "300 GB/s"),
        ("rtx-5090", "hbm", "1.792 TB/s"),
        ("mi300x", "hbm", "5.3 TB/s"),
        ("mi300x", "matrix/bf16", "1307.4 TFLOP/s"),
        ("mi355x", "matrix/fp6", "10066.4 TFLOP/s"),
        ("tpu-v5e", "matrix/int8", "394 TFLOP/s"),
        ("tpu-v5p", "vector/fp32", "14 TFLOP/s"),
        ("tpu-v5p", "vmem.read", "43 TB/s"),
        ("tpu-v6e", "hbm", "1638 GB/s"),
        ("tpu-v7x", "matrix/fp8", "4614 TFLOP/s"),
        ("tpu-v7x", "hbm", "7380 GB/s"),
        ("trainium2", "matrix/bf16", "667 TFLOP/s"),
        ("gaudi3", "matrix/bf16", "1678 TFLOP/s"),
        ("tpu-v1", "hbm", "34 GB/s"),
        ("grace", "vector/fp64", "3.8 TFLOP/s"),
    ],
)
def test_a_chip_has_the_figure_its_sources_print(chip: str, resource: str, rate: str) -> None:
    ceiling = load(chip).ceiling(resource)
    assert ceiling is not None
    assert ceiling.rate == parse(rate, ceiling.resource.per)
    assert ceiling.citation


def test_a_ceiling_tells_sparse_from_dense_and_keeps_what_others_say() -> None:
    ceiling = load("h100-sxm").ceiling("matrix/bf16")
    assert ceiling is not None
    assert ceiling.sparse == parse("1979 TFLOP/s", "FLOP/s")
    assert [other.value for other in ceiling.others] == [
        parse(each, "FLOP/s") for each in ("1979 TFLOP/s", "1070.5 TFLOP/s", "989 TFLOP/s")
    ]
    assert ceiling.others[0].note == "wrong: sparse value mislabelled as dense"
    assert ceiling.citation.startswith("Lightning-AI/pytorch-lightning, fabric/utilities/throughput.py L355; stas00/ml-engineering")


def test_a_link_has_the_rate_of_cost_models_and_the_peak_of_its_vendor() -> None:
    nvlink = load("h100-sxm").ceiling("nvlink")
    assert nvlink is not None
    # NCCL reckons 20.6 of the vendor's 25 GB/s a link and direction; 18 links are the 450 GB/s a chip of the datasheet.
    assert (nvlink.rate, nvlink.peak, nvlink.count) == (parse("20.6 GB/s", "B/s"), parse("25 GB/s", "B/s"), 18)
    [link] = [each for each in card("h100-sxm").links if each.resource.name == "nvlink"]
    assert (link.chip, link.chip_both_ways) == ("450 GB/s", "900 GB/s")


def test_ici_has_a_rate_and_a_hop_latency() -> None:
    tpu = load("tpu-v5e")
    assert tpu.rate("ici") == parse("45 GB/s", "B/s")
    # About a microsecond a hop.
    assert 1 / tpu.rate("ici/hop") == pytest.approx(parse("1 µs", "s"))
    assert {each.name for each in catalogue() if each.ceiling("ici/hop")} == {
        f"tpu-v{each}" for each in ("2", "3", "4", "5e", "5p", "6e", "7x")
    }


@every("chip", ["gh200", "gb200"])
def test_the_processors_memory_beside_a_gpu_is_host_memory(chip: str) -> None:
    machine = load(chip)
    assert machine.memories[0].resource.name == "hbm"
    assert machine.rate("host") == parse("500 GB/s", "B/s")


def test_a_level_with_a_capacity_alone_has_no_roof() -> None:
    mi300x = load("mi300x")
    assert mi300x.capacity("infinity_cache") == parse("256 MiB", "B")
    assert mi300x.ceiling("infinity_cache") is None


def test_low_confidence_is_said_where_the_figure_is() -> None:
    ceiling = load("max-1550").ceiling("vector/fp32")
    assert ceiling is not None
    assert "confidence low" in ceiling.note


def test_per_core_and_per_device_figures_are_converted() -> None:
    v5p, v7x = card("tpu-v5p").machine, card("tpu-v7x").machine
    assert (v5p.devices, v5p.cores, v7x.devices, v7x.cores) == (1, 2, 2, 2)
    # The guides' 7 TFLOP/s is one core of two; a megacore device is the whole chip.
    assert v5p.rate("vector/fp32") / v5p.cores == parse("7 TFLOP/s", "FLOP/s")
    assert [error.rate for error in card("tpu-v5p").known_errors] == [parse("7 TFLOP/s", "FLOP/s")]


def test_every_device_has_whole_cores() -> None:
    assert [each.name for each in catalogue() if each.cores % each.devices] == []


def test_limits_hold_for_the_families_they_are_sourced_for() -> None:
    limits = {(limit.name, limit.resource.name): limit for limit in load("h200-sxm").limits}
    assert limits["no FMA", "vector/fp32"].fraction == 1 / 2
    assert limits["low instruction parallelism", "vector/fp32"].fraction == 1 / 4
    assert limits["uncoalesced access", "hbm"].fraction == 4 / 32  # 4 useful bytes of a 32-byte sector
    assert all(limit.citation for limit in limits.values())
    a100 = {(limit.name, limit.resource.name): limit for limit in load("a100").limits}
    # 16 lanes a scheduler start a warp's instruction every 2 cycles; a chain lets one through every 4.
    assert a100["low instruction parallelism", "vector/fp32"].fraction == 2 / 4


def test_a_measurement_of_one_vendors_chip_is_cited_for_its_chips_alone() -> None:
    for name in ("grace", "mi300x", "h100"):
        cited = [limit.citation for limit in load(name).limits if limit.name == "no FMA"]
        assert cited
        assert len(cited) == len({limit.resource for limit in load(name).limits if limit.name == "no FMA"})  # each once
        assert all("Williams" in one for one in cited), name
        assert all(("H200" in one) == (name == "h100") for one in cited), name


def test_a_tpus_vector_unit_is_not_halved_for_lack_of_fused_multiply_adds() -> None:
    # Its published rates count one FLOP per ALU and cycle.
    assert [limit.name for limit in load("tpu-v5p").limits if limit.resource.unit == "vector"] == []


TPUS = ("v2", "v3", "v4", "v4i", "v5e", "v5p", "v6e", "v7x")


@every("generation", TPUS)
def test_a_tpus_vector_and_vmem_rates_are_its_slots_times_lanes_times_clock(generation: str) -> None:
    found = card(f"tpu-{generation}")
    clock = parse(str(found.spec("clock")), "Hz") * found.machine.cores
    lanes, register = 8 * 128, 4096  # of 32 bits, and its bytes
    slots = {name: int(str(found.spec(f"{name}_slots"))) for name in ("valu", "eup", "xlu", "vload", "vstore")}
    expected = {
        "vector/fp32": slots["valu"] * lanes * clock,
        "vector/int32": slots["valu"] * lanes * clock,
        # On v4 and v4i a function starts every second cycle.
        "vector/transcendental": slots["eup"] * lanes * clock / (2 if generation in ("v4", "v4i") else 1),
        "vmem.read": slots["vload"] * register * clock,
        "vmem.write": slots["vstore"] * register * clock,
        # A transposition of 16 registers holds a cross-lane unit for 48 cycles on v2 and v3, 64 on v4, 80 on v5, 32 since.
        "xlu": slots["xlu"] * register * clock * 16 / {"v2": 48, "v3": 48, "v4": 64, "v4i": 64, "v5e": 80, "v5p": 80}.get(generation, 32),
    }
    if generation in ("v6e", "v7x"):  # two bf16 numbers a lane
        expected["vector/bf16"] = 2 * expected["vector/fp32"]
    # v5p's published figures are the same, rounded to two digits.
    assert {name: found.machine.rate(name) for name in expected} == pytest.approx(expected, rel=0.025 if generation == "v5p" else 2e-4)
    assert found.machine.rate("vector/bf16") == expected.get("vector/bf16", found.machine.rate("vector/fp32"))


def test_v4is_slots_are_v4s_and_say_so() -> None:
    # The compiler has no target of v4i; its one core is one of v4's two.
    v4i, v4 = load("tpu-v4i"), load("tpu-v4")
    assert v4i.rate("vmem.read") == v4.rate("vmem.read") / 2
    ceiling = v4i.ceiling("vector/fp32")
    assert ceiling is not None
    assert "slots of v4" in ceiling.note


def test_a_tpus_transcendental_functions_overlap_with_its_other_arithmetic() -> None:
    # 2 and 3 s on two units of one core take 3 s; on a GPU, whose ceilings share the unit, 5 s.
    tpu = load("tpu-v6e")
    work = Cost.of({"vector/fp32": 2 * tpu.rate("vector/fp32"), "vector/transcendental": 3 * tpu.rate("vector/transcendental")})
    placed = place(work, tpu)
    assert (placed.floor_s, placed.bound) == (pytest.approx(3), "eup")
    gpu = Machine.of("gpu", {"vector/fp32": 2, "vector/transcendental": 3})
    assert place(Cost.of({"vector/fp32": 4, "vector/transcendental": 9}), gpu).floor_s == 5


def test_registers_that_move_across_lanes_are_neither_flops_nor_traffic() -> None:
    tpu = load("tpu-v6e")
    work = Cost.of({"xlu": 3 * tpu.rate("xlu"), "hbm": tpu.rate("hbm"), "vector/fp32": tpu.rate("vector/fp32")})
    placed = place(work, tpu)
    assert (placed.floor_s, placed.bound) == (pytest.approx(3), "xlu")
    assert (work.flops, work.bytes()) == (tpu.rate("vector/fp32"), tpu.rate("hbm"))
    assert bound_words("xlu") == "compute-bound (xlu)"
    assert not [each for each in (*tpu.compute, *tpu.memories, *tpu.links) if each.resource.unit == "xlu"]


@every("generation", [*TPUS, "v1", "8i", "8t"])
def test_every_tpu_has_a_rate_for_its_hosts_memory(generation: str) -> None:
    machine = load(f"tpu-{generation}")
    assert machine.rate("pcie") >= parse("14 GB/s", "B/s")
    host = machine.resolve("host")
    assert host is not None
    assert (host.resource.name, host.rate) == ("pcie", machine.rate("pcie"))  # host memory is behind the bus
    assert host.citation


@every("generation", ["v4", "v5e", "v5p", "v6e", "v7x"])
def test_tpus_have_sustained_rates_with_their_source(generation: str) -> None:
    machine = load(f"tpu-{generation}")
    lowered = machine.limited("sustained")
    assert 0.5 < lowered.rate("matrix/bf16") / machine.rate("matrix/bf16") < 1
    assert all(limit.citation for limit in machine.limits)


def test_sustained_rates_of_v6e_are_the_published_measurements() -> None:
    machine = load("tpu-v6e")
    # 8192 cubed bf16 in 1.3288 ms; 5.37 GB read and as much written in 8.017 ms.
    assert machine.limited("sustained").rate("matrix/bf16") == pytest.approx(2 * 8192**3 / 1.3288e-3, rel=1e-3)
    assert machine.limited("sustained").rate("hbm") == pytest.approx(2 * 4 * 5 * 1024 * 1024 * 256 / 8.017e-3, rel=1e-3)


def test_sustained_fractions_are_lower_roofs_of_their_resource() -> None:
    lowered = load("h100-sxm").limited("sustained")
    # 794.5 of 989.4 TFLOP/s.
    assert lowered.rate("matrix/bf16") == pytest.approx(parse("794.5 TFLOP/s", "FLOP/s"), rel=1e-3)
    # 0.84 of the vendor's 25 GB/s is above the 20.6 that the rate already is: no lower roof.
    assert lowered.rate("nvlink") == parse("20.6 GB/s", "B/s")


def test_several_sustained_fractions_of_one_resource_have_names_of_their_own() -> None:
    of_bf16 = [limit.name for limit in load("mi300x").limits if limit.resource.name == "matrix/bf16"]
    assert of_bf16 == ["sustained", "sustained (MAMF)"]


def test_every_file_is_named_as_its_machine() -> None:
    assert [each.name for each in catalogue()] == list(names())


def test_every_name_of_every_chip_leads_to_it() -> None:
    for each in cards():
        machine = each.machine
        for words in (machine.name, machine.title, *machine.aliases):
            assert load(words).name == machine.name, words


def test_no_two_chips_share_a_name_and_every_family_has_one_usual_member() -> None:
    owners: dict[str, set[str]] = {}
    for each in cards():
        for words in (each.machine.name, each.machine.title, *each.machine.aliases):
            owners.setdefault(_key(words), set()).add(each.machine.name)
    assert {key: chips for key, chips in owners.items() if len(chips) > 1} == {}
    families = {each.family for each in cards()}
    assert {family: sum(each.usual for each in cards() if each.family == family) for family in families} == dict.fromkeys(families, 1)


def test_the_index_of_names_reads_file_heads_and_misses_nothing() -> None:
    chips, families = _index(names())
    whole = {_key(words): each.machine.name for each in cards() for words in (each.machine.name, each.machine.title, *each.machine.aliases)}
    members = Counter(each.family for each in cards())
    usual = {_key(each.family): each for each in cards() if each.usual}
    assert chips == {key: each.machine.name for key, each in usual.items() if members[each.family] == 1} | whole
    assert families == {key: each.machine.name for key, each in usual.items() if members[each.family] > 1}


@every(
    ("reported", "chip"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),  # what torch and nvidia-smi print; a table that only knows "NVIDIA H100" misses it
        ("NVIDIA H100", "h100-sxm"),
        ("NVIDIA H200", "h200-sxm"),
        ("nvidia a100-sxm4-80gb", "a100-sxm4-80"),
        ("TPU v5 lite", "tpu-v5e"),
        ("TPU v5", "tpu-v5p"),
        ("TPU7x", "tpu-v7x"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2"),
        ("h100_sxm", "h100-sxm"),
        ("RTX 4090", "rtx-4090"),
        ("trn2", "trainium2"),
        ("v5e", "tpu-v5e"),  # a generation with one chip is not a family
        ("v7x", "tpu-v7x"),
    ],
)
def test_a_chip_answers_to_what_tools_call_it(reported: str, chip: str) -> None:
    found = load(reported)
    assert found.name == chip
    assert not any("family" in note for note in found.notes)


@every(("family", "usual"), [("h100", "h100-sxm"), ("h200", "h200-sxm"), ("a100", "a100-sxm4-80"), ("M1", "apple-m1")])
def test_a_family_is_its_usual_member_and_says_so(family: str, usual: str) -> None:
    found = load(family)
    assert found.name == usual
    assert f"{family!r} is a family of chips; using {usual}" in found.notes


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(MachineError, match=re.escape("no machine named 'h10'; did you mean 'h100-sxm'?")):
        load("h10")
    with pytest.raises(MachineError, match="no machine named 'zzzz'; list all with: roofline chips"):
        load("zzzz")


def test_one_device_of_a_chip_has_its_share() -> None:
    chip, device = load("tpu-v7x"), load("TPU7x/device")
    assert (device.name, device.scope) == ("tpu-v7x/device", "device")
    # Two JAX devices a chip.
    assert device.rate("hbm") * 2 == chip.rate("hbm")
    assert load("h100/device").rate("hbm") == load("h100").rate("hbm")


@given(st.sampled_from(names()), st.randoms())
def test_case_and_separators_do_not_matter(name: str, random: Any) -> None:
    spelled = "".join(random.choice([letter.lower(), letter.upper()]) if letter != "-" else random.choice("- _") for letter in name)
    assert load(spelled).name == name


@given(st.sampled_from(names()))
def test_devices_add_up_to_their_chip(name: str) -> None:
    chip, device = load(name), load(f"{name}/device")
    for ceiling in (*chip.compute, *chip.memories):
        assert device.rate(ceiling.resource) * chip.devices == pytest.approx(ceiling.rate)


def _citations(value: object) -> list[str]:
    """Every text under a key named source, or something_source."""
    if isinstance(value, list):
        return [item for inner in value for item in _citations(inner)]
    if not isinstance(value, dict):
        return []
    own = [item for key, listed in value.items() if key == "source" or key.endswith("_source") for item in listed]
    return own + [item for inner in value.values() for item in _citations(inner)]


def test_every_citation_of_the_catalogue_names_a_known_source_and_every_source_is_cited() -> None:
    files = [*Path(CHIPS).glob("*.toml"), Path(SOURCES).with_name("limits.toml")]
    cited = {citation.partition(":")[0] for path in files for citation in _citations(tomllib.loads(path.read_text()))}
    assert cited == set(sources())


def test_sources_say_where_to_find_them_and_which_to_distrust() -> None:
    assert all(source.cite and source.at and source.kind for source in sources().values())
    unreliable = tomllib.loads(SOURCES.read_text("utf-8"))["unreliable"]
    assert len(unreliable) == 6
    assert all(each["source"] and each["problem"] for each in unreliable)


def test_a_figure_is_datasheet_where_a_document_of_its_vendor_is_cited_and_quoted_where_none_is() -> None:
    for each in cards():
        for figure in each.attributions:
            publishers = {source.vendor for citation in figure.citations if (source := source_of(citation))}
            if figure.provenance in ("datasheet", "quoted"):
                expected = "datasheet" if each.machine.vendor in publishers else "quoted"
                assert figure.provenance == expected, (each.machine.name, figure)
    # AMD's own page, another project that repeats NVIDIA's figure, and a document read only through others.
    provenances = [load(chip).ceiling("matrix/bf16").provenance for chip in ("mi300x", "h100-sxm", "rtx-5090")]  # type: ignore[union-attr]
    assert provenances == ["datasheet", "quoted", "quoted"]


def test_every_vendor_of_a_source_makes_a_chip_of_the_catalogue() -> None:
    assert {source.vendor for source in sources().values()} - {""} <= {machine.vendor for machine in catalogue()}


LEVELS = {
    **dict.fromkeys(("HBM", "unified memory", "DDR3 weight memory", "GDDR6", "GDDR6X", "GDDR7", "LPDDR5", "LPDDR5X", "DDR5-4800"), "hbm"),
    **dict.fromkeys(("L1/shared memory", "shared memory", "L1/SLM", "L1 SRAM", "L1 vector"), "l1"),
    **dict.fromkeys(("VREG", "registers", "VGPR"), "registers"),
    "LPDDR5X (Grace, coherent)": "host",
    "Infinity Cache": "infinity_cache",
    "Unified Buffer": "unified_buffer",
}
PROVENANCE = {
    "vendor": ("datasheet", "quoted"),
    "vendor_or_repo": ("datasheet", "quoted"),
    "derived": ("derived",),
    "measured": ("measured",),
    "third_party": ("third party",),
    "third_party_estimate": ("third party",),
}


# TPUs whose vector units and VMEM have rates by the slots of their cores, where the reference leaves most out for lack of a source.
BY_SLOTS = {f"tpu-{generation}": ("vector/fp32", "vector/int32", "vector/transcendental") for generation in TPUS}
ROUNDED = (
    ("tpu-v2", "vector/fp32"),
    ("tpu-v3", "vector/fp32"),
    ("tpu-v5e", "vmem.read"),
)  # in the reference; its figures are among the others
SPECS_OF_CORES = ("clock", "valu_slots", "eup_slots", "xlu_slots", "vload_slots", "vstore_slots")
NETWORKS_OF_PLANS = {"InfiniBand HDR", "InfiniBand NDR", "InfiniBand XDR"}  # of servers with chips whose network the reference lacks
LINKS_OF_HOSTS = {"PCIe", "PCIe Gen3 x16"}  # of TPUs: the reference has those of four generations only
# Names of one board: slices of four chips, which `tests/test_topology.py` has.
SLICES = {"v2-8", "v3-8"}
# Rates that the reference leaves out: Wormhole's bf16 is its fp16, the others follow from SMs, clock and architecture.
DERIVED = {
    **{chip: {*rates, *(("vector/bf16",) if chip in ("tpu-v6e", "tpu-v7x") else ())} for chip, rates in BY_SLOTS.items()},
    "wormhole-n150": {"matrix/bf16"},
    "wormhole-n300": {"matrix/bf16"},
    "jetson-agx-orin-64": {f"matrix/{kind}" for kind in ("bf16", "fp16", "tf32")},
}


def _reference() -> list[dict[str, Any]]:
    if not REFERENCE.exists():
        return []
    chips: list[dict[str, Any]] = tomllib.loads(REFERENCE.read_text())["chip"]
    return chips


with_reference = pytest.mark.skipif(not REFERENCE.exists(), reason="the reference is not beside the project")
# The reference gives the A10G the A10's SMs; products measured on one are faster than those could make them.
CORRECTED = ("a10g",)
reference = every("chip", [chip for chip in _reference() if chip["id"] not in CORRECTED] or [None])


@with_reference
def test_every_chip_of_the_reference_is_here() -> None:
    assert {chip["id"].replace("_", "-") for chip in _reference()} <= set(names())


def _name(chip: dict[str, Any]) -> str:
    return str(chip["id"]).replace("_", "-")


@with_reference
@reference
def test_identity_is_the_references(chip: dict[str, Any]) -> None:
    found = card(_name(chip))
    machine = found.machine
    assert machine.title.endswith(chip["name"])
    assert (machine.vendor, machine.arch, machine.year) == (chip["vendor"], chip["arch"], chip["year"])
    assert machine.kind == chip["kind"].removesuffix("_gpu")
    assert machine.devices == max(1, chip.get("jax_devices_per_chip", chip.get("devices_per_chip", 1)))
    assert set(chip["aliases"]) - SLICES <= set(machine.aliases)
    for tool, listed in chip["device_names"].items():
        if tool != "source":
            assert found.names.by_tool.get(tool, ()) == tuple(name for name in listed if name not in SLICES)
    said = " ".join((*machine.notes, found.names.note))
    for key in ("jax_note", "devices_note", "no_tf32", "confidence", "year_note"):
        assert chip.get(key, "") in said or machine.name in DERIVED
    assert bool(found.names.note) == ("aliases_note" in chip)


@with_reference
@reference
def test_compute_rates_are_the_references(chip: dict[str, Any]) -> None:
    machine = load(_name(chip))
    entries = chip.get("compute", [])
    extra = DERIVED.get(machine.name, set())
    expected = {f"{entry['unit']}/{entry['dtype']}" for entry in entries}
    assert expected <= {ceiling.resource.name for ceiling in machine.compute} <= expected | extra
    for entry in entries:
        ceiling = machine.ceiling(f"{entry['unit']}/{entry['dtype']}")
        assert ceiling is not None
        if (machine.name, ceiling.resource.name) in ROUNDED:
            assert _nearly(ceiling, entry["ops_per_s"])
            continue
        assert (ceiling.rate, ceiling.sparse) == (entry["ops_per_s"], entry.get("sparse_ops_per_s"))
        assert ceiling.provenance in PROVENANCE[entry["basis"]]
        assert ceiling.citation.count("; ") == len(entry["source"]) - 1
        _holds(entry, ceiling.others, ceiling.rate, "alternatives", "project_value")
        assert ("note" in entry) <= bool(ceiling.note)
        assert entry.get("accumulate", "") in ceiling.note
        assert entry.get("confidence", "") in ceiling.note


def _holds(entry: dict[str, Any], others: Any, chosen: float, alternatives: str, project: str = "") -> None:
    """The alternatives of a reference entry, and the project's own value, are among the others."""
    listed = entry.get(alternatives, [])
    assert [other.value for other in others[: len(listed)]] == [each["value"] for each in listed]
    for other, each in zip(others, listed, strict=False):
        assert ("note" in each) <= bool(other.note)
        assert other.citation
    if project in entry:
        assert entry[project] in (chosen, *(other.value for other in others))


def _nearly(ceiling: Ceiling, rounded: float) -> bool:
    """Whether a rate replaces a figure of the reference that is the same, rounded to one or two digits."""
    return abs(ceiling.rate / rounded - 1) < 0.05 and rounded in [other.value for other in ceiling.others]


@with_reference
@reference
def test_memories_are_the_references(chip: dict[str, Any]) -> None:
    found = card(_name(chip))
    machine = found.machine
    for entry in chip["memory"]:
        level = LEVELS.get(entry["name"], entry["name"].lower())
        [words] = [each for each in found.memories if each.level.name == level]
        assert (words.type, bool(words.per_unit)) == (entry.get("type", ""), "per_unit" in entry) or level == "vmem"
        if "capacity_bytes" in entry:
            [held] = [each for each in machine.capacities if each.level.name == level]
            assert held.bytes == entry["capacity_bytes"]
            assert held.provenance in PROVENANCE[entry["capacity_basis"]]
            assert held.citation.count("; ") == len(entry["capacity_source"]) - 1
            _holds(entry, held.others, held.bytes, "capacity_alternatives")
        ceiling = machine.ceiling("vmem.read" if level == "vmem" else level)
        by_slots = level == "vmem" and machine.name in BY_SLOTS
        assert (ceiling is not None) == ("bandwidth_bytes_per_s" in entry or by_slots)
        if ceiling is not None and (machine.name, ceiling.resource.name) in ROUNDED:
            assert _nearly(ceiling, entry["bandwidth_bytes_per_s"])
        elif ceiling is not None and "bandwidth_bytes_per_s" in entry:
            assert ceiling.rate == entry["bandwidth_bytes_per_s"]
            assert ceiling.provenance in PROVENANCE[entry["bandwidth_basis"]]
            _holds(entry, ceiling.others, ceiling.rate, "bandwidth_alternatives", "bandwidth_project_value")
            assert ("note" in entry) <= bool(ceiling.note)
            assert entry.get("confidence", "") in ceiling.note


@with_reference
@reference
def test_links_are_the_references(chip: dict[str, Any]) -> None:
    found = card(_name(chip))
    links = {each.name: each for each in found.links if each.name != "ICI hop"}
    more = {*links} - {entry["name"] for entry in chip.get("link", [])}
    assert more <= (LINKS_OF_HOSTS if found.machine.kind == "tpu" else NETWORKS_OF_PLANS)
    assert [name for name in links if name not in more] == [entry["name"] for entry in chip.get("link", [])]
    for entry in chip.get("link", []):
        link = links[entry["name"]]
        rate, peak, chip_rate, both_ways = (link.number(key, "B/s") for key in ("rate", "peak", "chip", "chip_both_ways"))
        assert (chip_rate, both_ways) == (entry.get("unidirectional_bytes_per_s"), entry.get("bidirectional_bytes_per_s"))
        assert link.count == entry.get("links")
        per_link, modelled = entry.get("per_link_unidirectional_bytes_per_s"), entry.get("modelling_per_link_unidirectional_bytes_per_s")
        if modelled is not None:
            assert (rate, peak) == (modelled, per_link)
        elif per_link or chip_rate:
            assert rate == (per_link or chip_rate)
        elif both_ways:
            assert rate == both_ways / 2
        else:
            assert rate is None
        assert ("note" in entry) <= bool(link.note)
        assert len(link.others) == len(entry.get("alternatives", []))
        ceiling = found.machine.ceiling(link.resource)
        assert (ceiling.rate if ceiling else None) == rate
        assert not ceiling or ceiling.topology == entry.get("topology", "")


@with_reference
@reference
def test_specs_power_and_sustained_rates_are_the_references(chip: dict[str, Any]) -> None:
    found = card(_name(chip))
    specs = found.specs
    own = [name for name in specs if name not in SPECS_OF_CORES or found.machine.name not in BY_SLOTS]
    assert own == [name for entry in chip.get("spec", []) if (name := entry["name"].removesuffix("_hz")) in own]
    assert {entry["name"].removesuffix("_hz") for entry in chip.get("spec", [])} <= {*specs}
    for entry in chip.get("spec", []):
        spec = specs[entry["name"].removesuffix("_hz")]
        value = parse(spec.value, "Hz") if entry["name"].endswith("_hz") else spec.value
        assert value == entry["value"]
        assert spec.provenance in PROVENANCE[entry["basis"]]
        assert len(spec.others) == len(entry.get("alternatives", []))
        assert entry.get("confidence", "") in spec.words()
    for entry in chip.get("power", []):
        assert found.power is not None
        assert (found.power.watts, found.machine.power_w, found.power.term) == (entry["watts"], entry["watts"], entry["term"])
        assert [parse(other.value, "W") for other in found.power.others] == [each["value"] for each in entry.get("alternatives", [])]
    units = {"TFLOPS": "TFLOP/s", "TOPS": "TFLOP/s", "GB/s": "GB/s"}
    for entry, each in zip(chip.get("sustained", []), found.sustained, strict=False):
        assert (each.what, each.fraction) == (entry["what"], entry.get("fraction_of_peak"))
        assert each.per_second == parse(f"{entry['value']} {units[entry['unit']]}", each.per)
    assert len(found.sustained) >= len(chip.get("sustained", []))


@with_reference
@reference
def test_disagreements_are_the_references(chip: dict[str, Any]) -> None:
    found = card(_name(chip)).disagreements
    assert len(found) == len(chip.get("disagreement", []))
    for entry, each in zip(chip.get("disagreement", []), found, strict=True):
        assert bool(each.chosen) == ("chosen" in entry or each.about in DERIVED.get(_name(chip), ()))
        assert each.note
        values = [value.value for value in each.values]
        dimension = "B/s" if each.about in ("hbm", "ici") else "W" if each.about == "power" else "FLOP/s"
        assert [parse(value, dimension) for value in values] == [value["value"] for value in entry["values"]]


def test_a_users_file_is_a_machine() -> None:
    machine = read(DATA / "sound.toml")
    assert (machine.name, machine.title, machine.launch_latency_s) == ("acme-1", "ACME One", parse("5 µs", "s"))
    assert machine.rate("matrix/fp8") == parse("800 TFLOP/s", "FLOP/s")  # written as matrix/float8
    assert machine.limited("sustained").rate("matrix/bf16") == parse("320 TFLOP/s", "FLOP/s")
    assert load(str(DATA / "sound.toml")) == machine


def test_a_file_says_whether_its_chip_has_a_matrix_unit(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    rates = "kind = 'gpu'\n[[compute]]\nresource = 'vector/fp32'\nrate = '20 TFLOP/s'\n"
    for mark, runs in (("", False), ("matrix_unit = true\n", False), ("matrix_unit = false\n", True)):
        path.write_text(mark + rates)
        assert (read(path).resolve("matrix/bf16") is not None) == runs
    # What extends a chip without matrix units has none either, until it rates one.
    path.write_text("extends = 'gtx-1080-ti'\n" + rates)
    assert read(path).rate("matrix/bf16") == parse("20 TFLOP/s", "FLOP/s")
    path.write_text("extends = 'gtx-1080-ti'\n[[compute]]\nresource = 'matrix/fp16'\nrate = '90 TFLOP/s'\n")
    assert read(path).rate("matrix/fp16") == parse("90 TFLOP/s", "FLOP/s")


def test_a_file_that_extends_a_chip_gives_only_what_differs() -> None:
    base, ours = load("h100-sxm"), read(DATA / "h100-extended.toml")
    hbm, nvlink = ours.ceiling("hbm"), ours.ceiling("nvlink")
    assert hbm is not None
    assert nvlink is not None
    assert (hbm.rate, hbm.provenance, hbm.citation) == (parse("3 TB/s", "B/s"), "measured", "our stream benchmark")
    assert hbm.others[0].value == base.rate("hbm")
    assert hbm.others[0].note == "quoted, overridden"
    assert (nvlink.rate, nvlink.peak, nvlink.count) == (parse("19 GB/s", "B/s"), parse("25 GB/s", "B/s"), 18)
    assert ours.rate("matrix/bf16") == base.rate("matrix/bf16")
    assert ours.capacity() == base.capacity()
    assert (ours.name, ours.power_w, base.power_w) == ("our-h100", 500, 700)
    assert "extends h100-sxm" in ours.notes
    assert ours.aliases == ()  # it is not what tools mean by an H100


COMPUTE = "[[compute]]\nresource = 'matrix/bf16'\n"
GOOD = COMPUTE + "rate = '1 TFLOP/s'\n"


@every(
    ("text", "message"),
    [
        (COMPUTE + "rate = '3 GHz'", "my.toml: compute[0].rate: '3 GHz' is in Hz, not in FLOP/s; write it like '989 TFLOP/s'"),
        (COMPUTE + "rate = 989e12", "my.toml: compute[0].rate: 989000000000000.0 has no unit; write it like"),
        (COMPUTE + "rate = '989'", "my.toml: compute[0].rate: '989' has no unit"),
        (COMPUTE + "rate = '-3 TFLOP/s'", "my.toml: compute[0].rate: '-3 TFLOP/s' is negative"),
        (COMPUTE + "rate = '0 TFLOP/s'", "my.toml: compute[0].rate: matrix/bf16: a rate of 0 FLOP/s is not positive"),
        (COMPUTE, "my.toml: compute[0].rate: missing; write it like rate = '989 TFLOP/s'"),
        (COMPUTE + "rate = '1 TFLOP/s'\nrates = 3", "my.toml: compute[0].rates: unknown key; did you mean 'rate'?"),
        (
            COMPUTE + "rate = '1 TFLOP/s'\nprovenance = 'rumour'",
            "my.toml: compute[0].provenance: 'rumour' is not one of datasheet, quoted, derived",
        ),
        (GOOD + GOOD, "my.toml: matrix/bf16 is rated twice; keep one and put the other under its others"),
        (
            "[[compute]]\nresource = 'matrix/bf61'\nrate = '1 TFLOP/s'",
            "my.toml: compute[0].resource: no number format named 'bf61'; did you mean",
        ),
        ("[[compute]]\nresource = 'hbm'\nrate = '1 TFLOP/s'", "my.toml: compute[0].resource: 'hbm' is not a compute resource"),
        ("[[compute]]\nrate = '1 TFLOP/s'", "my.toml: compute[0].resource: missing; write it like resource = 'matrix/bf16'"),
        ("[[memory]]\nlevel = 'hbm'\nrate = '3.35 Tb/s'", "my.toml: memory[0].rate: '3.35 Tb/s': 'Tb/s' may mean bits or bytes"),
        ("[[memory]]\nlevel = 'hbm'\ncapacity = '80 GB/s'", "my.toml: memory[0].capacity: '80 GB/s' is in B/s, not in B"),
        ("[[memory]]\nlevel = 'hbm'", "my.toml: memory[0]: neither rate nor capacity"),
        ("[[memory]]\nlevel = 'nvlink'\nrate = '1 GB/s'", "my.toml: memory[0].level: 'nvlink' is not a memory"),
        ("[[link]]\nresource = 'hbm'\nrate = '1 GB/s'", "my.toml: link[0].resource: 'hbm' is not a link"),
        ("[[link]]\nresource = 'nvlink'\nrate = '1 GB/s'\ncount = 0", "my.toml: link[0].count: 0 is not a count"),
        (
            GOOD + "[[sustained]]\nwhat = 'x'\nresource = 'matrix/bf16'\nrate = '1 TFLOP/s'\nfraction = 80",
            "my.toml: sustained[0].fraction: 80 is not a fraction",
        ),
        ("chips = 1\n" + GOOD, "my.toml: chips: unknown key"),
        ("matrix_unit = 'no'\n" + GOOD, "my.toml: matrix_unit: 'no' is neither true nor false"),
        ("matrix_unit = false\n" + GOOD, "my.toml: matrix_unit: false, but matrix/bf16 has a rate; leave one of them out"),
        ("kind = 'gpus'\n" + GOOD, "my.toml: kind: 'gpus' is not one of gpu, tpu, accelerator, soc, cpu"),
        (
            "schema = 'roofline.machine/9'\n" + GOOD,
            "my.toml: schema: 'roofline.machine/9' is not supported; this version reads 'roofline.machine/1'",
        ),
        ("devices = 'two'\n" + GOOD, "my.toml: devices: 'two' is not a count"),
        ("name = 'a/b'\n" + GOOD, "my.toml: name: 'a/b' is not a valid name"),
        ("name = 'empty'", "my.toml: no rates; give at least one"),
        ("compute = 3", "my.toml: compute: 3 is not a list of tables; write each under its own [[compute]]"),
        ("extends = 'h10'\n" + GOOD, "my.toml: extends: no machine named 'h10'; did you mean 'h100-sxm'?"),
        ("extends = './my.toml'\n" + GOOD, "my.toml: extends: a machine file cannot extend itself"),
        ("name = ", "not TOML"),
    ],
)
def test_a_wrong_file_is_told_where_what_and_what_to_do(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "my.toml"
    path.write_text(text)
    with pytest.raises(MachineError) as caught:
        read(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="no such file"):
        load(str(tmp_path / "absent.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(MachineError, match="not UTF-8 text"):
        load(str(tmp_path / "bytes.toml"))


VALUES = st.one_of(st.text(max_size=8), st.integers(), st.floats(), st.booleans(), st.lists(st.text(max_size=3), max_size=2))


@given(
    st.dictionaries(st.sampled_from(["name", "kind", "year", "devices", "cores", "aliases", "notes", "launch_latency", "specs"]), VALUES),
    st.lists(
        st.dictionaries(st.sampled_from(["resource", "rate", "sparse", "source", "others", "provenance", "note"]), VALUES), max_size=2
    ),
    st.lists(st.dictionaries(st.sampled_from(["level", "rate", "capacity", "source", "capacity_others"]), VALUES), max_size=2),
)
def test_any_content_is_a_machine_or_a_machine_error(head: dict[str, Any], compute: list[Any], memory: list[Any]) -> None:
    try:
        file = typed({**head, "compute": compute, "memory": memory}, MachineFile, "any.toml")
        outcome: Machine | str = build(file, "any.toml").machine
    except MachineError as error:
        outcome = str(error)
    assert isinstance(outcome, Machine) or outcome.startswith("any.toml: ")


def test_settings_are_rates_in_base_units() -> None:
    assert parse_settings(["hbm=7.2 TB/s", "matrix/bf16 = 2307 TFLOP/s", "hbm=7 TB/s"]) == {
        "hbm": parse("7 TB/s", "B/s"),
        "matrix/bf16": parse("2307 TFLOP/s", "FLOP/s"),
    }
    machine = load("tpu-v7x").override(parse_settings(["hbm=7.2 TB/s"]), citation="--set")
    # The ridge of the guides: 2307 TFLOP/s over 7.2 TB/s.
    assert machine.ridge("matrix/bf16") == pytest.approx(320.4, abs=0.05)


@every(
    ("text", "message"),
    [
        ("hbm", "--set 'hbm': write RESOURCE=RATE, like --set hbm='7.2 TB/s'"),
        ("hbm=7.2 TFLOP/s", "--set 'hbm=7.2 TFLOP/s': '7.2 TFLOP/s' is in FLOP/s, not in B/s"),
        ("HBM=1 B/s", "'HBM' is not a resource"),
        ("hbm=0 B/s", "a rate must be above 0"),
        ("capacity.hbm=96 GiB", "--set changes rates only"),
    ],
)
def test_a_wrong_setting_is_told_what_to_write(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_settings([text])
    assert message in str(caught.value)
    assert isinstance(caught.value, RooflineError)


def test_every_chip_has_a_ceiling() -> None:
    assert all(isinstance(each, Machine) and each.ceilings for each in catalogue())


def test_bf16_is_computed_in_fp32_by_vector_units_that_have_no_bf16() -> None:
    for chip, own in (("v4", False), ("v5e", False), ("v5p", False), ("v6e", True), ("v7x", True)):
        machine = load(chip)
        narrow, wide = (machine.resolve(Resource(f"vector/{kind}")) for kind in ("bf16", "fp32"))
        assert narrow is not None
        assert wide is not None
        assert narrow.rate == (2 if own else 1) * wide.rate, chip
