"""The command line: one module a command, imported when it is chosen, so that help is instant.

Standard output is data, standard error is talk. Exit 0 is fine, 1 our error, 2 usage, 3 a check that failed.
"""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from ..errors import RooflineError, UsageError, did_you_mean

# name -> (module, one line of help)
COMMANDS = {
    "analyze": ("analyze", "hold a program or a file of ops against a machine: bounds, efficiency, what to do next"),
    "capture": ("capture", "run a JAX program under the profiler, and analyse what it did"),
    "op": ("op", "price one operation from its shapes: roofline op matmul 8192 8192 8192 --chip v5e"),
    "place": ("place", "put FLOP, bytes and a time on a machine's roofline"),
    "cross": ("cross", "find the size at which a formula becomes compute bound"),
    "fuse": ("fuse", "price a chain of ops in every grouping into kernels, and find the best"),
    "hlo": ("hlo", "what a compiled XLA program costs, by scope, source line or category"),
    "fusion": ("fusion", "what a program did not fuse, why, and what that costs"),
    "compare": ("compare", "two reports, op by op"),
    "jax-compare": ("jax_compare", "theory beside XLA's cost analysis of a JAX function, instruction by instruction"),
    "chips": ("chips", "the machines: list, show, compare, check a machine file"),
    "plot": ("plot", "draw a figure"),
    "cache": ("cache", "what is kept of runs that were read, and how to forget it"),
    "serve": ("serve", "the pages of runs, live in a browser on this machine"),
    "completion": ("completion", "print a script that completes commands and options in bash, zsh or fish"),
}
_USAGE = "usage: roofline COMMAND [arguments]   (roofline COMMAND --help says more)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    return _checked(list(sys.argv[1:] if argv is None else argv))


def _checked(words: list[str]) -> int:
    """The exit status of a command; what is wrong with it is one line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # an encoding without µ shows a question mark, and no traceback
    try:
        return _run(words)
    except UsageError as error:
        return _fail(error, 2)
    except RooflineError as error:
        return _fail(error, 1)
    except BrokenPipeError:
        # The reader of our output has gone, as `| head` does; leave quietly.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        sys.stderr.write(f"roofline: standard output cannot be written: {error.strerror}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(help_text())
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        from importlib.metadata import version

        sys.stdout.write(f"roofline {version('roofline')}\n")
        return 0
    name, *rest = words
    if name not in COMMANDS:
        raise UsageError(f"no command named {name!r}{did_you_mean(name, COMMANDS) or '; commands: ' + ', '.join(COMMANDS)}")
    command = import_module(f".{COMMANDS[name][0]}", __name__)
    status: int = command.run(rest)
    sys.stdout.flush()
    return status


def help_text() -> str:
    """What `roofline --help` prints."""
    widest = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(widest)}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "roofline: how far an accelerator program is from what the hardware allows, why, and what to do next.",
            "",
            _USAGE,
            "",
            *lines,
            "",
            "examples:",
            "  roofline op matmul 8192 8192 8192 --chip v5e --dtype bf16 --weights int8",
            "  roofline analyze ops.csv --chip h200 -o roofline.svg",
            "  roofline hlo program.hlo --by scope --chip h200",
            "  roofline chips --compare v5p,v6e,h100",
            "",
            "roofline --version prints the version.",
            "",
        ]
    )


def _fail(error: RooflineError, status: int) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"roofline: {error}\n")
    return status
