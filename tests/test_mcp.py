"""Tools for agents: what they answer, what they refuse, and the server that the SDK's client calls."""

import ast
import json
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from inspect import signature
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from every import every
from own_thread import in_own_thread
from roofline.cli import main
from roofline.errors import MissingExtra, UsageError
from roofline.integrations.agent_tools import MOST, AgentTools
from roofline.integrations.mcp_server import INSTRUCTIONS, SCHEMA, make_server

TABLE = "name,scope,flops,hbm,time\n" + "".join(f"op{number},layer{number},1e9,{number + 1}e6,{number + 10} us\n" for number in range(30))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of files, beside a secret."""
    served = tmp_path / "runs"
    served.mkdir()
    (served / "ops.csv").write_text(TABLE)
    (served / "slower.csv").write_text(TABLE.replace("1e9,30e6,39 us", "1e9,60e6,80 us"))
    (tmp_path / "secret.csv").write_text(TABLE)
    assert main(["analyze", str(served / "ops.csv"), "--chip", "h100", "--json", str(served / "report.json")]) == 0
    assert main(["check", str(served / "ops.csv"), "--chip", "h100", "--baseline", str(served / "base.json"), "--update"]) == 0
    return served


@pytest.fixture
def tools(folder: Path) -> AgentTools:
    return AgentTools(folder)


def test_an_answer_is_short_and_the_rest_comes_by_page(tools: AgentTools) -> None:
    first = tools.analyze("ops.csv", chip="h100")
    assert first["summary"]
    assert (len(first["ops"]), first["total"], first["next_offset"]) == (10, 30, 10)
    assert len(json.dumps(first)) < 6000
    seen = [op["op"] for op in first["ops"]]
    while (start := first["next_offset"]) is not None:
        first = tools.analyze("ops.csv", chip="h100", offset=start)
        seen += [op["op"] for op in first["ops"]]
    assert len(set(seen)) == 30
    assert len(tools.analyze("ops.csv", limit=10 * MOST)["ops"]) == 30
    assert [op["op"] for op in tools.analyze("ops.csv", filter="time>38us")["ops"]] == ["layer29  op29"]


def test_a_section_is_a_part_of_the_report_as_it_is(tools: AgentTools, folder: Path) -> None:
    kept = json.loads((folder / "report.json").read_text())
    assert tools.analyze("report.json", section="ops", limit=30)["ops"] == kept["ops"]
    assert tools.analyze("report.json", section="machine") == {"machine": kept["machine"]}
    with pytest.raises(UsageError, match="did you mean 'points'"):
        tools.analyze("report.json", section="pionts")


def test_check_compare_and_what_if_answer_with_values(tools: AgentTools) -> None:
    found = tools.check("ops.csv", ["time < 1 ms", "hbm <= 1.1x baseline", "flops < 1 GFLOP"], baseline="base.json", chip="h100")
    assert found["holds"] is False
    assert [one["holds"] for one in found["conditions"]] == [True, True, False]
    changed = tools.compare("ops.csv", "slower.csv", limits="time +1%, flops +0%", chip="h100")
    assert [one["holds"] for one in changed["limits"]] == [False, True]
    assert (changed["ops"][0]["op"], changed["ops"][0]["reasons"][0]) == ("layer29: op29", "more bytes (+100%)")
    assert tools.check("report.json", ["expected step on b200 < 1 s"])["holds"] is True
    predicted = tools.what_if("sample:train", "kernel attention=flash")
    assert predicted["after_s"] < predicted["before_s"]


def test_operations_and_chips_are_listed_and_priced(tools: AgentTools) -> None:
    priced = tools.op("matmul", [64, 128, 256], {"dtype": "bf16"}, chip="h100")
    assert priced["flops"] == pytest.approx(2 * 64 * 128 * 256, rel=1e-3)  # four digits
    assert any(one["use"].startswith("matmul ") for one in tools.op()["formulas"])
    assert "dtype" in tools.op("matmul")["options"]
    assert "h100-sxm" in tools.chips()["chips"]
    assert {"resource": "hbm", "rate": 3.35e12, "per": "B/s"}.items() <= next(
        one.items() for one in tools.chips("h100")["rates"] if one["resource"] == "hbm"
    )


@pytest.fixture
def links(folder: Path) -> None:
    (folder / "link.csv").symlink_to(folder.parent / "secret.csv")
    (folder / "inside.csv").symlink_to(folder / "ops.csv")
    (folder / "run").mkdir()
    (folder / "run" / "host.csv").symlink_to(folder.parent / "secret.csv")
    (folder / "out").symlink_to(folder.parent)
    os.mkfifo(folder / "pipe")


OUTSIDE = [
    "../secret.csv",
    "link.csv",
    "run",
    "out/secret.csv",
    "/etc/hosts",
    "gs://bucket/run",
    "https://host/run.json",
    "-",
    "a\0b",
    "pipe",
]


@pytest.mark.usefixtures("links")
@every("name", OUTSIDE)
def test_nothing_outside_of_the_folder_is_read(name: str, tools: AgentTools, folder: Path) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: tools.analyze(name),
        lambda: tools.what_if(name, "graph"),
        lambda: tools.check(name, ["time < 1 s"]),
        lambda: tools.check("ops.csv", ["time < 1 s"], baseline=name),
        lambda: tools.compare("ops.csv", name),
        lambda: tools.compare(name, "ops.csv"),
    ]
    for call in calls:
        with pytest.raises(UsageError, match=r"outside of|only files below|not a file") as error:
            call()
        assert str(folder.parent) not in str(error.value).replace(name, "")
    assert tools.analyze("inside.csv")["total"] == 30
    assert tools.analyze(str(folder / "ops.csv"))["total"] == 30


def test_chips_are_names_and_never_files(tools: AgentTools, folder: Path) -> None:
    (folder / "chip.toml").write_text("extends = '/etc/hosts'")
    for call in (
        lambda: tools.analyze("ops.csv", chip="chip.toml"),
        lambda: tools.chips("../chip.toml"),
        lambda: tools.op("matmul", [1, 1, 1], chip="/etc/hosts"),
        lambda: tools.what_if("sample:train", "chip /etc/hosts"),
        lambda: tools.check("ops.csv", ["expected step on /etc/hosts < 1 s"]),
        lambda: tools.compare("ops.csv", "ops.csv", limits="expected step on ./chip.toml < 1 s"),
    ):
        with pytest.raises(UsageError, match="machine files are not read here"):
            call()


def test_a_report_does_not_lead_to_the_file_that_it_was_made_from(tools: AgentTools, folder: Path) -> None:
    text = (folder / "report.json").read_text()
    names = json.loads(text)["input"]["files"]
    (folder / "report.json").write_text(text.replace(json.dumps(names[0]), json.dumps(str(folder.parent / "secret.csv"))))
    (folder.parent / "secret.csv").write_text("not a table\n")  # which an attempt to read it would say
    assert tools.check("report.json", ["expected step on b200 < 1 s"])["holds"] is True


def test_without_the_library_the_command_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    with pytest.raises(MissingExtra, match=r"pip install 'roofline\[mcp\]'"):
        make_server(tmp_path)
    assert main(["mcp", "--folder", str(tmp_path / "nowhere")]) == 2


def test_the_page_for_agents_names_commands_and_tools_that_there_are(tools: AgentTools) -> None:
    page = (Path(__file__).parent.parent / "docs" / "agents.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[2:4]] for line in page.splitlines() if line.startswith("| ") and "`roofline " in line]
    assert len(rows) >= 10
    for command, tool in rows:
        name, *words = shlex.split(command.strip("`"))[1:]
        named = [word for word in words if word.startswith("--")]
        if name == "op":
            name = f"op {'--flops 1' if words[0].startswith('-') else words[0]}{' --free m' if '--free' in words else ''}"
        printed = StringIO()
        with redirect_stdout(printed):
            main([*name.split(), "--help"])
        assert all(option in printed.getvalue() for option in named), command
        if tool:
            called = ast.parse(tool.strip("`"), mode="eval").body
            assert isinstance(called, ast.Call)
            assert isinstance(called.func, ast.Name)
            there = signature(tools.tools()[called.func.id])
            there.bind(*called.args, **{one.arg: one.value for one in called.keywords if one.arg})


CALLS: dict[str, dict[str, Any]] = {
    "analyze": {"path": "ops.csv", "chip": "h100", "limit": 3},
    "what_if": {"path": "sample:train", "changes": "graph"},
    "check": {"path": "ops.csv", "conditions": ["time < 1 s"]},
    "compare": {"before": "ops.csv", "after": "slower.csv"},
    "op": {"formula": "matmul", "sizes": [64, 64, 64]},
    "chips": {"name": "h100"},
}


def test_the_sdks_client_lists_and_calls_every_tool(folder: Path) -> None:
    pytest.importorskip("mcp.server.mcpserver")
    mcp = import_module("mcp")
    anyio = pytest.importorskip("anyio")

    async def talk() -> None:
        async with mcp.Client(make_server(folder)) as client:
            assert client.instructions == INSTRUCTIONS
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(listed) == set(CALLS)
            assert all(tool.description and tool.input_schema["type"] == "object" for tool in listed.values())
            for name, arguments in CALLS.items():
                answer = await client.call_tool(name, arguments)
                assert not answer.is_error, answer
                assert json.loads(answer.content[0].text)
            refused = await client.call_tool("analyze", {"path": "../secret.csv"})
            assert refused.is_error
            assert "only files below it are read here" in refused.content[0].text
            assert "\n" not in refused.content[0].text
            assert (await client.call_tool("check", {"path": "ops.csv", "conditions": ["tme < 1 s"]})).is_error
            schema = await client.read_resource(SCHEMA)
            assert json.loads(schema.contents[0].text)["title"] == "roofline.report/1"

    in_own_thread(lambda: anyio.run(talk))


def test_the_server_speaks_over_standard_input_and_output(folder: Path) -> None:
    pytest.importorskip("mcp.server.mcpserver")
    mcp = import_module("mcp")
    anyio = pytest.importorskip("anyio")
    from mcp.client.stdio import StdioServerParameters, stdio_client

    path = os.pathsep.join(filter(None, sys.path))
    how = StdioServerParameters(
        command=sys.executable, args=["-m", "roofline", "mcp"], cwd=str(folder), env={**os.environ, "PYTHONPATH": path}
    )

    async def talk() -> None:
        async with mcp.Client(stdio_client(how)) as client:
            answer = await client.call_tool("analyze", CALLS["analyze"])
            assert json.loads(answer.content[0].text)["total"] == 30

    in_own_thread(lambda: anyio.run(talk))


def test_the_minimum_is_the_one_of_the_sentence(tools: AgentTools) -> None:
    found = tools.analyze("sample:train", limit=1)
    assert f"{found['minimum_s'] * 1e3:.1f} ms is its minimum" in found["summary"]
    assert found["minimum_s"] + sum(found["lost_s"].values()) == pytest.approx(found["time_s"], rel=1e-3)


def test_savings_are_of_the_time_that_the_answer_gives(tools: AgentTools) -> None:
    found = tools.analyze("sample:train", limit=1)  # 6 steps of 28.2 ms; the first finding saves 4.0 ms of each
    assert found["findings"][0]["saving_s"] == pytest.approx(4.0e-3, abs=5e-5)  # as the screen and what_if have it
    assert "(28.2 ms to 24.2 ms)" in found["summary"]
