"""The opcodes that XLA documents: what kind each is, how many operands it needs, and how it calls other computations."""

from msgspec import Struct


class Opcode(Struct, frozen=True):
    """Its kind, the fewest operands, and the roles of computations that it calls, as HloInstructionProto lists them; the last repeats."""

    kind: str
    operands: int
    calls: tuple[str, ...]


# From the list in xla/hlo/ir/hlo_opcode.h: kind, the fewest operands (one for atan2, as which StableHLO's atan is read; none where a
# program written by hand may leave them out), roles, names.
_ROWS = (
    ("arithmetic", 2, "", "add divide mulhi multiply remainder subtract"),
    ("bits", 2, "", "and or shift-left shift-right-arithmetic shift-right-logical xor"),
    ("bits", 1, "", "count-leading-zeros not popcnt"),
    ("transcendental", 2, "", "power"),
    ("transcendental", 1, "", "acos acosh asin asinh atan2 atanh cbrt cosine cosh erf exponential exponential-minus-one log log-plus-one"),
    ("transcendental", 1, "", "logistic rsqrt sine sinh sqrt tan tanh"),
    ("comparison", 3, "", "clamp select"),
    ("comparison", 2, "", "compare maximum minimum"),
    ("comparison", 1, "", "is-finite"),
    ("sign", 1, "", "abs negate sign"),
    ("conversion", 2, "", "complex stochastic-convert"),
    ("conversion", 1, "", "bitcast-convert ceil convert floor imag real reduce-precision round-nearest-afz round-nearest-even"),
    ("view", 1, "", "bitcast reshape"),  # the same elements in the same order
    ("move", 1, "", "broadcast concatenate dynamic-slice reverse slice transpose"),
    ("move", 2, "", "pad"),
    ("copy", 1, "", "copy"),
    ("gather", 2, "", "gather"),
    ("update", 2, "", "dynamic-update-slice"),
    ("update", 3, "to_apply", "scatter"),
    ("product", 2, "", "convolution dot ragged-dot scaled-dot"),
    ("reduction", 2, "to_apply", "reduce reduce-window"),
    ("reduction", 3, "select scatter", "select-and-scatter"),
    ("reduction", 0, "to_apply", "scan"),
    ("order", 1, "to_apply", "sort topk"),
    ("algebra", 1, "", "cholesky fft"),
    ("algebra", 2, "", "triangular-solve"),
    ("normalisation", 0, "", "batch-norm-grad batch-norm-inference batch-norm-training"),
    ("constant", 0, "", "constant iota"),
    ("random", 0, "", "rng rng-bit-generator rng-get-and-update-state"),
    ("device", 0, "", "partition-id replica-id"),
    ("identity", 0, "", "add-dependency domain opt-barrier"),  # the result is the first operand
    ("size", 1, "", "get-dimension-size"),
    ("size", 0, "", "dynamic-reshape set-dimension-size"),
    ("tuple", 1, "", "get-tuple-element"),
    ("tuple", 0, "", "tuple"),
    ("parameter", 0, "", "parameter"),
    ("order of effects", 0, "", "after-all"),
    ("host", 0, "", "infeed outfeed"),
    ("message", 0, "", "recv recv-done send send-done"),
    ("half", 1, "", "copy-done copy-start"),
    ("half", 0, "", "async-done async-update"),
    ("half", 0, "calls", "async-start"),
    ("collective", 1, "", "all-gather all-to-all collective-broadcast collective-permute"),
    ("collective", 1, "to_apply", "all-reduce reduce-scatter"),
    ("collective", 0, "to_apply", "collective-reduce"),
    ("collective", 0, "", "ragged-all-to-all"),
    ("collective half", 1, "", "all-gather-done all-gather-start all-reduce-done collective-permute-done collective-permute-start"),
    ("collective half", 1, "to_apply", "all-reduce-start"),
    ("run", 1, "body condition", "while"),
    ("run", 1, "branch_computations", "conditional"),
    ("run", 0, "to_apply", "call"),
    ("map", 0, "to_apply", "map"),
    ("fusion", 0, "calls", "fusion"),
    ("custom", 0, "called_computations", "custom-call"),
)
_TABLE: dict[str, Opcode] = {}
for _kind, _operands, _calls, _names in _ROWS:
    _TABLE |= dict.fromkeys(_names.split(), Opcode(_kind, _operands, tuple(_calls.split())))
OPCODES = frozenset(_TABLE)
CALLERS = {name: opcode.calls for name, opcode in _TABLE.items() if opcode.calls}
LEAVES = OPCODES - CALLERS.keys()
LEAST_OPERANDS = {name: opcode.operands for name, opcode in _TABLE.items() if opcode.operands}


def of_kind(*kinds: str) -> frozenset[str]:
    """The opcodes of some kinds."""
    return frozenset(name for name, opcode in _TABLE.items() if opcode.kind in kinds)


ARITHMETIC, BITS, TRANSCENDENTALS, COMPARISONS, SIGNS, CONVERSIONS = map(
    of_kind, ("arithmetic", "bits", "transcendental", "comparison", "sign", "conversion")
)
# Not opcodes of XLA, but of the CHLO dialect that StableHLO programs use.
SPECIAL = frozenset(("bessel-i1e", "digamma", "erf-inv", "erfc", "lgamma", "polygamma", "zeta"))
SPECIAL_COMPARISONS = frozenset(("is-inf", "is-neg-inf", "is-pos-inf", "next-after"))
CHLO = SPECIAL | SPECIAL_COMPARISONS
# Opcodes that compute each element of their result from the elements of their operands at its place.
ELEMENTWISE = ARITHMETIC | BITS | TRANSCENDENTALS | COMPARISONS | SIGNS | CONVERSIONS | CHLO
VIEWS = of_kind("view")
MOVES = VIEWS | of_kind("move")  # opcodes that give elements another place
PRODUCTS = of_kind("product")
UPDATES = of_kind("update")
IDENTITIES = of_kind("identity")
RUNNERS = of_kind("run")  # opcodes whose work is that of instructions in other computations

# Halves of operations that XLA has opcodes for. Any other `X-start` is its short spelling of an async-start around one X.
_HALVES = frozenset(opcode for opcode in OPCODES if opcode.endswith(("-start", "-update", "-done")))


def asynchronous(opcode: str) -> tuple[str, str] | None:
    """The half and the operation of a short spelling: ``fusion-start`` is ``async-start`` around a ``fusion``.

    >>> asynchronous("fusion-start"), asynchronous("copy-start")
    (('async-start', 'fusion'), None)
    """
    if opcode in _HALVES:
        return None
    base, dash, half = opcode.rpartition("-")
    return (f"async-{half}", base) if dash and half in ("start", "update", "done") else None
