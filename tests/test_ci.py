"""The workflow on the page about CI: its steps run here, one after the other, as a runner does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.jax
PAGE = (Path(__file__).parent.parent / "docs" / "ci.md").read_text()
MODEL = "import jax\nimport jax.numpy as jnp\n\n\ndef layer(x, w):\n    return jax.nn.gelu(x @ w)\n"
WIDER = MODEL.replace("x @ w", "x.astype(jnp.float32) @ w.astype(jnp.float32)")
# What the runner has installed: the command itself, and `pip` and `gh`, which only say how they were called.
PROGRAMS = {
    "python": f'exec {sys.executable} "$@"',
    "roofline": f'exec {sys.executable} -m roofline "$@"',
    "pip": 'echo "pip $*" >> "$CALLS"',
    "gh": 'echo "gh $*" >> "$CALLS"; for word in "$@"; do [ -f "$word" ] && cat "$word" > "$COMMENT"; done; true',
}


def block(kind: str) -> tuple[str, str]:
    """The file that a block of the page is, and its name, which its first line gives."""
    (text,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    first, _, rest = text.partition("\n")
    return first.removeprefix("# "), rest


def run_steps(folder: Path, before: str, after: str) -> dict[str, int]:
    """The exit status of every step that is a script; a step after a failed one runs only if it asks for it."""
    jax_script, code = block("python")
    for side, model in (("before", before), ("after", after)):
        (folder / side / "perf").mkdir(parents=True)
        (folder / side / "model.py").write_text(model)
        (folder / side / jax_script).write_text(code)
    programs = folder / "bin"
    programs.mkdir()
    for name, body in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    named = {"GITHUB_STEP_SUMMARY": "summary.md", "CALLS": "calls.txt", "COMMENT": "posted.md"}
    around = {
        **os.environ,
        **{name: str(folder / file) for name, file in named.items()},
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "ROOFLINE_CHIP": "",
        "JAX_PLATFORMS": "cpu",
    }
    path = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    found: dict[str, int] = {}
    for step in yaml.safe_load(block("yaml")[1])["jobs"]["compare"]["steps"]:
        if "run" not in step or (any(found.values()) and step.get("if") != "always()"):
            continue
        script = re.sub(r"\$\{\{ *([\w.]+) *\}\}", r"<\1>", step["run"]).replace("PYTHONPATH=.", f"PYTHONPATH=.:{path}")
        ran = subprocess.run(["bash", "-e", "-c", script], cwd=folder, env={**around, "PYTHONPATH": path}, capture_output=True, text=True)
        found[step["name"]] = ran.returncode
    return found


@pytest.mark.slow
def test_a_change_that_keeps_its_limits_passes_with_a_comment(tmp_path: Path) -> None:
    assert run_steps(tmp_path, MODEL, MODEL.replace("layer(x, w)", "layer(rows, w)").replace("x @ w", "rows @ w")) == {
        "Install": 0,
        "Analyze both": 0,
        "Compare": 0,
        "Comment": 0,
    }
    assert (tmp_path / "posted.md").read_text().startswith("**Minimum time")
    assert "✅ All limits hold." in (tmp_path / "summary.md").read_text()
    calls = (tmp_path / "calls.txt").read_text()
    assert "pip install roofline[jax]" in calls
    assert "gh pr comment <github.event.pull_request.number>" in calls


@pytest.mark.slow
def test_a_change_that_breaks_one_fails_and_is_commented_all_the_same(tmp_path: Path) -> None:
    assert run_steps(tmp_path, MODEL, WIDER) == {"Install": 0, "Analyze both": 0, "Compare": 3, "Comment": 0}
    posted = (tmp_path / "posted.md").read_text()
    assert "### Limits broken" in posted
    assert "number format: matrix work runs in matrix/tf32" in posted.replace("\\", "")


def test_the_workflow_is_one(tmp_path: Path) -> None:
    file = tmp_path / "performance.yml"
    file.write_text(block("yaml")[1])
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(file)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout
