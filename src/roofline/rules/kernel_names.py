"""The name of another kernel that evidence refers to. Rules know its number alone, and each source what it calls it."""

from collections.abc import Callable

from msgspec.structs import replace

from ..workload import Avoidable

KERNEL = "kernel"  # the fact that is the other kernel


def with_kernel_name(evidence: Avoidable, name: Callable[[int], str]) -> Avoidable:
    """Evidence that names the other kernel, if it refers to one."""
    number = evidence.facts.get(KERNEL)
    return replace(evidence, facts={**evidence.facts, KERNEL: name(number)}) if isinstance(number, int) else evidence
