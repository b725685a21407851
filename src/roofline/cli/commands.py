"""The commands: their names and summaries, the module of each, and the names that they had before."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

# group of `--help` -> name -> one line of help; the module is the name with underscores
GROUPS: Mapping[str, Mapping[str, str]] = {
    "measure a program": {
        "capture": "run a JAX or PyTorch program under its profiler and analyze the profile",
        "analyze": "compare a profile, program or op table with a chip's limits: bounds, efficiency, what to do next",
        "compare": "compare two reports op by op",
        "check": "check a profile, program or function against a budget",
        "validate": "check that counts, peaks and measured times of a program agree",
    },
    "without running it": {
        "op": "cost and minimum time of an operation from its shapes, of FLOP and bytes, or of a chain of ops",
        "whatif": "predict a profile or program after changes: batch, number format, kernels, chip",
        "plan": "which mesh, microbatch and format to train a model with on some chips: step time and memory, ranked",
        "blocks": "which block sizes a Triton or Pallas kernel should have on a chip: predicted times, ranked, with what limits each",
    },
    "hardware": {
        "chips": "list, show, compare and measure chips; check a machine file",
    },
    "views": {
        "explain": "what a kind of finding means, and what to do about it",
        "plot": "draw a figure",
        "serve": "browse the reports of local runs in a web browser",
        "mcp": "serve analyses to agents through the Model Context Protocol",
    },
}
COMMANDS: Mapping[str, str] = {name: summary for group in GROUPS.values() for name, summary in group.items()}


class Form(NamedTuple):
    """A form of a command that another module runs: the word or option that tells it, and the module.

    A word comes first; with an option it is enough that it is there, in a form of options ``alone`` that options come first. The word is
    taken away, unless the module reads it too (``kept``).
    """

    word: str
    module: str
    kept: bool = False
    alone: bool = False

    def fits(self, words: Sequence[str]) -> bool:
        """Whether these words are of this form."""
        if not self.word.startswith("-"):
            return words[:1] == [self.word]
        return self.word in words and (not self.alone or words[0].startswith("-"))


# command -> its forms, of which the first that fits is taken
FORMS: Mapping[str, Sequence[Form]] = {
    "analyze": (Form("--fusion", "fusion_report"),),
    "op": (
        Form("chain", "fuse"),
        Form("--free", "cross", kept=True),
        *(Form(option, "place", kept=True, alone=True) for option in ("--flops", "--bytes", "--use")),
    ),
    "chips": (Form("measure", "measure"), Form("demo", "demo")),
    "validate": (Form("jax", "jax_compare"), Form("torch", "torch_compare")),
    "": (Form("--completion", "completion"), Form("--cache", "cache")),
}
# former command -> what to type instead
FORMER: Mapping[str, str] = {
    "hlo": "analyze",
    "fusion-report": "analyze --fusion",
    "fusion": "analyze --fusion",
    "place": "op --flops F --bytes B",
    "cross": "op FORMULA --free NAME",
    "fuse": "op chain",
    "measure": "chips measure",
    "demo": "chips demo",
    "jax-compare": "validate jax",
    "torch-compare": "validate torch",
    "completion": "--completion",
    "cache": "--cache",
}
_RENAMED = {"fusion": "fusion_report"}


def module_of(name: str) -> Any:
    """The module of a command or of a form of one, with its `run`; of a former command too."""
    module = _RENAMED.get(name, name.replace("-", "_"))
    return import_module(f".{module}" if module in COMMANDS else f".forms.{module}", __package__)


def chosen(name: str, words: list[str]) -> tuple[Any, list[str]]:
    """The module that runs a command with these words, and the words that it reads."""
    for form in FORMS.get(name, ()):
        if form.fits(words):
            rest = list(words)
            if not form.kept:
                rest.remove(form.word)
            return module_of(form.module), rest
    return module_of(name), words


def help_text() -> str:
    """What `roofline --help` prints."""
    widest = max(map(len, COMMANDS))
    lines = []
    for group, commands in GROUPS.items():
        lines += [f"{group}:", *(f"  {name.ljust(widest)}  {summary}" for name, summary in commands.items()), ""]
    return "\n".join(
        [
            "roofline: how close a program runs to its chip's limits, what holds it back, and what to do next.",
            "",
            "usage: roofline COMMAND [arguments]   (details: roofline COMMAND --help)",
            "",
            *lines,
            "examples:",
            "  roofline capture python train.py",
            "  roofline analyze run/host.xplane.pb -o report.html",
            "  roofline op matmul 8192 8192 8192 --chip v5e --dtype bf16 --weights int8",
            "  roofline chips --compare v5p,v6e,h100",
            "",
            "roofline --version prints the version, roofline --completion bash a script that completes words.",
            "",
        ]
    )
