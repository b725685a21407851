"""Times of single operations under a training load: the project's predictions, over the share of them that a whole step sustains.

Predictions are fitted to one operation at a time on a cool chip; in training the clock is lower and every kernel has neighbours. The shares
are a calibration (`machines/calibrations/training`): by architecture and format, and by chip.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ..cost import Cost
from ..errors import UsageError
from ..machine import Machine
from ..machines.calibrations import FOLDER, calibration_for
from ..machines.toml_files import read_toml
from ..operation import UNSTATED, Attention, Compiled, MatrixWork, Product, Streamed
from ..prediction import predict
from .chips import Chips
from .words import Format

FILE = FOLDER / "training" / "steps.toml"
FLASH_BACKWARD = 2.5  # FLOP of flash attention's backward pass over its forward pass: five products instead of two


class Band(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What measured steps were of predicted ones for models that the fit had not seen: the middle 80% of them, and the mean error."""

    low: float
    high: float
    error: float
    rows: int
    models: int
    covers: float


class Calibration(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values of a training load by name; ``fitted`` on published runs, ``prior`` from single operations, ``assumed`` without either.

    ``meshes`` are the kinds of mesh of the published runs, by kind of model.
    """

    schema: Literal["roofline.training/1"] = "roofline.training/1"
    source: str = ""
    rows: int = 0
    prior: dict[str, float] = {}
    fitted: dict[str, float] = {}
    assumed: dict[str, float] = {}
    band: dict[str, Band] = {}
    meshes: dict[str, tuple[str, ...]] = {}

    @property
    def values(self) -> dict[str, float]:
        return {**self.assumed, **self.prior, **self.fitted}


@cache
def training_calibration() -> Calibration:
    return read_toml(FILE, Calibration)


@lru_cache(maxsize=64)
def single_ops(machine: Machine) -> "Single":
    """The times of single operations on a device, kept for all plans on it."""
    return Single(machine)


class Single:
    """Predicted times of single operations on one device, each computed once."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.calibration = machine, calibration_for(machine)
        self.is_tpu = machine.kind == "tpu"
        self.products: dict[tuple[float, float, float, str, int], float] = {}
        self.attentions: dict[tuple[object, ...], tuple[float, float]] = {}
        self.streams: dict[float, float] = {}

    def product(self, m: float, k: float, n: float, compute: str, groups: int) -> float:
        """``m`` rows in all through ``groups`` matrices of ``k`` x ``n``, each with its share of the rows."""
        key = (m, k, n, compute, groups)
        if key not in self.products:
            width = {"bf16": "bf16", "fp4": "fp4", "int8": "int8"}.get(compute, "fp8")
            sizes = Product(m=m, k=k, n=n, groups=groups if groups > 1 else 0, left=width, right=width, compute=compute)
            rows = max(1, round(m / groups))
            filled = MatrixWork(flops=round(sizes.flops), depth=max(1, round(k)), widths=(rows, max(1, round(n))), compute=compute)
            cost = Cost.of({f"matrix/{compute}": sizes.flops, "hbm": sizes.bytes})
            self.products[key] = self._time(sizes, cost, Compiled(products=(filled,)))
        return self.products[key]

    def attention(self, sequences: float, heads: float, kv_heads: float, length: int, key: int, value: int) -> tuple[float, float]:
        """Causal attention over whole sequences, forward and backward."""
        which = (sequences, heads, kv_heads, length, key, value)
        if which not in self.attentions:
            size = (key + value) / 2
            sizes = Attention(
                batch=sequences, heads=heads, queries=length, keys=length, size=size, kv_heads=min(kv_heads, heads), causal=True
            )
            flops = 2.0 * sequences * heads * length * length / 2 * (key + value)
            moved = 2.0 * sequences * length * (heads + kv_heads) * (key + value)
            scores = MatrixWork(flops=round(flops / 2), depth=key, widths=(length,))
            values = MatrixWork(flops=round(flops / 2), depth=length, widths=(value,))
            forward = self._time(sizes, Cost.of({"matrix/bf16": flops, "hbm": moved}), Compiled(products=(scores, values)))
            again = replace(sizes, backward=True, library="cudnn")
            more = Cost.of({"matrix/bf16": FLASH_BACKWARD * flops, "hbm": FLASH_BACKWARD * moved})
            wide = tuple(replace(work, flops=round(FLASH_BACKWARD * work.flops)) for work in (scores, values))
            self.attentions[which] = forward, self._time(again, more, Compiled(products=wide))
        return self.attentions[which]

    def stream(self, moved: float) -> float:
        """Elementwise work that moves so many bytes of main memory."""
        if moved not in self.streams:
            self.streams[moved] = self._time(Streamed(kind="elementwise"), Cost.of({"hbm": moved}), UNSTATED) if moved else 0.0
        return self.streams[moved]

    def _time(self, sizes: Product | Attention | Streamed, cost: Cost, compiled: Compiled) -> float:
        predicted = predict(sizes, cost, self.machine, self.calibration, compiled=compiled if self.is_tpu else UNSTATED)
        return predicted.time_s if predicted else 0.0


class Times:
    """Times of operations in a step on some chips, in a format and a stack's kernels."""

    def __init__(self, chips: Chips, format: Format, former_attention: bool, values: Mapping[str, float]) -> None:
        self.chips, self.format, self.values = chips, format, values
        self.single = single_ops(chips.machine)
        self.layers: dict[tuple[object, ...], tuple[dict[str, float], dict[str, float]]] = {}  # parts of a layer, by what they depend on
        architecture = chips.architecture
        self.clock = values.get(f"clock.{chips.machine.chip_name}", 1.0)
        kernel = ".fa2" if former_attention and architecture == "hopper" else ""
        for compute in {format.compute, format.of_gradients}:
            if not chips.machine.resolve(f"matrix/{compute}"):
                raise UsageError(f"--format {format.name}: {chips.machine.chip_name} has no matrix rate for {format.name}")
        self.of_attention = self._share(f"attention.{architecture}{kernel}", "attention")
        self.of_scan = self._share("scan", "scan")
        self.of_groups = self._share(f"experts.{'tpu' if chips.is_tpu else 'gpu'}", "experts")
        self.of_products = {
            name: self._share(f"products.{architecture}.{name}", f"products.{name}", "products") for name in {"bf16", format.name}
        }

    def _share(self, *names: str) -> float:
        return self.values[next(name for name in names if name in self.values)] * self.clock

    def product(self, m: float, k: float, n: float, *, low: bool = True, groups: int = 1) -> float:
        """Seconds of a product, in the plan's format or in bf16."""
        if m <= 0:
            return 0.0
        name, compute = (self.format.name, self.format.compute) if low else ("bf16", "bf16")
        share = self.of_products[name] * (self.of_groups / self.clock if groups > 1 else 1.0)
        return self.single.product(m, k, n, compute, groups) / share

    def stream(self, moved: float) -> float:
        """Seconds to move so many bytes through main memory, elementwise."""
        return self.single.stream(moved)
