"""The pytest plugin: regressions planted in a JAX layer fail their budget and name the cause; unrelated changes do not."""

import json
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from roofline.integrations.functions import function_report

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parent.parent
# The layer of a decoder: it appends to a cache in place, and its elementwise work is fused.
LAYER = """
import jax
import jax.numpy as jnp


def norm(x):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype)


def layer(cache, x, weights, position):
    with jax.named_scope("attn"):
        key = norm(x) @ weights["key"]
        cache = jax.lax.dynamic_update_slice(cache, key, (position, 0))
        x = x + key @ weights["out"]
    with jax.named_scope("mlp"):
        hidden = norm(x) @ weights["up"]
        x = x + (jax.nn.gelu(hidden) * 2) @ weights["down"]
    return cache, x
"""
TEST = """
import jax
import jax.numpy as jnp
from layers import layer

ROWS, WIDTH = 64, 128


def array(*sizes, kind=jnp.bfloat16):
    return jax.ShapeDtypeStruct(sizes, kind)


def test_layer(roofline_report):
    weights = {"key": array(WIDTH, WIDTH), "out": array(WIDTH, WIDTH), "up": array(WIDTH, 4 * WIDTH), "down": array(4 * WIDTH, WIDTH)}
    made = roofline_report(layer, chip="h100", donate_argnums=0)(array(512, WIDTH), array(ROWS, WIDTH), weights, array(kind=jnp.int32))
    made.check("flops == baseline", "hbm <= 1.02x baseline", "launches <= baseline", "peak memory <= baseline")
"""


@pytest.fixture(autouse=True, scope="module")
def _with_what_cannot_be_imported_twice() -> None:
    """A run inside of this one forgets what it imported, and JAX does not survive a second import."""
    jax = pytest.importorskip("jax")
    function_report(lambda x: jax.nn.gelu(x @ x), chip="h100")(jax.numpy.zeros((2, 2)))
    import_module("roofline.integrations.pytest_budgets")


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(layers=LAYER, test_layer=TEST)
    return pytester


def run(suite: pytest.Pytester, *words: str) -> pytest.RunResult:
    """A run of the suite, whose modules are imported anew; the plugin once, whether its entry point is installed or not."""
    for name in ("layers", "test_layer"):
        sys.modules.pop(name, None)
    return suite.runpytest_inprocess("-p", "no:roofline", "-p", "roofline.integrations.pytest_plugin", "-p", "no:cacheprovider", *words)


def edited(suite: pytest.Pytester, file: str, *changes: tuple[str, str]) -> None:
    text = (suite.path / file).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (suite.path / file).write_text(text)


@pytest.mark.jax
@pytest.mark.parametrize(
    ("file", "old", "new", "cause"),
    [
        ("test_layer.py", ", donate_argnums=0", "", "missing donation: 131.1 kB of arguments were donated in the baseline, 0 B now"),
        (
            "layers.py",
            'norm(x) @ weights["up"]',
            'norm(x).astype(jnp.float32) @ weights["up"].astype(jnp.float32)',
            "number format: matrix work runs in matrix/tf32",
        ),
        (
            "layers.py",
            'norm(x) @ weights["up"]',
            'jnp.dot(norm(x), weights["up"], preferred_element_type=jnp.float32)',
            "number format: elementwise work runs in vector/fp32",
        ),
        ("layers.py", "return cache, x", "return cache, x.astype(jnp.float32)", "larger outputs"),
        (
            "layers.py",
            "jax.nn.gelu(hidden)",
            "jax.lax.optimization_barrier(jax.nn.gelu(hidden))",
            "less fusion: 9 kernels, 8 in the baseline for the same work",
        ),
        (
            "layers.py",
            "jax.nn.gelu(hidden)",
            'jax.nn.gelu(hidden) * (x @ weights["up"])',
            "more matrix work: dot 64×128×512 bf16 runs 2 times, 1 in the baseline",
        ),
    ],
    ids=["donation", "cast of a product", "cast of elementwise work", "cast of the result", "fusion", "doubled product"],
)
def test_a_regression_fails_and_names_its_cause(suite: pytest.Pytester, file: str, old: str, new: str, cause: str) -> None:
    run(suite, "--roofline-update").assert_outcomes(passed=1)
    run(suite).assert_outcomes(passed=1)
    edited(suite, file, (old, new))
    result = run(suite)
    result.assert_outcomes(failed=1)
    told = result.stdout.str().partition("short test summary info")[0]  # where CI is set, pytest repeats each failure whole below it
    assert told.count(cause) == 1  # though several conditions are broken
    assert ("more matrix work" in told) == cause.startswith("more matrix work")
    assert "baseline" in told
    assert "roofline_baselines/test_layer/test_layer.json" in told
    assert ">" in told  # the line of the test that failed, not one of the plugin
    assert "pytest_budgets.py" not in told


@pytest.mark.jax
def test_unrelated_changes_pass_and_leave_the_baseline_as_it_was(suite: pytest.Pytester) -> None:
    run(suite, "--roofline-update").assert_outcomes(passed=1)
    file = suite.path / "roofline_baselines" / "test_layer" / "test_layer.json"
    kept = file.read_text()
    # Other names and places, another order of the weights and of the batch.
    edited(suite, "layers.py", ("def layer", "# moved\n\n\ndef decoder_layer"), ("def norm", "def rms"), (" norm(x)", " rms(x)"))
    edited(
        suite,
        "test_layer.py",
        ("import layer\n", "import decoder_layer\n"),
        ("roofline_report(layer", "roofline_report(decoder_layer"),
        ('"key": array(WIDTH, WIDTH), "out": array(WIDTH, WIDTH), ', ""),
        ("array(4 * WIDTH, WIDTH)}", 'array(4 * WIDTH, WIDTH), "out": array(WIDTH, WIDTH), "key": array(WIDTH, WIDTH)}'),
    )
    run(suite).assert_outcomes(passed=1)
    run(suite, "--roofline-update").assert_outcomes(passed=1)
    assert file.read_text() == kept
    assert str(suite.path) not in kept


@pytest.mark.jax
def test_the_order_of_batch_dimensions_does_not_matter(pytester: pytest.Pytester) -> None:
    text = """
import jax, jax.numpy as jnp

def test_product(roofline_report):
    sizes = (8, 16, 64)
    made = roofline_report(lambda x, w: jax.nn.gelu(x @ w))(
        jax.ShapeDtypeStruct(sizes, jnp.bfloat16), jax.ShapeDtypeStruct((64, 32), jnp.bfloat16))
    made.check("flops == baseline", "hbm == baseline", "launches == baseline", "peak memory == baseline")
"""
    pytester.makepyfile(test_layer=text)
    run(pytester, "--roofline-update").assert_outcomes(passed=1)
    edited(pytester, "test_layer.py", ("(8, 16, 64)", "(16, 8, 64)"))
    run(pytester).assert_outcomes(passed=1)


@pytest.mark.jax
def test_the_example_of_the_page_runs(pytester: pytest.Pytester) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "pytest.md").read_text(), re.MULTILINE | re.DOTALL)
    pytester.makepyfile(test_layer=example)
    run(pytester, "--roofline-update").assert_outcomes(passed=1)
    run(pytester).assert_outcomes(passed=1)


@pytest.mark.jax
def test_what_a_check_needs_and_lacks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_layer="""
import jax.numpy as jnp
import pytest

@pytest.fixture
def report(roofline_report):
    return roofline_report(lambda x, w: x @ w)(jnp.zeros((4, 8)), jnp.zeros((8, 2)))

def test_absolute(report):
    assert report.check("flops = 128 FLOP").holds  # 2 · 4 · 8 · 2
    assert report.ops[0].flops == 128

def test_without_baseline(report):
    report.check("flops == baseline")

def test_measured(report):
    report.check("flops = 128 FLOP", "step < 3 ms")

def test_measured_and_broken(report):
    report.check("flops = 3 FLOP", "step < 3 ms")

def test_unreadable(report):
    report.check("flps = 3 FLOP")

@pytest.mark.parametrize("name", ["a/b", "a b"])
def test_named(report, name):
    report.check("launches <= baseline")
"""
    )
    result = run(pytester, "-rs")
    result.assert_outcomes(passed=1, failed=5, skipped=1)
    told = result.stdout.str()
    assert "needs the baseline roofline_baselines/test_layer/test_without_baseline.json, which does not exist" in told
    assert "write it with --roofline-update" in told
    assert "SKIPPED" in told
    assert "step < 3 ms: measured conditions need an accelerator" in told
    assert "at 'flps' (character 1): no such quantity; did you mean 'flops'" in told
    result.stdout.fnmatch_lines(["*flops = 3 FLOP: found 128 FLOP, allowed exactly 3 FLOP", "*op * now", "*dot 4×8×2 fp32 * 128 FLOP"])
    assert "pytest_budgets.py" not in told
    run(pytester, "--roofline-update", "-k", "named").assert_outcomes(passed=2, deselected=5)
    assert len(list((pytester.path / "roofline_baselines" / "test_layer").glob("test_named*.json"))) == 2


def test_the_entry_point_is_declared_and_adds_no_heavy_import() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert declared == {"roofline": "roofline.integrations.pytest_plugin"}
    code = (
        "import json, sys, pytest\n"
        "before = set(sys.modules)\n"
        "import roofline.integrations.pytest_plugin\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    names = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    # Only what `import roofline` itself needs: no numpy, no msgspec, no framework.
    assert {name.partition(".")[0] for name in names} <= {"roofline", "difflib"}
