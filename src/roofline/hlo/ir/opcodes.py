"""The opcodes that XLA documents, and how each calls other computations."""

# From the list in xla/hlo/ir/hlo_opcode.h.
_NAMES = """
    abs acos acosh add add-dependency after-all all-gather all-gather-done all-gather-start all-reduce all-reduce-done all-reduce-start
    all-to-all and asin asinh async-done async-start async-update atan2 atanh batch-norm-grad batch-norm-inference batch-norm-training
    bitcast bitcast-convert broadcast call cbrt ceil cholesky clamp collective-broadcast collective-permute collective-permute-done
    collective-permute-start collective-reduce compare complex concatenate conditional constant convert convolution copy copy-done
    copy-start cosine cosh count-leading-zeros custom-call divide domain dot dynamic-reshape dynamic-slice dynamic-update-slice erf
    exponential exponential-minus-one fft floor fusion gather get-dimension-size get-tuple-element imag infeed iota is-finite log
    log-plus-one logistic map maximum minimum mulhi multiply negate not opt-barrier or outfeed pad parameter partition-id popcnt power
    ragged-all-to-all ragged-dot real recv recv-done reduce reduce-precision reduce-scatter reduce-window remainder replica-id reshape
    reverse rng rng-bit-generator rng-get-and-update-state round-nearest-afz round-nearest-even rsqrt scaled-dot scan scatter select
    select-and-scatter send send-done set-dimension-size shift-left shift-right-arithmetic shift-right-logical sign sine sinh slice
    sort sqrt stochastic-convert subtract tan tanh topk transpose triangular-solve tuple while xor
"""
OPCODES = frozenset(_NAMES.split())

# Opcodes that compute each element of their result from elements of their operands at its place, by what they do there.
_WORDS = {
    "arithmetic": "add subtract multiply divide remainder mulhi",
    "bits": "and or xor not shift-left shift-right-arithmetic shift-right-logical popcnt count-leading-zeros",
    "transcendentals": "acos acosh asin asinh atan2 atanh cbrt cosine cosh erf exponential exponential-minus-one log log-plus-one logistic "
    "power rsqrt sine sinh sqrt tan tanh",
    "comparisons": "compare select clamp maximum minimum is-finite",
    "signs": "negate abs sign",
    # Not opcodes of XLA, but of the CHLO dialect that StableHLO programs use.
    "special functions": "bessel-i1e digamma erf-inv erfc lgamma polygamma zeta",
    "special comparisons": "is-inf is-neg-inf is-pos-inf next-after",
    "conversions": "convert bitcast-convert reduce-precision stochastic-convert ceil floor round-nearest-afz round-nearest-even real imag "
    "complex",
}
ARITHMETIC, BITS, TRANSCENDENTALS, COMPARISONS, SIGNS, SPECIAL, SPECIAL_COMPARISONS, CONVERSIONS = (
    frozenset(words.split()) for words in _WORDS.values()
)
CHLO = SPECIAL | SPECIAL_COMPARISONS
ELEMENTWISE = ARITHMETIC | BITS | TRANSCENDENTALS | COMPARISONS | SIGNS | CONVERSIONS | CHLO

_APPLYING = "call map reduce reduce-window all-reduce all-reduce-start reduce-scatter collective-reduce scatter sort scan topk"
# The roles of the computations an instruction calls, in the order HloInstructionProto lists them; the last role repeats.
CALLERS: dict[str, tuple[str, ...]] = {
    "while": ("body", "condition"),
    "select-and-scatter": ("select", "scatter"),
    "conditional": ("branch_computations",),
    "custom-call": ("called_computations",),
    "fusion": ("calls",),
    "async-start": ("calls",),
    **dict.fromkeys(_APPLYING.split(), ("to_apply",)),
}
LEAVES = OPCODES - CALLERS.keys()

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


# The fewest operands of an opcode; those not listed may have none. One for atan2, because StableHLO's atan is read as atan2.
_UNARY = """
    abs acos acosh asin asinh atan2 atanh bitcast bitcast-convert broadcast cbrt ceil cholesky convert copy copy-start copy-done cosine
    cosh count-leading-zeros dynamic-slice erf exponential exponential-minus-one fft floor get-dimension-size get-tuple-element imag
    is-finite log log-plus-one logistic negate not popcnt real reduce-precision reshape reverse round-nearest-afz round-nearest-even
    rsqrt sign sine sinh slice sort sqrt tan tanh topk transpose while all-gather all-gather-start all-reduce all-reduce-start all-to-all
    reduce-scatter collective-permute collective-permute-start collective-broadcast concatenate conditional all-gather-done
    all-reduce-done collective-permute-done
"""
_BINARY = """
    add and complex compare convolution divide dot dynamic-update-slice gather maximum minimum multiply or pad power reduce
    reduce-window remainder shift-left shift-right-arithmetic shift-right-logical subtract triangular-solve xor
"""
LEAST_OPERANDS = {
    **dict.fromkeys(_UNARY.split(), 1),
    **dict.fromkeys(_BINARY.split(), 2),
    **dict.fromkeys(("clamp", "select", "scatter", "select-and-scatter"), 3),
}
