"""`roofline serve`: browse the reports of local runs in a web browser."""

import os
import webbrowser
from collections.abc import Sequence
from functools import partial

from ..errors import MissingExtra, UnitError, UsageError
from ..files.input_limits import limits as input_limits
from ..sources.cores import cores
from ..sources.samples import sample_or_path
from ..units import parse
from .options import Parser, at_least, chosen_machine, machine_options
from .output import write_message
from .reading import read_options

MOST_WORKERS = 4  # default limit of workers: each may need the memory of a large profile
JOB_TIME_S = 600
LEAST_MEMORY = parse("1 GB", "B")  # a smaller limit would refuse ordinary profiles


def parser() -> Parser:
    command = Parser(
        "serve",
        "Browse the reports of local runs in a web browser.\n"
        "Lists everything found under the paths: profiles, TensorBoard log folders, HLO dumps, Nsight Compute CSVs, op tables, reports.\n"
        "A page reloads when its profile changes. Pages are also available as JSON: /index.json, /run/ID.json, /compare/A/B.json.\n"
        "Listens on 127.0.0.1 only; from another computer use: ssh -L 7663:127.0.0.1:7663 HOST.\n"
        "The address contains a token, without which nothing is shown: other users of this computer cannot see your runs.",
        "roofline serve logs/ --open",
    )
    command.add_argument("path", nargs="*", default=["."], metavar="PATH", help="files and folders to list (default: the current folder)")
    command.add_argument(
        "--port", type=at_least(0), metavar="N", help="port to listen on; 0 picks any (default: the first free port from 7663)"
    )
    command.add_argument("--workers", type=at_least(1), metavar="N", help="profiles to read in parallel (default: half the cores, 2 to 4)")
    command.add_argument(
        "--job-time", metavar="TIME", default=f"{JOB_TIME_S} s", help='most time for reading one run: "30 min" (default: %(default)s)'
    )
    command.add_argument(
        "--job-memory", metavar="SIZE", help='most memory for reading one run: "16 GB" (default: half of the memory, shared by the workers)'
    )
    read_options(command, files=False)
    command.add_argument("--follow", action="store_true", help="follow symbolic links that lead out of the folders")
    command.add_argument("--no-token", action="store_true", help="no token in the address: any user of this computer can see the runs")
    command.add_argument("--open", action="store_true", help="open the page in a browser")
    machine_options(command)
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    try:
        from ..serve import application
        from ..serve.guard import new_token
        from ..serve.jobs import Limits
        from ..serve.listen import LOOPBACK, bind, listen
        from .served_runs import compare_reports, read_run
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error.name).partition(".")[0], "serve") from None

    if args.chip or args.set:
        chosen_machine(args)  # raises an error for an unknown chip before the server starts
    workers = args.workers or min(MOST_WORKERS, max(2, cores() // 2))
    limits = Limits(time_s=_amount("--job-time", args.job_time, "s"), memory=_memory(args.job_memory, workers))
    listening = bind(args.port)
    port = listening.getsockname()[1]
    token = None if args.no_token else new_token()
    app = application(
        [sample_or_path(path) for path in args.path],
        read_run=partial(read_run, args, input_limits()),
        compare_reports=compare_reports,
        port=port,
        workers=workers,
        limits=limits,
        follow=args.follow,
        token=token,
    )
    address = f"http://{LOOPBACK}:{port}/"
    write_message(f"serving {', '.join(args.path)} at {address}{f'?token={token}' if token else ''} (stop with Ctrl-C)")
    if args.open:
        webbrowser.open(address if args.no_token else f"{address}?token={app.ticket()}")
    listen(app, listening)
    return 0


def _amount(option: str, text: str, dimension: str) -> float:
    """A quantity above zero."""
    try:
        amount = parse(text, dimension)
    except UnitError as error:
        raise UsageError(f"{option}: {error}") from None
    if not 0 < amount < float("inf"):
        raise UsageError(f"{option}: {text!r} is not above zero")
    return amount


def _memory(text: str | None, workers: int) -> int | None:
    """The memory limit in bytes; by default a share of half of this computer's memory, where that is known."""
    if text is not None:
        return int(_amount("--job-memory", text, "B"))
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None
    return int(max(LEAST_MEMORY, there / 2 / workers))
