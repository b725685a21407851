"""The command line: one module per command, imported when it is chosen, so that help is instant.

Data goes to standard output, messages to standard error. Exit status: 0 success, 1 error, 2 wrong usage, 3 a failed check.
"""

import gc
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ..errors import FormulaError, MissingExtra, RooflineError, UnitError, UsageError, did_you_mean
from .commands import COMMANDS, FORMER, FORMS, chosen, help_text, module_of
from .streams import discard_output, opened_streams

# Objects allocated between two runs of the cyclic garbage collector: with the default of 700 it takes a third of the time for 200,000 rows.
_BETWEEN_COLLECTIONS = 500_000
_REQUIRED = ("msgspec", "numpy")  # libraries that many modules import


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status. An error is one line."""
    words = list(sys.argv[1:] if argv is None else argv)
    opened_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # an encoding without µ prints a question mark instead of raising
    usual = gc.get_threshold()
    gc.set_threshold(_BETWEEN_COLLECTIONS, *usual[1:])
    try:
        status = _run(words)
        sys.stdout.flush()
        return status
    except (UsageError, UnitError, FormulaError) as error:  # those of an input file arrive as SourceError
        return _fail(error, 2)
    except OverflowError:
        return _fail(UsageError("a number is too large to compute with"), 2)
    except RooflineError as error:
        return _fail(error, 1)
    except ModuleNotFoundError as missing:
        if missing.name not in _REQUIRED:
            raise
        return _fail(MissingExtra(missing.name), 1)
    except BrokenPipeError:
        discard_output()
        return 0
    except OSError as error:
        where = error.filename or "cannot write to standard output"
        return _fail(RooflineError(f"{where}: {error.strerror or error}"), 1)
    except MemoryError:
        return _fail(RooflineError("out of memory; use a computer with more memory, or a smaller input"), 1)
    except RecursionError:
        return _fail(RooflineError("the input is nested too deeply"), 1)
    except KeyboardInterrupt:
        return 130
    finally:
        gc.set_threshold(*usual)


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(help_text())
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        from importlib.metadata import version

        sys.stdout.write(f"roofline {version('roofline')}\n")
        return 0
    name, rest = words[0], words[1:]
    if name in FORMER:
        sys.stderr.write(f"roofline: {name!r} will go; type: roofline {FORMER[name]}\n")
        module = module_of(name)
    elif name in COMMANDS:
        module, rest = chosen(name, rest)
    elif name in [form.word for form in FORMS[""]]:
        module, rest = chosen("", words)
    else:
        raise UsageError(f"no command named {name!r}{did_you_mean(name, COMMANDS) or '; commands: ' + ', '.join(COMMANDS)}")
    try:
        with _terminable():
            status: int = module.run(rest)
    except SystemExit as end:  # argparse exits after printing help
        status = end.code if isinstance(end.code, int) else 0
    return status


@contextmanager
def _terminable() -> Iterator[None]:
    """Ends a terminated command as Ctrl-C does, with its processes and temporary files."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _fail(error: RooflineError, status: int) -> int:
    with suppress(OSError):
        sys.stdout.flush()
    sys.stderr.write(f"roofline: {' '.join(str(error).splitlines())}\n")
    return status
