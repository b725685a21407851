"""The server for agents: the tools of `agent_tools` through the Model Context Protocol, over standard input and output."""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import MissingExtra, RooflineError
from .agent_tools import AgentTools, Answer

INSTRUCTIONS = (
    "roofline says how far an accelerator program is from what the hardware allows. Start with analyze on a profile, trace, program or "
    "report: its summary and findings say what to do first. what_if predicts changes, check tests conditions, compare explains a "
    "difference, op prices one operation, chips lists hardware. Amounts are in base units (s, B, FLOP); ops come by page (next_offset). "
    "Paths are below the folder that is served."
)
SCHEMA = "roofline://report.schema.json"


def make_server(root: str | Path) -> Any:
    """An MCP server whose tools read files below a folder."""
    try:
        module, errors = import_module("mcp.server.mcpserver"), import_module("mcp.server.mcpserver.exceptions")
    except ImportError:
        raise MissingExtra("mcp", "mcp") from None
    server = module.MCPServer("roofline", instructions=INSTRUCTIONS, version=version("roofline"), log_level="WARNING")
    for name, tool in AgentTools(root).tools().items():
        server.tool(name=name)(_with_errors(tool, errors.ToolError))

    def schema() -> str:
        """The JSON Schema of reports, which sections of analyze follow."""
        return files("roofline").joinpath("report.schema.json").read_text("utf-8")

    server.resource(SCHEMA, mime_type="application/schema+json")(schema)
    return server


def _with_errors(tool: Callable[..., Answer], kind: type[Exception]) -> Callable[..., Answer]:
    """A tool whose errors are one line."""

    @wraps(tool)
    def called(*args: Any, **kwargs: Any) -> Answer:
        try:
            return tool(*args, **kwargs)
        except (RooflineError, OSError) as error:
            message = str(error) if isinstance(error, RooflineError) else error.strerror or type(error).__name__
            raise kind(" ".join(message.splitlines())) from None
        except (MemoryError, RecursionError, OverflowError) as error:
            raise kind(f"the input is too large: {type(error).__name__}") from None

    return called
