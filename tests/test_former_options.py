"""Former options: they give what they gave, and the line that says what to type instead gives the same."""

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import roofline as rl
from roofline.cli import main
from roofline.cli.commands import module_of
from roofline.cli.options.named_values import Former
from roofline.formulas import lookup

DATA = Path(__file__).parent / "data"
PROGRAM = str(DATA / "hlo" / "options.hlo")
PROFILE = str(DATA / "h200" / "jax_fusion.xplane.pb")
Capture = pytest.CaptureFixture[str]

# A value that each former option takes, in quotes where it has several words; none where it takes none.
VALUES = {
    "--jobs": "1",
    "--cluster": "ftp://nowhere",  # refused at once
    "--cache": "kept",
    "--no-cache": "",
    "--max": "size=1GB",
    "--salvage": "",
    "--link": "dcn",
    "--topology": "ring",
    "--algorithm": "ring",
    "--sustained": "matrix=0.5",
    "--communication": "20%",
    "--overlap": "0",
    "--launches": "7",
    "--limit": "'no FMA'",
    "--step": "3",
    "--device": "0",
    "--host": "somewhere",
    "--no-infeed": "",
    "--name": "'^(loop|fusion)[./]?'",
    "--min-time": "'10 us'",
    "--category": "'loop fusion'",
    "--bound": "HBM",
    "--dtype": "float32",
    "--unit": "vector",
    "--program": "jit_step",
    "--module": "jit_step",
    "--unfold": "",
    "--depth": "1",
    "--fail-on": "'time +5%, no above-roof'",
}
COMMANDS = {
    "analyze": f"analyze {PROFILE}",
    "analyze of a program": f"analyze {PROGRAM} --chip v5e",
    "fusion_report": f"analyze --fusion {PROGRAM} --chip v5e",
    "hlo": f"hlo {PROGRAM} --chip v5e",
    "compare": f"compare {PROGRAM} {PROGRAM} --chip v5e",
    "check": f"check {PROFILE} --require 'mfu > 1%'",
    "validate": f"validate {PROFILE}",
    "whatif": f"whatif {PROFILE} no-idle",
    "place": "op --flops 1e12 --bytes 1e9 --chip h100",
    "op": "op matmul 64 64 64 --chip h100",
    "fuse": "op chain gelu add --shape 32x64 --chip h100",
    "capture": "capture -o run -- no-such-program",
    "serve": "serve --chip nonsense",
}


def former_options(name: str) -> Iterator[tuple[str, Former]]:
    module = name.partition(" ")[0]
    parser: argparse.ArgumentParser = module_of(module).parser(*((lookup("matmul"),) if module == "op" else ()))
    for action in parser._actions:
        if isinstance(action, Former):
            yield from ((option, action) for option in action.option_strings)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def answer(capsys: Capture, words: list[str]) -> tuple[int, str, str]:
    status = main(words)
    said = capsys.readouterr()
    return status, said.out, said.err


def same(capsys: Capture, line: str, former: str) -> None:
    """A command with former options gives the same as with what they say to type."""
    command, dashes, program = line.partition(" -- ")
    before = [*shlex.split(command), *(("--json", "-") if command.split()[0] not in ("serve", "capture") else ())]
    after = [dashes.strip(), program] if dashes else []
    status, out, err = answer(capsys, [*before, *shlex.split(former), *after])
    first, _, rest = err.removeprefix("roofline: 'hlo' will go; type: roofline analyze\n").partition("\n")
    assert re.match("roofline: --.* will go; type: --", first), (line, former, err)
    now = shlex.split(first.partition("type: ")[2])
    status_now, out_now, err_now = answer(capsys, [*before, *now, *after])
    assert (status_now, out_now) == (status, out), (line, former, now)
    assert err_now.endswith(rest)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_former_option_gives_what_it_says_to_type(name: str, capsys: Capture) -> None:
    options = list(former_options(name))
    assert options or name == "fuse"
    for option, _ in options:
        same(capsys, COMMANDS[name], f"{option} {VALUES[option]}")


def test_analyze_has_at_most_thirty_options_beside_help() -> None:
    shown = [action for action in module_of("analyze").parser()._actions if action.option_strings and action.help != argparse.SUPPRESS]
    assert len(shown) - 1 <= 30


def test_a_former_option_leaves_the_value_of_the_present_one(capsys: Capture) -> None:
    by_scope = answer(capsys, ["analyze", "sample:train", "--by", "scope"])
    assert answer(capsys, ["analyze", "sample:train", "--by", "scope", "--unfold"]) == (
        *by_scope[:2],
        "roofline: --unfold will go; leave it out\n" + by_scope[2],
    )


def test_every_command_with_former_options_is_tried() -> None:
    everything = ("analyze", "capture", "check", "compare", "validate", "whatif", "serve", "mcp", "explain", "chips")
    having = {name for name in everything if list(former_options(name))}
    assert having <= COMMANDS.keys()


@pytest.mark.slow
def test_several_former_options_become_one_filter_and_one_list_of_values(capsys: Capture) -> None:
    line = "analyze sample:train"
    lines = {
        "--category matmul --category 'loop fusion' --min-time '1 ms'": 'time>=1ms (category="matmul" or category="loop fusion")',
        r"--name 'a/b[/\]]|\/' --program none": r"""name:/a\/b[\/\]]|\//""",
        "--jobs 1 --no-cache --max rows=1M --max values=2M": "--read jobs=1 cache=no max-rows=1M max-values=2M",
        "--sustained hbm=0.5 --sustained matrix=0.7 --overlap 0": "sustained-hbm=0.5 sustained-matrix=0.7",
    }
    for former, part in lines.items():
        same(capsys, line, former)
        assert part in answer(capsys, [*line.split(), *shlex.split(former)])[2]


def test_what_former_filters_keep_is_what_they_always_kept(capsys: Capture) -> None:
    ops = rl.analyze("sample:train").ops
    for former, kept in {
        "--name 'dot|convert'": [op.id for op in ops if "dot" in op.name + op.label or "convert" in op.name + op.label],
        "--min-time '1 ms'": [op.id for op in ops if (op.time_s or 0) >= 0.001],
        "--dtype float32 --bound HBM": [op.id for op in ops if op.dtype == "fp32" and op.bound == "hbm"],
        "--unit vector": [op.id for op in ops if op.unit == "vector"],
    }.items():
        assert 0 < len(kept) < len(ops)
        status, out, _ = answer(capsys, ["analyze", "sample:train", "--csv", "-", *shlex.split(former)])
        assert status == 0
        assert len(out.splitlines()) - 1 == len(kept), former
