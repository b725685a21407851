"""The package keeps its shape: no import cycles, one public door, prefixes in one place. `lint-imports` checks the direction of imports."""

import ast
import re
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

import roofline
from roofline.hlo.ir.axes import READERS as OPCODES
from roofline.torch_prices.operators import _OPERATORS as OPERATORS

SOURCE = Path(__file__).parent.parent / "src" / "roofline"
MODULES = sorted(SOURCE.rglob("*.py"))


def test_no_import_cycles_lazy_imports_included() -> None:
    graph = grimp.build_graph("roofline")
    # The root package is the public door: it imports from everywhere, and nothing imports from it.
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules - {"roofline"}}
    tuple(TopologicalSorter(imports).static_order())  # raises CycleError, which names the modules


def test_the_public_door_is_pinned() -> None:
    assert sorted(roofline.__all__) == sorted(PUBLIC.split())
    for name in roofline.__all__:
        assert getattr(roofline, name) is not None


PUBLIC = """
Baseline BudgetCheck Corrections Cost Crossing CustomCall Finding FormulaError Ledger Limit Machine MachineError MissingExtra Op
OutputError Placement Recording Report Resource RooflineError Row SourceError StageSpec UnitError UsageError Workload analyze baseline
best_fusion blocks
capture catalogue chain check chip compare cross dtype explain fit forget_call forget_op formulas fuse jax place plan plan_serving plot
price read register_call register_op rows save show text to_json torch units validate what_if
"""


def test_prefixes_live_in_units_alone() -> None:
    # 1e9, 1e12, 1024 and the like are units; anywhere else they hide a conversion.
    prefixes = {1024, 10**6, 10**9, 10**12, 10**15, 2**20, 2**30, 2**40}
    for path in MODULES:
        numbers = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        if path.name != "units.py":
            assert not numbers & prefixes, f"{path.name} spells out a prefix"


def test_rules_know_graphs_and_no_framework() -> None:
    imported = grimp.build_graph("roofline").find_upstream_modules("roofline.rules", as_package=True)
    assert not [name for name in imported if re.match(r"roofline\.(hlo|jax|torch|torch_prices|sources)\b", name)]
    opcodes = {name for name in OPCODES if "-" in name} - {"reduce-scatter"}  # which is what every framework calls it
    foreign = {*opcodes, *(name.removeprefix("aten::") for name in OPERATORS if "_" in name.strip("_"))}
    names = re.compile(r"\b(aten|stablehlo|jax|torch|triton|xla|cudnn|cublas|cusolver)", re.IGNORECASE)
    modules = [path for path in sorted((SOURCE / "rules").rglob("*.py")) if path.parent.name != "words"]
    assert modules
    for path in modules:
        nodes = [*ast.walk(ast.parse(path.read_text()))]
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        strings = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        words = {str(node.value) for node in strings if id(node) not in docstrings}
        assert not words & foreign, path
        assert not [word for word in words if names.search(word)], path


def test_every_module_of_the_package_is_checked() -> None:
    # A wrong folder would let the tests below pass with nothing to look at.
    assert {SOURCE / "cli" / "__init__.py", SOURCE / "placement.py", SOURCE / "hlo" / "price" / "pricing.py"} <= set(MODULES)


def test_the_layout_names_every_module_at_the_top() -> None:
    layout = (SOURCE.parent.parent / "CONTRIBUTING.md").read_text().partition("## Layout")[2].partition("## Style")[0]
    words = set(re.findall(r"\w+", layout))
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    modules = {path.stem for path in SOURCE.glob("*.py") if not path.stem.startswith("__")}
    assert modules | packages <= words


def test_places_for_new_things_exist() -> None:
    table = (SOURCE.parent.parent / "CONTRIBUTING.md").read_text().partition("| to add | write |")[2].partition("\n\n")[0]
    for row in table.splitlines()[2:]:
        names = re.findall(r"`([^`]+)`", row.split("|")[2])
        places = {name: sorted(SOURCE.glob(re.sub(r"[A-Z]{4,}", "*", name))) for name in names if "/" in name or "." in name}
        assert places, row
        assert [name for name, files in places.items() if not files] == []
        code = "".join(file.read_text() for files in places.values() for file in files if file.suffix == ".py")
        lists = [name for name in names if name.isupper()]  # RULES, SOURCES, …
        assert [name for name in lists if not re.search(rf"^{name}\b.* = ", code, re.MULTILINE)] == []


def test_no_folder_has_more_modules_than_one_can_read() -> None:
    folders = Counter(path.parent.relative_to(SOURCE).as_posix() for path in MODULES)
    assert {folder: count for folder, count in folders.items() if count > 25} == {}


def test_every_file_fits_in_one_reading() -> None:
    for path in MODULES:
        assert len(path.read_text().splitlines()) <= 600, path.name


def test_nothing_below_the_command_line_prints_or_exits() -> None:
    for path in MODULES:
        if "cli" not in path.parts and path.name != "__main__.py":
            assert not re.search(r"\b(print\(|sys\.exit|sys\.stdout|sys\.stderr|warnings\.warn)", path.read_text()), path.name
