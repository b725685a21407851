"""Which kind of hardware a program was compiled for, from what only that compiler writes."""

import re
from typing import Literal

from ...machine import Machine
from .module import HloModule

Platform = Literal["gpu", "tpu", "cpu"]

_MOST_SEARCHED = 20_000  # instructions: a compiled program shows its platform early
_GPU_TARGET = re.compile(r"__cu|__triton|triton|cu(?:dnn|blas|solver|sparse|fft)|__gpu|__onednn\$gpu|xla\.gpu|hip|roc|cub", re.IGNORECASE)
_TPU_TARGET = re.compile(r"tpu_custom_call|tpu|mosaic|megascale|Sparsecore", re.IGNORECASE)
_CPU_TARGET = re.compile(r"lapack_|xla_(?:ffi_)?python_cpu|__onednn|__xla_cpu|xla_cpu|__ynn|EigenMatMul|ducc_fft|TopK\Z", re.IGNORECASE)
_GPU_CONFIG = ("operation_queue_id", "fusion_backend_config", "gemm_backend_config", "cudnn_", "reification_cost", "device_type")
_TPU_CONFIG = ("window_config", "flag_configs", "scoped_memory_configs", "used_scoped_memory_configs", "aliasing_operands")
_CPU_CONFIG = ("outer_dimension_partitions", "onednn_", "ynn_")


def platform_of(machine: Machine) -> Platform:
    """The platform that programs for a machine are compiled for."""
    kinds: dict[str, Platform] = {"tpu": "tpu", "cpu": "cpu"}
    return kinds.get(machine.kind, "gpu")


def detect_platform(module: HloModule) -> Platform:
    """The platform a module was compiled for. If nothing in it shows that, a scheduled module counts as a CPU's, any other as a GPU's."""
    return named_platform(module) or ("cpu" if module.is_scheduled else "gpu")


def named_platform(module: HloModule) -> Platform | None:
    """The platform that a module's contents show it was compiled for; None if they do not.

    TPU programs have tiled layouts, GPU and CPU ones name their libraries or carry their backend's configuration.
    """
    looked = 0
    for computation in (module.entry_computation, *module.computations):
        for instruction in computation.instructions:
            looked += 1
            if any(shape.layout is not None and shape.layout.tiles for shape in instruction.shape.leaves):
                return "tpu"
            if instruction.opcode == "custom-call":
                target = instruction.custom_call_target
                for pattern, platform in _TARGETS:
                    if pattern.match(target):
                        return platform
            config = instruction.backend_config_text if instruction.opcode in _CONFIGURED else ""
            for signs, platform in _CONFIGS:
                if config and any(sign in config for sign in signs):
                    return platform
            if looked > _MOST_SEARCHED:
                break
    return None


_CONFIGURED = frozenset(
    ("fusion", "custom-call", "call", "dot", "convolution", "all-reduce", "all-reduce-start", "all-gather", "reduce", "copy")
)
_TARGETS: tuple[tuple[re.Pattern[str], Platform], ...] = ((_GPU_TARGET, "gpu"), (_TPU_TARGET, "tpu"), (_CPU_TARGET, "cpu"))
_CONFIGS: tuple[tuple[tuple[str, ...], Platform], ...] = ((_GPU_CONFIG, "gpu"), (_TPU_CONFIG, "tpu"), (_CPU_CONFIG, "cpu"))
