"""The commands: their names and summaries, and the module of each."""

from importlib import import_module
from typing import Any

# name -> one line of help; the module is the name with underscores
COMMANDS = {
    "analyze": "compare a profile, program or op table with a chip's limits: bounds, efficiency, what to do next",
    "capture": "run a JAX or PyTorch program under its profiler and analyze the profile",
    "op": "cost and minimum time of one operation from its shapes",
    "place": "place given FLOP, bytes and a measured time on a chip's roofline",
    "cross": "find the size at which an operation becomes compute-bound",
    "fuse": "compare every way to fuse a chain of ops into kernels, and find the fastest",
    "hlo": "cost of an XLA program by scope, source location or category",
    "fusion-report": "what the compiler left unfused in a program, why, and what that costs",
    "whatif": "predict a profile or program after changes: batch, number format, kernels, chip",
    "explain": "what a kind of finding means, and what to do about it",
    "validate": "check that counts, peaks and measured times of a program agree",
    "compare": "compare two reports op by op",
    "check": "check a profile, program or function against a budget",
    "jax-compare": "compare our FLOP and byte counts with XLA's cost analysis of a JAX function",
    "torch-compare": "compare our FLOP count of a PyTorch function with FlopCounterMode and other counters",
    "chips": "list, show and compare chips; check a machine file",
    "measure": "measure this computer's GPU or CPU and save the result as a machine file",
    "demo": "measure this computer's CPU for a few seconds, run a small program on it and open its page",
    "plot": "draw a figure",
    "cache": "show or clear the profile cache",
    "mcp": "serve analyses to agents through the Model Context Protocol",
    "serve": "browse the reports of local runs in a web browser",
    "completion": "print a script that completes commands and options in bash, zsh or fish",
}
ALIASES = {"fusion": "fusion-report"}  # former names, not listed


def module_of(name: str) -> Any:
    """The module of a command, with its `run`."""
    return import_module(f".{name.replace('-', '_')}", __package__)


def help_text() -> str:
    """What `roofline --help` prints."""
    widest = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(widest)}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "roofline: how close a program runs to its chip's limits, what holds it back, and what to do next.",
            "",
            "usage: roofline COMMAND [arguments]   (details: roofline COMMAND --help)",
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
