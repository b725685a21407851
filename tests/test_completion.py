"""Completion in shells: what each word may become, asked of the function and of the scripts in real shells."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from every import every
from roofline.cli.forms.completion import SHELLS, completions


@every(
    ("words", "found"),
    [
        ("ca", ["capture"]),
        ("--v", ["--version"]),
        ("analyze --b", ["--by"]),
        ("analyze --by s", ["scope", "step"]),
        ("analyze run --stragglers h", ["host"]),
        ("analyze run --details --per", ["--per-step", "--per-device"]),  # --details takes no value
        ("analyze run --read jobs=4 ca", ["cache="]),
        ("analyze run --read jobs=4 --read ", ["jobs=", "cluster=", "cache=", "max-", "salvage"]),
        ("analyze run --correct sus", ["sustained=", "sustained-"]),
        ("analyze --read jobs=4 run ca", []),
        ("analyze run --chip h2", ["h20", "h20-3e", "h200-nvl", "h200-sxm"]),
        ("op --flops 1T --unit v", ["vector"]),
        ("op matm", ["matmul"]),
        ("op matmul --we", ["--weights"]),
        ("op matmul --weights int4", ["int4"]),
        ("op softm", ["softmax"]),
        ("op matmul --free m --k", ["--k"]),
        ("op chain layernorm dro", ["dropout"]),
        ("chips b30", ["b300"]),
        ("plot di", ["distance"]),
        ("plot sizes softmax --ro", ["--rows"]),
        ("plot fusion dro", ["dropout"]),
        ("capture -- python --", []),  # the options of another program
        ("op matmull --", []),
        ("plots --", []),
        ("analyze ru", []),  # files, which the shell knows
    ],
)
def test_a_word_is_completed(words: str, found: list[str]) -> None:
    assert completions(words.split(" ")) == found


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds this roofline."""
    program = tmp_path / "roofline"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m roofline "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "dumb"}


def run_in(name: str, script: str, environment: dict[str, str]) -> list[str]:
    if sys.platform == "win32" or shutil.which(name) is None:
        pytest.skip(f"no {name}")
    words = {"bash": ["bash", "--norc", "-u"], "zsh": ["zsh", "-f"], "fish": ["fish", "--no-config"]}[name]
    run = subprocess.run([*words, "-c", script], env=environment, capture_output=True, text=True)
    assert run.stderr == ""
    return run.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (["anal"], ["analyze"]),
        (["analyze", "--by", "s"], ["scope", "step"]),
        (["op", "matmul", "--chip", "h2"], ["h20", "h20-3e", "h200-nvl", "h200-sxm"]),
        (["compare", ""], []),
    ],
)
def test_bash_completes(line: list[str], found: list[str], shell: dict[str, str]) -> None:
    typed = " ".join(map(shlex.quote, ["roofline", *line, "after the cursor"]))
    answer = 'for one in ${COMPREPLY[@]+"${COMPREPLY[@]}"}; do echo "$one"; done'
    script = f"{SHELLS['bash']}\nCOMP_WORDS=({typed}) COMP_CWORD={len(line)}\n_roofline\n{answer}"
    assert run_in("bash", script, shell) == found


def test_zsh_completes(shell: dict[str, str]) -> None:
    # compadd works inside the line editor alone; what it would be given is shown instead.
    shown = "compdef() { :; }\ncompadd() { print -l $found; }\n_files() { print files; }\n"
    for line, found in (("analyze --by s", ["scope", "step"]), ("anal", ["analyze"]), ("hlo ''", ["files"])):
        typed = f"words=(roofline {line}) CURRENT=$#words\n"
        assert run_in("zsh", f"{shown}{SHELLS['zsh']}{typed}_roofline", shell) == found


def test_fish_completes(shell: dict[str, str]) -> None:
    for line, found in (("analyze --by s", ["scope", "step"]), ("anal", ["analyze"]), ("hlo roof", ["roofline"])):
        script = f"{SHELLS['fish']}\ncd $HOME\ncomplete -C 'roofline {line}'"
        assert [word.split("\t")[0] for word in run_in("fish", script, shell)] == found


def test_plans_complete_models_and_chips() -> None:
    assert "llama3-405b" in completions(["plan", "llama3"])
    assert completions(["plan", "llama3-8b", "gb2"]) == ["gb200"]
    assert "--recompute" in completions(["plan", "llama3-8b", "gb200", "--re"])
