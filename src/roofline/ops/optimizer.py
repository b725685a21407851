"""Updates of parameters by optimizers."""

from msgspec import Struct


class Rule(Struct, frozen=True, kw_only=True):
    """The work of an optimizer per parameter: FLOP, transcendentals, and its state. ``why`` explains the count."""

    flops: int
    transcendentals: int = 0
    state: tuple[str, ...] = ()
    why: str


_MOMENTS = "m ← β₁m + (1−β₁)g is 3, v ← β₂v + (1−β₂)g² is 4, w ← w − η·m/(c·√v + ε) is 5 and a root"
RULES: dict[str, Rule] = {
    "sgd": Rule(flops=2, why="w ← w − η·g"),
    "momentum": Rule(flops=4, state=("velocity",), why="v ← μ·v + g, w ← w − η·v"),
    "adam": Rule(flops=12, transcendentals=1, state=("first moment", "second moment"), why=_MOMENTS),
    "adamw": Rule(flops=13, transcendentals=1, state=("first moment", "second moment"), why=f"{_MOMENTS}, and w ← (1−η·λ)·w is 1"),
}
