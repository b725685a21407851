"""What a kind of finding means, how it is recognised and what to do about it: the words of the catalogue, put together.

`roofline explain KIND` prints it, and `docs/findings.md` has it of every kind.
"""

import re
from collections.abc import Container, Iterable, Iterator, Sequence

from ...errors import UsageError, did_you_mean
from . import Page, Section, kinds, page

CHAPTERS = (
    "Idle time",
    "Work that is not needed",
    "Sizes and copies",
    "Distance to the roofline",
    "Kernels by their counters",
    "Suspect figures",
    "Single operations",
)
ON = {
    "jax": "in JAX",
    "pytorch": "in PyTorch",
    "gpu": "on a GPU",
    "tpu": "on a TPU",
    "cpu": "on a CPU",
    "compiled": "in compiled PyTorch",
    "replayed": "in replayed CUDA graphs",
    "host": "of PyTorch on a CPU",
}
_FACT, _OPTIONAL = re.compile(r"\{[^}]*\}"), re.compile(r"\[[^\]]*\{[^\]]*\]")  # a part with facts, which may be left out


def chapters() -> Iterator[tuple[str, Sequence[str]]]:
    """The kinds of each chapter."""
    for chapter in CHAPTERS:
        yield chapter, [kind for kind in kinds() if page(kind).chapter == chapter]


def explanation(kind: str) -> str:
    """A kind of finding explained, in Markdown; an unknown one is an error."""
    if kind not in kinds():
        raise UsageError(f"no finding of kind {kind!r}{did_you_mean(kind, kinds()) or '; roofline explain lists them'}")
    words = page(kind)
    parts = [words.means or f"{capital(_plain(words.title or words.observation))}."]
    parts += [f"- {label}: {text}" for label, text in (("Rule", words.rule), ("Caveat", words.caveat), ("Saving", words.saving)) if text]
    parts += _advice(words)
    if words.whatif:
        parts.append(f"- Predict: `roofline whatif RUN {words.whatif}`")
    for section in words.groups.values():
        parts += _group(section, {words.change, *parts})
    if words.example:
        parts.append(f"- For example: “{words.example}”")
    if words.measured:
        parts += ["- Measured:", *_listed(words.measured)]
    first, *rest = parts
    return "\n".join([first, "", *rest]) if rest else first


def title_of(kind: str) -> str:
    """What a kind is about, in a few words."""
    words = page(kind)
    return _plain(words.title or words.observation or words.means)


def _advice(words: Page | Section) -> list[str]:
    """What to do, and the ways to do it."""
    if not words.change and not words.levers:
        return []
    lines = [f"- Do: {_plain(words.change)}." if words.change else "- Do:", *_listed(_plain(lever) for lever in words.levers)]
    for name, replaced in words.on.items():
        lines += _listed(f"{ON.get(name, name)}: {_plain(lever)}" for lever in replaced.levers or ())
    for levers in words.cases.values():
        lines += _listed(map(_plain, levers))
    return list(dict.fromkeys(lines))


def _group(section: Section, told: Container[str]) -> list[str]:
    """A group of a kind, with what helps there and is not ``told`` of the kind."""
    if not section.title:
        return []
    levers = [*section.levers, *(lever for replaced in section.on.values() for lever in replaced.levers or ())]
    change = f": {_plain(section.change)}" if section.change and section.change not in told else ""
    lines = dict.fromkeys(_listed(map(_plain, levers)))
    return [f"- Also {_plain(section.title)}{change}.", *(line for line in lines if line not in told)]


def _listed(texts: Iterable[str]) -> list[str]:
    return [f"  - {text}" for text in texts]


def _plain(text: str) -> str:
    """Words without the facts of a certain program."""
    return re.sub(r" +", " ", _FACT.sub("…", _OPTIONAL.sub("", text))).strip()


def capital(text: str) -> str:
    """The text with a capital letter."""
    return text[:1].upper() + text[1:]
