"""Kinds of advice: what ops of each have in common, and what to do about it. `docs/findings.md` has a section on each."""

from msgspec import Struct

CLOSE, FAR, FAR_BELOW = 0.7, 0.4, 0.1  # of the roofline; choices: good kernels reach 0.7 to 0.9 (`REACHABLE`)


class Kind(Struct, frozen=True):
    """What ops with one kind of finding have in common, and what to do about it."""

    phrase: str
    levers: tuple[str, ...]


KINDS: dict[str, Kind] = {
    "out-of-memory": Kind(
        "need more memory than the machine has",
        (
            "donate arguments that the program replaces: parameters, optimizer state, a cache (donate_argnums)",
            "recompute the activations of the largest scopes instead of keeping them (jax.checkpoint, torch.utils.checkpoint)",
            "hold less at once: a smaller batch with gradient accumulation, narrower formats",
            "spread it over more devices: shard parameters, optimizer state and activations",
        ),
    ),
    "above-roof": Kind(
        "are faster than the roofline allows",
        (
            "check the count: bytes served by a cache, skipped work, executions counted twice",
            "check the ceiling: the right chip, whole chip or one device, the right number format",
            "check the time: does it cover every kernel of the op?",
        ),
    ),
    "between-roofs": Kind(
        "exceed main-memory bandwidth: part of their data stays on chip",
        (
            "tile so that more of the working set stays in the faster memory",
            "order tiles so that neighbours reuse data that is still on chip",
            "count bytes per memory level to see which one limits",
        ),
    ),
    "latency": Kind(
        "are latency-bound: too little work per launch",
        (
            "batch small operations into one, or fuse them with a neighbour",
            "compile or capture the sequence (a jitted step, a graph) so that no Python runs between kernels",
            "use a persistent kernel that does many pieces of work in one launch",
        ),
    ),
    "no-overlap": Kind(
        "take the sum of the times on their units: nothing overlaps",
        (
            "prefetch: load the next tile or weight while this one is computed (double buffering, asynchronous copies)",
            "start communication early and overlap it with independent work",
            "give the scheduler more independent work: more tiles or blocks in flight",
        ),
    ),
    "far-below": Kind(
        f"run below {FAR_BELOW:.0%} of their roofline",
        (
            "check for host overhead: Python between small kernels, synchronisation and transfers leave the device idle",
            "launch fewer, larger kernels: batch, fuse, or make them persistent",
            "check access patterns: strided or irregular access lowers the achievable bandwidth",
            "check that the work fills the device: enough blocks, no long tail",
        ),
    ),
    "network-bound": Kind(
        "are communication-bound",
        (
            "overlap communication with work that does not depend on it",
            "send fewer bytes: a sharding with less communication, a narrower number format",
            "keep the axis with the most communication inside the fastest domain; use the slow network only for axes with little",
            "use more links at once: a collective that follows the topology",
        ),
    ),
    "memory-far": Kind(
        f"are memory-bound below {FAR:.0%} of their roofline",
        (
            "make access contiguous and wide: coalesced loads, a layout without transposes or padding",
            "keep more loads in flight: occupancy, larger blocks, asynchronous copies",
            "fuse with neighbours, so that intermediates never reach memory",
        ),
    ),
    "memory-middle": Kind(
        f"are memory-bound at {FAR:.0%} to {CLOSE:.0%} of their roofline",
        (
            "tune tiles, vector width and loads in flight before changing the algorithm",
            "fuse with neighbours, so that intermediates never reach memory",
        ),
    ),
    "memory-close": Kind(
        f"are memory-bound above {CLOSE:.0%} of their roofline and need fewer bytes or more bandwidth",
        (
            "fuse with neighbours, so that intermediates never reach memory",
            "store narrower number formats: bf16, fp8, int8 or int4 weights",
            "reuse each byte more: tiling, a larger batch",
            "use a faster memory: keep data on chip, or choose a chip with more bandwidth",
        ),
    ),
    "compute-far": Kind(
        f"are compute-bound below {FAR:.0%} of their roofline",
        (
            "fill the unit: shapes that are multiples of its tile, more blocks than cores, no partial last wave",
            "raise occupancy or instruction parallelism, so that the unit stays busy",
            "check that the matrix unit is used, in the intended number format",
        ),
    ),
    "compute-middle": Kind(
        f"are compute-bound at {FAR:.0%} to {CLOSE:.0%} of their roofline",
        (
            "tune tile sizes and pipelining; try the vendor's kernel or an autotuned one",
            "check clocks and power: a chip at its power limit runs below its peak",
        ),
    ),
    "compute-close": Kind(
        f"are compute-bound above {CLOSE:.0%} of their roofline and need less work or faster hardware",
        (
            "do fewer FLOP: sparsity, low rank, a better algorithm, less recomputation",
            "use a narrower number format with a higher peak, where accuracy allows",
            "spread the work over more devices, if the links are fast enough",
        ),
    ),
    "memory-bound": Kind(
        "are memory-bound",
        (
            "raise the arithmetic intensity: a larger batch, tiling, fusion with neighbours",
            "store narrower number formats: bf16, fp8, int8 or int4 weights",
            "use a faster memory: keep data on chip, or choose a chip with more bandwidth",
        ),
    ),
    "compute-bound": Kind(
        "are compute-bound",
        (
            "do fewer FLOP: sparsity, low rank, a better algorithm",
            "use a unit or number format with a higher peak",
            "spread the work over more devices, if the links are fast enough",
        ),
    ),
    "near-ridge": Kind(
        "are near the ridge point, where compute and memory take the same time",
        (
            "check both: a small change of batch, tiling or number format changes the bound",
            "overlap compute and memory: without overlap the kernel takes nearly twice as long",
        ),
    ),
    "vector-instead-of-matrix": Kind(
        "multiply matrices on the vector unit",
        (
            "use a number format that the matrix unit supports (tf32, bf16, fp16, fp8)",
            "write it as a matmul that the compiler recognises; pad small or odd dimensions",
        ),
    ),
    "low-batch": Kind(
        "use each weight they read for too few rows",
        (
            "batch more rows (requests, tokens, examples): each weight is read once for all of them",
            "quantize the weights (int8, int4): half the bytes need half the batch",
        ),
    ),
    "unrated": Kind(
        "use a resource without a known rate",
        (
            "give the rate with --set, or in a machine file",
            "measure it with a small benchmark",
        ),
    ),
    "straggler": Kind(
        "wait for one slow device or host",
        (
            "compare its clocks, power and temperature with the others': a throttled device is slower in every op by the same factor",
            "check its host: input pipeline, other processes, late launches",
            "check the partition: the same shapes everywhere, no device with more experts, longer sequences or more padding",
            "replace it and measure again",
        ),
    ),
    "unknown": Kind(
        "have an unknown cost",
        (
            "give their FLOP and bytes: columns of a table, rl.register_op for PyTorch, else the option or function that their notes name",
            "collect hardware counters for them",
        ),
    ),
}
