"""Serving a model from one replica: prefill, time per output token, memory of keys and values, and the largest batch under an objective.

    step    layers · (products + attention over the cache + all-reduces + small kernels) + head + host
    tpot    step + batch · prefill of one prompt / tokens of an answer: each sequence waits for the prefills of the others
    batch   (usable memory - weights - what engines reserve) / (keys and values of a sequence)

Operations are predicted one by one (`prediction/`), in CUDA graphs or a compiled program; nothing is fitted to end-to-end runs. Queues are
not predicted: the first token comes after a prefill and the wait for it.
"""

from collections import defaultdict

from msgspec import Struct

from ..cost import Cost
from ..errors import UsageError
from ..formulas.moe import expected_experts
from ..operation import Attention as AttentionSizes
from ..operation import Collective
from ..prediction import predict
from ..units import parse
from .chips import LINK, Chips
from .times import single_ops
from .transformer import Attention, Experts, Layer, Matrix, Model, StateSpace
from .words import Format

SMALL_DENSE, SMALL_EXPERTS = 8, 16  # norms, rotation, append, quantization, routing and sums of a layer
HOST_S = 0.5e-3  # of a step: scheduling, sampling, detokenization
ONE_SHOT_S, ONE_SHOT_RANK_S = 5e-6, 0.6e-6  # of the engines' own all-reduce through peers' memory, which beats NCCL's for a few tokens
KV_BYTES = {"bf16": 2.0, "fp8": 1.0}
STATE_BYTES = 4.0  # of a state of a state-space layer: engines keep them in fp32


class Engines(Struct, frozen=True, kw_only=True):
    """How engines serve on a kind of chip: seconds of a small kernel, start to start, the share of the memory that they use, and what
    activations, graphs and libraries take of that. ``interval`` is of measured over predicted, for the reason that ``evidence`` gives.
    """

    kernel_s: float
    usable: float
    reserved: float
    interval: tuple[float, float]
    evidence: str

    def room(self, capacity: float, weights: float) -> float:
        """Bytes that weights leave of a device's memory for keys and values."""
        return self.usable * capacity - self.reserved - weights


GPU_ENGINES = Engines(
    kernel_s=2.5e-6,  # inside a CUDA graph (vLLM and TensorRT-LLM on H100)
    usable=0.9,
    reserved=parse("4 GB", "B"),
    interval=(0.72, 1.38),
    evidence="80% of public end-to-end rows: it held 13 of 16",
)
# Llama 3.1 8B on v6e (pytorch/xla #9376, vLLM: 32.9 ms with 31 sequences), Qwen3 32B in fp8 on v7x with 135 sequences (AI-Hypercomputer/
# tpu-recipes @ 6374419, vLLM, three lengths): 1.06, 0.75, 1.01 and 0.94 of the predicted time
TPU_ENGINES = Engines(
    kernel_s=1.2e-6,  # the floor of an op of a compiled program (machines/calibrations/tpu.toml)
    usable=0.98,  # as recipes of vLLM set it (AI-Hypercomputer/tpu-recipes, Trillium and Ironwood)
    reserved=parse("1 GB", "B"),
    interval=(0.6, 1.7),
    evidence="wider than four public rows on v6e and v7x, 0.75 to 1.06 of the prediction: too few for a share that it holds",
)


class Replica(Struct, frozen=True, kw_only=True):
    """One copy of a model: ``tensor`` devices, a batch of sequences, prompt and answer in tokens, formats of weights and cache.

    ``apart``: other replicas do the prefills.
    """

    tensor: int
    batch: int
    prompt: int
    answer: int
    format: Format
    kv: str = "bf16"
    apart: bool = False

    @property
    def context(self) -> float:
        """Tokens that a sequence has on average while it answers."""
        return self.prompt + self.answer / 2


class Served(Struct, frozen=True, kw_only=True):
    """What a replica does: seconds of a prefill and per output token with an interval, throughput, memory, and the parts of a step.

    ``most`` is the largest batch that fits; ``kv`` the bytes of keys and values of one sequence on a device. ``prefill_parts`` are those of
    a prefill.
    """

    mesh: dict[str, int]
    format: str
    batch: int
    prefill_s: float
    tpot_s: float
    low_s: float
    high_s: float
    tokens_per_s_per_chip: float
    parts: dict[str, float]
    prefill_parts: dict[str, float]
    weights: float
    kv: float
    most: int


class Server:
    """Times of a model on some devices, computed once for each size."""

    def __init__(self, model: Model, chips: Chips) -> None:
        self.model, self.chips = model, chips
        self.single = single_ops(chips.machine)
        self.engines = TPU_ENGINES if chips.is_tpu else GPU_ENGINES

    def pass_parts(self, replica: Replica, tokens: int, sequences: int, context: float, *, prefill: bool) -> dict[str, float]:
        """Seconds of one pass of ``tokens`` tokens of ``sequences`` sequences through all layers, by part."""
        parts: dict[str, float] = defaultdict(float)
        for layer in self.model.layers:
            for matrix in self.model.matrices[layer]:
                parts["products"] += layer.count * self.product(matrix, replica, tokens, layer)
            if isinstance(layer.mixer, Attention):
                parts["attention"] += layer.count * self.attention(layer.mixer, replica, tokens, sequences, context, prefill=prefill)
            elif layer.mixer:
                parts["attention"] += layer.count * self.scan(layer.mixer, replica, tokens, sequences)
            small = SMALL_EXPERTS if isinstance(layer.feed, Experts) else SMALL_DENSE
            parts["kernels"] += layer.count * small * self.engines.kernel_s
            parts["exchange"] += layer.count * layer.blocks * self.all_reduce(replica, tokens)
        parts["head"] = self.single.product(sequences, self.model.hidden, self.model.vocabulary / replica.tensor, "bf16", 1)
        return dict(parts)

    def product(self, matrix: Matrix, replica: Replica, tokens: int, layer: Layer) -> float:
        """Seconds of a matrix's product; of experts only those read that a token chooses."""
        ranks = replica.tensor
        compute = replica.format.compute if matrix.is_low else "bf16"
        if matrix.split == "experts" and isinstance(layer.feed, Experts):
            touched = max(1, round(expected_experts(matrix.copies, layer.feed.chosen, tokens)))
            wide = matrix.name == "experts_up"
            k, n = (matrix.k, matrix.n / ranks) if wide else (matrix.k / ranks, matrix.n)
            return self.single.product(tokens * matrix.used, k, n, compute, touched)
        k, n = float(matrix.k), float(matrix.n)
        if matrix.split == "columns":
            n /= ranks
        elif matrix.split == "rows":
            k /= ranks
        return self.single.product(tokens, k, n, compute, 1)

    def attention(self, mixer: Attention, replica: Replica, tokens: int, sequences: int, context: float, *, prefill: bool) -> float:
        """Seconds of attention over the cache, or of whole prompts."""
        heads, kv_heads = max(1.0, mixer.heads / replica.tensor), max(1.0, mixer.kv_heads / replica.tensor)
        key, value = mixer.widths
        if prefill:
            return self.single.attention(sequences, heads, kv_heads, max(1, tokens // sequences), key, value)[0]
        keys = round(min(context, mixer.window or context))
        kept = KV_BYTES[replica.kv] * (mixer.kept if mixer.latent else kv_heads * (key + value))
        wide = sum((mixer.latent.keys + mixer.latent.rope, mixer.latent.keys)) if mixer.latent else key + value
        cost = Cost.of({"matrix/bf16": 2.0 * sequences * keys * heads * wide, "hbm": sequences * keys * kept})
        sizes = None
        if not mixer.latent:
            sizes = AttentionSizes(batch=sequences, heads=heads, queries=1, keys=keys, size=key, kv_heads=kv_heads, causal=True)
        predicted = predict(sizes, cost, self.chips.machine, self.single.calibration)
        return predicted.time_s if predicted else 0.0

    def scan(self, mixer: StateSpace, replica: Replica, tokens: int, sequences: int) -> float:
        """Seconds of a state-space scan: the FLOP of the tokens, and the states of all sequences read and written."""
        share = 1 / replica.tensor
        moved = 2.0 * sequences * mixer.states * STATE_BYTES
        cost = Cost.of({"matrix/bf16": share * mixer.flops(tokens // sequences) * tokens, "hbm": share * moved})
        predicted = predict(None, cost, self.chips.machine, self.single.calibration)
        return predicted.time_s if predicted else 0.0

    def all_reduce(self, replica: Replica, tokens: int) -> float:
        """Seconds of the sum of a block's results over the tensor ranks."""
        if replica.tensor == 1:
            return 0.0
        size = tokens * self.model.hidden * 2.0
        sizes = Collective(kind="all-reduce", devices=replica.tensor, bytes=size, link=LINK)
        ceiling = self.chips.machine.ceiling(LINK)
        cost = Cost.of({LINK: 2 * size * (replica.tensor - 1) / replica.tensor / (ceiling.count if ceiling else 1)})
        predicted = predict(sizes, cost, self.chips.machine, self.single.calibration)
        once = ONE_SHOT_S + ONE_SHOT_RANK_S * replica.tensor + 2 * size * (replica.tensor - 1) / replica.tensor / self.chips.link
        return min(once, predicted.time_s) if predicted else 2 * self.chips.gather(size, 1, replica.tensor)

    def weights(self, replica: Replica) -> float:
        """Bytes of the weights on a device; embedding and head in bf16."""
        model = self.model
        embedding = model.embedding * (1 if model.tied else 2)
        return ((model.parameters - embedding) * replica.format.bytes + 2 * embedding) / replica.tensor

    def kv_bytes(self, replica: Replica) -> float:
        """Bytes of keys, values and states of one sequence at its longest, on a device: heads are split, a latent vector is not."""
        length, total = replica.prompt + replica.answer, 0.0
        for layer in self.model.layers:
            if isinstance(layer.mixer, Attention):
                kept = layer.mixer.kept / (1 if layer.mixer.latent else min(replica.tensor, layer.mixer.kv_heads))
                total += layer.count * kept * min(length, layer.mixer.window or length) * KV_BYTES[replica.kv]
            elif layer.mixer:
                total += layer.count * layer.mixer.states * STATE_BYTES / replica.tensor
        return total

    def serve(self, replica: Replica) -> Served:
        """What a replica does with a batch."""
        prefill_parts = self.pass_parts(replica, replica.prompt, 1, replica.prompt, prefill=True)
        prefill = sum(prefill_parts.values())
        parts = self.pass_parts(replica, replica.batch, replica.batch, replica.context, prefill=False)
        others = replica.batch * prefill / replica.answer
        parts |= {"host": HOST_S, "others' prefills": 0.0 if replica.apart else others}
        tpot = sum(parts.values())
        whole = tpot + others if replica.apart else tpot  # with the time of the replicas that prefill
        weights, kv = self.weights(replica), self.kv_bytes(replica)
        room = self.engines.room(self.chips.capacity, weights)
        if room < kv:
            what = f"{self.model.name} in {replica.format.name}"
            raise UsageError(
                f"{what} does not fit {replica.tensor} x {self.chips.machine.chip_name}: take more chips, or a narrower --format"
            )
        return Served(
            mesh={"tp": replica.tensor, "data": self.chips.devices // replica.tensor},
            format=replica.format.name,
            batch=replica.batch,
            prefill_s=prefill,
            tpot_s=tpot,
            low_s=self.engines.interval[0] * tpot,
            high_s=self.engines.interval[1] * tpot,
            tokens_per_s_per_chip=replica.batch / whole / replica.tensor * self.chips.machine.devices,
            parts=parts,
            prefill_parts=prefill_parts,
            weights=weights,
            kv=kv,
            most=int(room / kv),
        )
