"""What a plan is asked: a model on chips, a batch, and the options that are fixed; each option that is not given is assumed, and said."""

import math
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..errors import UnitError, UsageError
from ..units import parse, parse_count, show
from .catalogue import load_model
from .chips import Chips, chips_of
from .mesh import AXES, OTHER_NAMES, Asked, asked_mesh
from .transformer import Model
from .words import (
    FORMATS,
    GRAPHS,
    OTHER_GRAPHS,
    OTHER_STACKS,
    STACKS,
    Format,
    Recompute,
    Stack,
    recompute_of,
    recompute_policies,
    word,
)

USUAL_BATCH, USUAL_LENGTH = "4M tokens", 8192
MICROBATCHES = (1.0, 2.0, 4.0, 8.0, 16.0)
POLICIES = "none, selective, full"
_YES = {"yes": True, "no": False, "true": True, "false": False, "on": True, "off": False}
# setting -> field of a run, and what is assumed without it
SETTINGS = {
    "graphs": ("graphs", "CUDA graphs unknown (launches count 0.7)"),
    "exchange-overlap": ("expert_overlap", "expert exchanges not beside another microbatch"),
    "async-tp": ("pipelined", ""),
    "offload": ("offload", "no activations in host memory"),
    "routing": ("routing", "tokens spread evenly over experts"),
}


class Question(Struct, frozen=True, kw_only=True):
    """A model on chips with what is fixed and what is free; ``settings`` are fields of a run, ``assumed`` says what was not given."""

    model: Model
    chips: Chips
    batch: int
    length: int
    mesh: Asked
    formats: tuple[Format, ...]
    policies: tuple[Recompute, ...]
    microbatches: tuple[float, ...]
    stack: Stack
    settings: dict[str, object]
    most: dict[str, int]
    reserve: float
    assumed: tuple[str, ...]

    @property
    def usable(self) -> float:
        """Bytes of a device that a plan may fill."""
        return self.chips.capacity * (1 - self.reserve)


def question(
    model: str | Model,
    chip: str,
    count: int | str | None = None,
    *,
    batch: str | int | None = None,
    seq: int | None = None,
    mesh: str | Mapping[str, int | str] = "",
    no: str | Sequence[str] = (),
    most: Mapping[str, int] | None = None,
    format: str | Sequence[str] = "",
    recompute: str | float | Sequence[str] = "",
    microbatch: str | float | Sequence[float] | None = None,
    stack: str = "",
    settings: Mapping[str, str | float] | None = None,
    slices: int = 1,
    network: str | float | None = None,
    domain: int | None = None,
    reserve: str | float = 0.0,
) -> Question:
    """The question that words of the command line, or arguments of `roofline.plan`, ask."""
    asked_model = model if isinstance(model, Model) else load_model(str(model))
    chips = asked_chips(chip, count, slices, domain, network)
    length, usual_stack = int(seq or USUAL_LENGTH), "maxtext" if chips.is_tpu else "megatron"
    taken = {
        f"sequences of {USUAL_LENGTH} tokens": seq is None,
        f"a batch of {USUAL_BATCH}": batch is None,
        f"the software of {usual_stack}": not stack,
    }
    assumed = [*asked_model.notes, *(what for what, is_so in taken.items() if is_so)]
    asked = asked_mesh(written(mesh))
    for name in split_list(written(no)):
        axis = _axis("--no", name)
        asked = replace(asked, sizes={**asked.sizes, axis: 1})
    fields, unsaid = _settings({name: written(value) for name, value in (settings or {}).items()}, asked_model, chips)
    if network is None and chips.count > chips.domain and not chips.is_tpu:
        unsaid.append(f"a network of {show(chips.network, 'B/s', 3)} a chip")
    return Question(
        model=asked_model,
        chips=chips,
        batch=sequences(USUAL_BATCH if batch is None else batch, length),
        length=length,
        mesh=asked,
        formats=tuple(word("--format", name, FORMATS) for name in split_list(written(format) or "bf16")),
        policies=tuple(recompute_of(words, asked_model) for words in recompute_policies(written(recompute) or POLICIES)),
        microbatches=MICROBATCHES if microbatch is None else tuple(microbatch_of(text) for text in split_list(written(microbatch))),
        stack=word("--stack", stack or usual_stack, STACKS, OTHER_STACKS),
        settings=fields,
        most={_axis("--max", name): size for name, size in (most or {}).items()},
        reserve=share("--reserve", reserve),
        assumed=(*assumed, *unsaid),
    )


def asked_chips(chip: str, count: int | str | None, slices: int, domain: int | None, network: str | float | None) -> Chips:
    """The chips of words such as ``h100`` and ``x256``, ``v5p`` and ``4x4x8``, ``v5p:4x4x8`` or ``2x v5p:4x4x8``."""
    if several := re.fullmatch(r"(\d+)\s*x\s*([A-Za-z].*)", chip.strip()):
        slices, chip = int(several[1]), several[2]
    text = written(count).strip().lower().removeprefix("x")
    if "x" in text:
        chip, text = f"{chip}:{text}", ""
    rate = None if network is None else parse(network, "B/s")
    if rate == 0:
        raise UsageError(f"--network {network}: more than 0 bytes a second, such as '50 GB/s'")
    if text and not (text.isdecimal() and int(text)):
        raise UsageError(f"{count}: write the number of chips, such as x256, or a slice as the chip, such as v5p:4x4x8")
    if slices < 1:
        raise UsageError("--slices: a whole number of at least 1")
    return chips_of(chip, int(text) if text else None, slices=slices, domain=domain, network=rate)


def written(value: object) -> str:
    """The words of an option for its value in Python: a list, the sizes of axes, a number, yes or no."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={size}" for name, size in value.items())
    if isinstance(value, list | tuple):
        return ",".join(map(written, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def sequences(batch: str | int, length: int) -> int:
    """The sequences of a global batch in words: ``1536``, ``1536 sequences``, ``4M tokens`` (about so many)."""
    text = str(batch).strip()
    counted = re.fullmatch(r"(.*?)\s*(tokens|sequences)?", text)
    amount, unit = (counted[1], counted[2]) if counted else (text, None)
    try:
        number = parse_count(amount)
    except UnitError:
        raise UsageError(f"--batch {batch}: write sequences, such as 1536, or tokens, such as '4M tokens'") from None
    if unit == "tokens" or (unit is None and not re.fullmatch(r"[\d.,_]+(e\d+)?", amount)):
        return _divisible(number / length)
    if number != round(number):
        raise UsageError(f"--batch {batch}: a whole number of sequences")
    return round(number)


def _divisible(number: float) -> int:
    """A number of sequences with three significant binary digits: one that many ranks and microbatches divide.

    >>> _divisible(488.3), _divisible(3)
    (512, 3)
    """
    step = 1 << max(0, math.floor(math.log2(max(number, 1))) - 2)
    return max(1, round(number / step)) * step


def share(option: str, given: str | float) -> float:
    """A share below 1, such as 10% or 0.1."""
    text = str(given).strip()
    try:
        value = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UsageError(f"{option} {given}: a share from 0 to below 1, such as 10%")
    return value


def _axis(option: str, name: str) -> str:
    plain = name.strip().lower()
    return word(option, plain, {axis: axis for axis in AXES}, OTHER_NAMES)


def split_list(text: str) -> list[str]:
    """The parts of a list with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def microbatch_of(text: str) -> float:
    """Sequences of a device at a time."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise UsageError(f"--microbatch {text}: sequences of one device at a time, such as 1,2,4")
    return value


def _settings(given: Mapping[str, str], model: Model, chips: Chips) -> tuple[dict[str, object], list[str]]:
    """Fields of a run by the words of ``--set``, and what is assumed of the others."""
    fields: dict[str, object] = {}
    for name, text in given.items():
        field = word("--set", name, {key: key for key in SETTINGS})
        if field == "graphs":
            key = OTHER_GRAPHS.get(text.lower(), text.lower())
            word(f"--set {name}", key, GRAPHS)
            fields["graphs"] = key
        elif field == "routing":
            fields["routing"] = _routing(text)
        else:
            fields[SETTINGS[field][0]] = word(f"--set {name}", text, _YES)
    unsaid = [words for field, (name, words) in SETTINGS.items() if name not in fields and words and _concerns(field, model, chips)]
    return fields, unsaid


def _routing(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value < math.inf:
        raise UsageError(f"--set routing={text}: rows of the busiest expert over the mean, 1 or more, such as 1.2")
    return value


def _concerns(setting: str, model: Model, chips: Chips) -> bool:
    """Whether a setting changes the time of this model on these chips."""
    if setting in ("exchange-overlap", "routing"):
        return model.has_experts and (setting == "routing" or not chips.is_tpu)
    return setting != "graphs" or not chips.is_tpu
