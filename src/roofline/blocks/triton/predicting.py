"""Predicted configurations of a Triton kernel: each is lowered here, and compiled and timed in a worker."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ...errors import UsageError
from ..pool import Progress, side_by_side
from ..results import Blocks, Configuration, Line, ranked, with_shares
from ..space import Space, configurations
from .chips import Chip, chip_for
from .compiling import Binary, Lowered, compile_ir, lower, own_configurations
from .limits import limit_of
from .times import Estimate, estimate

Grid = Callable[[dict[str, Any]], Any] | Sequence[int] | int
Launch = tuple[Lowered, tuple[int, int, int]]  # a configuration's IR and its grid
MOST_LINES = 40


def predict_triton(
    kernel: Any, args: Sequence[Any], named: Mapping[str, Any], grid: Grid, chip_name: str, space: Space | None, progress: Progress | None
) -> Blocks:
    """The configurations of a Triton kernel on a chip, the best first."""

    def launched(config: dict[str, Any], capability: int) -> Launch:
        lowered = lower(kernel, args, named, config, capability)
        return lowered, (1, 1, 1) if lowered.refused else grid_of(grid, {**named, **lowered.scalars, **config})

    asked = configurations(space if space is not None else own_configurations(kernel))
    return predict_launches(name_of(kernel), asked, launched, chip_name, progress)


def predict_launches(
    name: str, asked: Sequence[dict[str, Any]], launched: Callable[[dict[str, Any], int], Launch], chip_name: str, progress: Progress | None
) -> Blocks:
    """Configurations on a chip, the best first; ``launched`` gives the IR and the grid of each, for a compute capability (90)."""
    chip, machine = chip_for(chip_name)
    launches = [launched(config, chip.capability) for config in asked]
    can_compile = [place for place, (lowered, _) in enumerate(launches) if not lowered.refused]
    timed = side_by_side(
        predicted,
        [(*launches[place], chip) for place in can_compile],
        lambda why: Configuration(config={}, refused=f"the compiler's process {why}"),
        progress,
    )
    by_place = dict(zip(can_compile, timed, strict=True))
    configs = [
        replace(by_place.get(place) or Configuration(config={}, refused=launches[place][0].refused), config=config)
        for place, config in enumerate(asked)
    ]
    return Blocks(
        kernel=name,
        chip=machine.chip_name,
        compiler=f"Triton {version('triton')}",
        evidence=chip.core.evidence,
        configs=ranked(with_shares(configs, machine)),
    )


def name_of(kernel: Any) -> str:
    """The function's name, inside of heuristics and autotuning."""
    while not hasattr(kernel, "__name__") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return str(getattr(kernel, "__name__", kernel))


def grid_of(grid: Grid, values: dict[str, Any]) -> tuple[int, int, int]:
    """The blocks along three axes, for a configuration and the arguments by name."""
    sizes = grid(values) if callable(grid) else grid
    numbers = [sizes] if isinstance(sizes, int) else [int(size) for size in sizes]
    if not 1 <= len(numbers) <= 3 or min(numbers) < 1:
        raise UsageError(f"grid: {sizes} is not one to three whole numbers above 0")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def predicted(lowered: Lowered, grid: tuple[int, int, int], chip: Chip) -> Configuration:
    """One configuration, compiled and timed; its name is not known here."""
    binary = compile_ir(lowered, chip.capability, chip.core.bytes("shared_of_block"))
    return configuration_of(lowered, binary, grid, chip)


def configuration_of(lowered: Lowered, binary: Binary, grid: tuple[int, int, int], chip: Chip) -> Configuration:
    """A compiled configuration with its predicted time, or why it cannot run."""
    if binary.refused:
        return Configuration(config={}, refused=binary.refused, memory=binary.shared or None, grid=grid)
    needed = Configuration(config={}, registers=binary.registers, spilled=binary.spilled, memory=binary.shared, grid=grid)
    found = estimate(lowered, binary, grid, chip)
    if not found.occupancy.blocks:
        return replace(needed, refused=f"no block fits a core: {found.occupancy.limit}")
    low, high = chip.core.interval
    return replace(
        needed,
        time_s=found.time_s,
        low_s=low * found.time_s,
        high_s=high * found.time_s,
        limit=limit_of(found),
        parts=dict(found.parts),
        per_core=found.occupancy.blocks,
        waves=found.waves,
        work=dict(found.work),
        bytes={"hbm": found.traffic.hbm},
        lines=_lines(found),
    )


def _lines(found: Estimate) -> tuple[Line, ...]:
    """The lines that take most cycles of a block, with their text where the file is here."""
    total = sum(found.lines.values())
    texts: dict[str, list[str]] = {}
    lines = []
    for (file, number), cycles in sorted(found.lines.items(), key=lambda pair: -pair[1])[:MOST_LINES]:
        if file not in texts:
            texts[file] = Path(file).read_text(errors="replace").splitlines() if Path(file).is_file() else []
        text = texts[file][number - 1].strip() if 0 < number <= len(texts[file]) else ""
        lines.append(Line(file=file, line=number, share=cycles / total if total else 0.0, text=text))
    return tuple(lines)
