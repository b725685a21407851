"""The figures of the guide, one function each: `python docs/guide_figures.py` writes them into docs/figures.

Chips have the rates that the guide uses, so that the figures match its tables. PNG files with few colours are a tenth of the SVG's size.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from matplotlib.axes import Axes
from PIL import Image

import roofline as rl
from roofline.formulas import layernorm, matmul, sharded_matmul
from roofline.render import plot
from roofline.render.geometry import Roof, roof

FOLDER = Path(__file__).parent / "figures"

V7X = rl.chip("v7x").override({"hbm": "7.2 TB/s"})
V6E = rl.chip("v6e").override({"hbm": "1.6 TB/s"})
V5P = rl.chip("v5p").override({"hbm": "2.76 TB/s"})
V5E = rl.chip("v5e").override({"hbm": "820 GB/s"})
FOUR_ROOFS: tuple[Roof, ...] = (
    roof(V7X, "matrix/fp8", name="v7x fp8"),
    roof(V7X, "matrix/bf16", name="v7x bf16"),
    roof(V6E, "matrix/bf16", name="v6e"),
    roof(V5P, "matrix/bf16", name="v5p"),
)
V7X_BF16 = FOUR_ROOFS[1]


def times() -> Axes:
    """Time per unit of three matmuls: memory-bound, at the ridge, and split over two chips."""
    products = {
        "a batch of 64": matmul(64, 8192, 8192),
        "a batch of 240": matmul(240, 8192, 8192),
        "half of a matmul, k split": sharded_matmul(512, 8192, 4096),
    }
    return plot.time_bars({name: rl.place(ledger.cost, V5E) for name, ledger in products.items()})


def anatomy() -> Axes:
    """One chip's roofline."""
    return plot.anatomy(V7X_BF16)


def chips() -> Axes:
    """Four operations on four rooflines."""
    ops = {
        "LayerNorm": layernorm(65536, 4096, reads=2),
        "QK^T, heads as rows": matmul(1024, 128, 2048),
        "MatMul 600": matmul(600, 600, 600),
        "FFN up": matmul(65536, 4096, 16384),
    }
    return plot.rooflines(FOUR_ROOFS, [(name, ledger.cost.intensity() or 0.0) for name, ledger in ops.items()])


def sizes() -> Axes:
    """Arithmetic intensity of square matmuls from 64 to 16384, with the ridges of four rooflines."""
    curve = [(float(n), matmul(n, n, n).cost.intensity() or 0.0) for n in (2**power for power in range(6, 15))]
    return plot.intensity_against_size({"square matmul in bf16, N/3": curve}, FOUR_ROOFS)


def batches() -> Axes:
    """Arithmetic intensity of an 8192 x 8192 layer by batch size, for three weight formats."""
    formats = {"bf16": "bf16", "int8 weights": "int8", "int4 weights": "int4"}
    rows = [2**power for power in range(4, 11)]
    curves = {
        name: [(float(batch), matmul(batch, 8192, 8192, weights=stored).cost.intensity() or 0.0) for batch in rows]
        for name, stored in formats.items()
    }
    return plot.intensity_against_size(curves, [roof(V5E, "matrix/bf16", name="v5e")], size="batch")


def fusion() -> Axes:
    """Four kernels, two, one: the tail of a transformer block on 268,435,456 elements."""
    tail = rl.chain(
        (32, 2048, 4096),
        "bf16",
        [rl.StageSpec("layernorm", 10, reduces=True), rl.StageSpec("gelu", 8), rl.StageSpec("dropout", 1), rl.StageSpec("add", 1)],
    )
    return plot.fusion_path(V7X_BF16, [rl.fuse(tail, groups, V7X) for groups in ((1, 1, 1, 1), (2, 2), (4,))])


def communication() -> Axes:
    """20%, 40% and 60% of the time spent communicating."""
    return plot.communication(V7X, (0.2, 0.4, 0.6))


def hierarchy() -> Axes:
    """HBM and VMEM ceilings, and a well-tiled kernel between them."""
    chip = V7X.override({"vmem": "150 TB/s"})
    well_tiled = 3.5 * chip.attainable(50, "matrix/bf16")
    return plot.hierarchy(chip, ["hbm", "vmem"], points=[("well-tiled kernel", 50.0, well_tiled)])


def ceilings() -> Axes:
    """Lower ceilings of the vector unit of an H100."""
    return plot.ceilings(rl.chip("h100"), compute="vector/fp32")


def measurements() -> Axes:
    """Four kernels at 92, 55, 35 and 78% of their roofline."""
    shares = {"A": (2.0, 0.92), "B": (12.0, 0.55), "C": (150.0, 0.35), "D": (2000.0, 0.78)}
    return plot.prediction_and_measurement(V7X_BF16, [_point(f"kernel {name}", *place) for name, place in shares.items()])


def distance() -> Axes:
    """92% of the memory ceiling and 25% of the compute ceiling."""
    return plot.distance_to_roof(V7X_BF16, [_point("elementwise", 5.0, 0.92), _point("matmul", 500.0, 0.25)])


def _point(name: str, intensity: float, share: float) -> tuple[str, float, float]:
    return name, intensity, share * V7X_BF16.at(intensity)


FIGURES: dict[str, Callable[[], Axes]] = {
    f"guide-{figure.__name__}.png": figure
    for figure in (
        times,
        anatomy,
        chips,
        sizes,
        batches,
        fusion,
        communication,
        hierarchy,
        ceilings,
        measurements,
        distance,
    )
}


COLOURS = 128
DPI = 144


def write(folder: Path, names: Iterable[str] = tuple(FIGURES)) -> list[Path]:
    """Draw figures into a folder, by default every one."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(FIGURES[name], folder / name) for name in names]


def _write(draw: Callable[[], Axes], path: Path) -> Path:
    plot.save(draw(), path, dpi=DPI)
    with Image.open(path) as drawn:
        # Maximum coverage keeps the colour of a single small dot, which the usual median cut gives up for a large area's shades.
        few = drawn.convert("RGB").quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    return path


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
