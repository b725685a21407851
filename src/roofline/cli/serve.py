"""`roofline serve`: browse the reports of local runs in a web browser."""

import argparse
import sys
from collections.abc import Sequence

from ..errors import MissingExtra
from ..sources.processes import cores
from ..sources.samples import sample_or_path
from .options import Parser, at_least, chosen_machine, machine_options
from .output import talk

MOST_WORKERS = 4  # at a time unless asked for: each may need the memory of a large profile


def parser() -> Parser:
    made = Parser(
        "serve",
        "Browse the reports of local runs in a web browser.\n"
        "Lists everything found under the paths: profiles, TensorBoard log folders, HLO dumps, Nsight Compute CSVs, op tables, reports.\n"
        "A page reloads when its profile changes. Pages are also available as JSON: /index.json, /run/ID.json, /compare/A/B.json.\n"
        "Listens on 127.0.0.1 only; from another computer use: ssh -L 7663:127.0.0.1:7663 HOST.",
        "roofline serve logs/ --open",
    )
    made.add_argument("path", nargs="*", default=["."], metavar="PATH", help="files and folders to list (default: the current folder)")
    made.add_argument(
        "--port", type=at_least(0), metavar="N", help="port to listen on; 0 picks any (default: the first free port from 7663)"
    )
    made.add_argument("--workers", type=at_least(1), metavar="N", help="profiles to read in parallel (default: half the cores, at most 4)")
    made.add_argument("--open", action="store_true", help="open the page in a browser")
    machine_options(made)
    return made


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    try:
        from ..serve import application
        from ..serve.listen import LOOPBACK, bind, listen
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error.name).partition(".")[0], "serve") from None

    if args.chip or args.set:
        chosen_machine(args)  # one that does not exist is refused before anything is served
    listening = bind(args.port)
    port = listening.getsockname()[1]
    workers = args.workers or min(MOST_WORKERS, max(1, cores() // 2))
    app = application([sample_or_path(path) for path in args.path], worker=_worker(args), port=port, workers=workers)
    address = f"http://{LOOPBACK}:{port}/"
    talk(f"serving {', '.join(args.path)} at {address} (stop with Ctrl-C)")
    if args.open:
        import webbrowser

        webbrowser.open(address)
    listen(app, listening)
    return 0


def _worker(args: argparse.Namespace) -> list[str]:
    """The command that reads and analyses, told about the same machine."""
    words = [sys.executable, "-m", "roofline.cli.serve_worker"]
    if args.chip:
        words += ["--chip", args.chip]
    for setting in args.set:
        words += ["--set", setting]
    return [*words, "--per-device"] if args.per_device else words
