"""`roofline mcp`: serve analyses to agents through the Model Context Protocol."""

import os
from collections.abc import Sequence

from ..errors import UsageError
from ..integrations.mcp_server import make_server
from .options import Parser


def parser() -> Parser:
    command = Parser(
        "mcp",
        "Serve analyses to agents through the Model Context Protocol, over standard input and output: the tools analyze, what_if, check,\n"
        "compare, op and chips. It reads only files below one folder, and writes nothing. Needs: pip install 'roofline[mcp]'.",
        "claude mcp add roofline -- roofline mcp --folder runs",
    )
    command.add_argument("--folder", default=".", metavar="FOLDER", help="the folder whose files may be read (default: the current one)")
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    if not os.path.isdir(args.folder):
        raise UsageError(f"mcp: --folder {args.folder}: not a folder")
    make_server(args.folder).run("stdio")
    return 0
