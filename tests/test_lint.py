"""The linter: our catalogue passes, and the errors that stand in public tables do not."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.machine import Ceiling, Machine
from roofline.machines import cards, load, names
from roofline.machines.catalogue import CHIPS
from roofline.machines.lint import lint
from roofline.machines.lint.checks import CHECKS
from roofline.render.machines import lint_text
from roofline.resource import Resource
from roofline.units import parse

DATA = Path(__file__).parent / "data" / "machines"


def problems(path: Path | Machine) -> dict[tuple[str, str], str]:
    """Messages of the errors, by check and resource."""
    return {(each.check, each.resource): each.message for each in lint(path) if each.severity == "error"}


@every("name", names())
def test_our_files_pass(name: str) -> None:
    assert lint(Path(CHIPS, f"{name}.toml")) == ()


def test_a_chip_is_linted_by_name() -> None:
    assert lint("b300") == ()
    [problem] = lint("h10")
    assert problem.message == "no machine named 'h10'; did you mean 'h100-sxm'?"


def test_a_file_that_cannot_be_read_is_named_once(tmp_path: Path) -> None:
    [problem] = lint(write(tmp_path / "mine.toml", 'name = "x'))
    assert str(problem).count("mine.toml") == 1
    assert problem.message.startswith("not TOML")
    assert lint_text(["mine.toml"], [problem]).endswith("1 machine file checked: 1 error, 0 warnings")


def test_each_exception_in_our_files_has_a_check_and_a_reason() -> None:
    exemptions = [exemption for each in cards() for exemption in each.exemptions]
    assert exemptions
    assert all(exemption.check in CHECKS and len(exemption.reason.split()) > 3 for exemption in exemptions)


def test_a_sound_file_of_a_user_passes() -> None:
    assert lint(DATA / "sound.toml") == ()
    assert lint(DATA / "h100-extended.toml") == ()


def test_a_bandwidth_1000_times_too_high_is_caught_without_knowing_the_chip() -> None:
    # torchao's RTX 5090: 1.792e15 B/s.
    found = problems(DATA / "rtx-5090-like.toml")
    assert found["range", "hbm"].startswith("1.792 PB/s is outside the range of chips with GDDR")
    assert "1000 times too large (T written for G)?" in found["range", "hbm"]
    assert ("ridge", "matrix/bf16") in found


def test_an_h100s_bandwidth_on_a_card_with_gddr6_is_caught_without_knowing_the_chip() -> None:
    # PyTorch inductor's L4: 3350 GB/s.
    assert problems(DATA / "l4-like.toml")["range", "hbm"].startswith("3.35 TB/s is outside the range of chips with GDDR6")


def test_sparse_passed_off_as_dense_is_caught_without_knowing_the_chip() -> None:
    message = problems(DATA / "h100-like.toml")["sparse", "matrix/bf16"]
    assert message == "1.979 PFLOP/s is the rate of h100-sxm with sparsity; its dense rate is 989.4 TFLOP/s"


def test_each_wrong_figure_of_the_inductors_h100_is_explained() -> None:
    found = problems(DATA / "inductor-h100.toml")
    assert "sparse value mislabelled as dense" in found["catalogue", "matrix/bf16"]
    assert "figure with sparsity" in found["catalogue", "matrix/fp8"]
    assert ("catalogue", "matrix/tf32") in found  # 156 TFLOP/s is an A100's
    assert ("catalogue", "hbm") not in found


def test_a_measured_table_above_the_peak_is_caught() -> None:
    # XLA's measured table has an H100 at 2620 TFLOP/s in fp8 and an MI350 at 1023 TFLOP/s in fp32.
    fast = Ceiling(resource=Resource("matrix/fp8"), rate=parse("2620 TFLOP/s", "FLOP/s"), provenance="measured", citation="XLA")
    assert ("catalogue", "matrix/fp8") in problems(Machine(name="NVIDIA H100 80GB HBM3", ceilings=(fast,)))
    mi350 = Machine.of("AMD Instinct MI350X", {"matrix/fp32": "1023 TFLOP/s"}, vendor="AMD", kind="gpu")
    assert ("range", "matrix/fp32") in problems(mi350)


def test_a_chip_of_two_devices_written_down_as_one_is_caught() -> None:
    found = problems(DATA / "tpu-v7x-as-one-device.toml")
    assert found["devices", "devices"] == "devices = 1, but tpu-v7x has 2; use that, with figures of the whole chip"
    assert "rate of one of the 2 devices" in found["catalogue", "hbm"]
    assert found["capacity", "hbm"] == "103.1 GB is half of the catalogue's 206.2 GB for tpu-v7x"


@every(
    ("rates", "check", "resource"),
    [
        ({"matrix/bf16": "400 TFLOP/s", "matrix/fp16": "300 TFLOP/s"}, "ratio", "matrix/fp16"),
        ({"matrix/bf16": "400 TFLOP/s", "matrix/fp8": "1600 TFLOP/s"}, "ratio", "matrix/fp8"),
        ({"matrix/bf16": "400 TFLOP/s", "matrix/tf32": "100 TFLOP/s"}, "ratio", "matrix/tf32"),
        ({"vector/fp32": "50 TFLOP/s", "vector/fp64": "60 TFLOP/s"}, "ratio", "vector/fp64"),
        ({"vector/fp32": "50 TFLOP/s", "matrix/bf16": "40 TFLOP/s"}, "ratio", "vector/fp32"),
        ({"hbm": "3 TB/s", "l2": "2 TB/s"}, "level", "l2"),
        ({"l2": "6 TB/s", "l1": "5 TB/s"}, "level", "l1"),
    ],
)
def test_proportions_that_no_chip_has_are_caught(rates: dict[str, str], check: str, resource: str) -> None:
    assert (check, resource) in problems(Machine.of("unknown", rates))


HEAD = "name = 'mine'\nvendor = 'NVIDIA'\nkind = 'gpu'\n"


def write(path: Path, text: str) -> Path:
    path.write_text(HEAD + text)
    return path


@pytest.mark.parametrize(
    ("text", "check", "resource", "message"),
    [
        (
            "[[compute]]\nresource='matrix/bf16'\nrate='400 TFLOP/s'\nsparse='400 TFLOP/s'\nsource=['x']",
            *("sparse", "matrix/bf16", "not less than 400 TFLOP/s with sparsity"),
        ),
        (
            "[[link]]\nresource='nvlink'\nrate='25 GB/s'\ncount=18\nchip='900 GB/s'\nsource=['x']",
            *("link", "nvlink", "18 links of 25 GB/s are 450 GB/s, not 900 GB/s per chip"),
        ),
        (
            "[[link]]\nresource='nvlink'\nrate='25 GB/s'\ncount=18\nchip='450 GB/s'\nchip_both_ways='450 GB/s'\nsource=['x']",
            *("link", "nvlink", "not twice 450 GB/s one way"),
        ),
        (
            "[[link]]\nresource='nvlink'\nrate='30 GB/s'\npeak='25 GB/s'\nsource=['x']",
            *("link", "nvlink", "above the peak"),
        ),
        (
            "[[memory]]\nlevel='hbm'\ntype='HBM3'\nrate='3 TB/s'\nsource=['x']\ncapacity='80 TB'\ncapacity_source=['x']",
            *("capacity", "hbm", "1000 times too large"),
        ),
        (
            "[[memory]]\nlevel='hbm'\ntype='HBM3'\nrate='3 TB/s'\nsource=['x']\ncapacity='80 MiB'\ncapacity_source=['x']",
            *("capacity", "hbm", "1000 times too small"),
        ),
        (
            "[[memory]]\nlevel='hbm'\nrate='3 TB/s'\nprovenance='datasheet'",
            *("source", "hbm", "the rate has no source"),
        ),
        (
            "[[memory]]\nlevel='hbm'\nrate='3 TB/s'\nsource=['x']\n[power]\nvalue='70 kW'",
            *("power", "power", "70 kW is outside the range of NVIDIA GPUs"),
        ),
        (
            "[[memory]]\nlevel='hbm'\nrate='3 TB/s'\nsource=['x']\n[[sustained]]\nwhat='s'\nresource='hbm'\nrate='2 TB/s'\nfraction=0.9",
            *("sustained", "hbm", "2 TB/s is 0.667 of 3 TB/s, not 0.9"),
        ),
        (
            "aliases=['NVIDIA H200', 'Tesla T4']\n[[memory]]\nlevel='hbm'\nrate='4.8 TB/s'\nsource=['x']",
            *("names", "aliases", "the aliases belong to 2 chips: 'NVIDIA H200' is h200-sxm; 'Tesla T4' is t4"),
        ),
        (
            "[[compute]]\nresource='matrix/bf16'\nrate='x'",
            *("file", "", "mine.toml: compute[0].rate: 'x' is not a quantity"),
        ),
    ],
)
def test_each_check_says_what_is_wrong(tmp_path: Path, text: str, check: str, resource: str, message: str) -> None:
    # TOML wants the keys of the head before the first table; aliases come first in such a text.
    found = problems(write(tmp_path / "mine.toml", text + "\n"))
    assert message in found[check, resource]


def test_a_users_own_figure_without_a_source_is_a_warning(tmp_path: Path) -> None:
    [problem] = lint(write(tmp_path / "mine.toml", "[[memory]]\nlevel='hbm'\nrate='3 TB/s'\n"))
    assert (problem.check, problem.severity) == ("source", "warning")
    assert str(problem) == "mine.toml: hbm: warning: the rate has no source; cite one, like source = ['datasheet, page 2'] [source]"


@pytest.mark.parametrize(
    ("vendor", "cited", "fine"),
    [
        ("AMD", "rocm_specs", True),
        ("AMD", "ml_engineering: L472", False),  # repeats AMD's figure
        ("NVIDIA", "rocm_specs", False),  # a vendor's document, of another vendor
        ("AMD", "AMD MI999 data sheet, page 1", True),  # in words: who published it is not known here
    ],
)
def test_a_datasheet_figure_cites_a_document_of_its_vendor(tmp_path: Path, vendor: str, cited: str, fine: bool) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"vendor = '{vendor}'\n[[memory]]\nlevel = 'hbm'\nrate = '3 TB/s'\nprovenance = 'datasheet'\nsource = ['{cited}']\n")
    found = [each for each in lint(path) if each.check == "provenance"]
    assert [each.severity for each in found] == ([] if fine else ["warning"])
    assert all(each.message.endswith(f"is not published by {vendor}; say quoted") for each in found)
    path.write_text(path.read_text().replace("'datasheet'", "'quoted'"))
    assert [each for each in lint(path) if each.check == "provenance"] == []


@pytest.mark.parametrize(
    ("mark", "warned"), [("kind = 'gpu'", True), ("", True), ("kind = 'cpu'", False), ("kind = 'gpu'\nmatrix_unit = false", False)]
)
def test_a_chip_without_a_matrix_rate_says_that_it_has_no_matrix_unit(tmp_path: Path, mark: str, warned: bool) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"{mark}\n[[compute]]\nresource = 'vector/fp32'\nrate = '20 TFLOP/s'\nsource = ['x']\n")
    assert [each.severity for each in lint(path) if each.check == "matrix"] == (["warning"] if warned else [])


def test_gib_taken_for_gb_is_a_warning() -> None:
    # 3.35 TiB/s written for 3.35 TB/s is 10% too much; 3350 GiB/s is 7%.
    [problem] = [each for each in lint(Machine.of("h100-sxm", {"hbm": "3350 GiB/s"})) if each.check == "catalogue"]
    assert problem.severity == "warning"
    assert "with G taken for Gi" in problem.message


ODD = """
[[compute]]
resource = 'matrix/bf16'
rate = '400 TFLOP/s'
source = ['x']

[[compute]]
resource = 'matrix/fp16'
rate = '300 TFLOP/s'
source = ['x']
"""


def test_an_exception_with_its_reason_silences_one_check_on_one_resource(tmp_path: Path) -> None:
    exemption = "[[exception]]\ncheck='ratio'\nresource='matrix/fp16'\nreason='the datasheet says so'\n"
    assert ("ratio", "matrix/fp16") in problems(write(tmp_path / "mine.toml", ODD))
    assert problems(write(tmp_path / "mine.toml", ODD + exemption)) == {}


def test_an_exception_to_a_check_that_is_none_is_a_problem(tmp_path: Path) -> None:
    exemption = "[[exception]]\ncheck='ratios'\nresource='matrix/fp16'\nreason='none'\n"
    found = problems(write(tmp_path / "mine.toml", ODD + exemption))
    assert found["exception", "matrix/fp16"] == "no check named 'ratios'; did you mean 'ratio'?"


@given(st.sampled_from(names()), st.sampled_from([1000, 1 / 1000, 8, 1 / 8]))
def test_a_slipped_prefix_in_any_figure_of_any_chip_is_caught(name: str, slip: float) -> None:
    machine = load(name)
    for ceiling in machine.ceilings:
        slipped = machine.override({ceiling.resource.name: ceiling.rate * slip}, citation="slipped")
        assert ("catalogue", ceiling.resource.name) in problems(slipped)
