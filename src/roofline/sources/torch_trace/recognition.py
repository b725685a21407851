"""Recognises PyTorch profiler traces by their first bytes, and not other Chrome traces, such as those of JAX or TensorFlow."""

import re

_OWN = (
    rb'"(?:schemaVersion|deviceProperties|record_shapes|with_flops|with_stack|with_modules|profile_memory|cupti_version|cuda_driver_version'
    rb'|hip_driver_version|baseTimeNanoseconds|trace_id|distributedInfo)"\s*:'
    rb'|"cat"\s*:\s*"(?:cpu_op|python_function|cuda_runtime|cuda_driver|Operator|gpu_memcpy|gpu_user_annotation|ac2g|fwdbwd|user_annotation)"'
    rb'|"External id"|"Trace name"'
)
_EVENT = rb'"ph"\s*:\s*"[A-Za-z]"'
_EVENTS = rb'"traceEvents"\s*:\s*\['


def looks_like_trace(head: bytes) -> bool:
    """Whether these are the first bytes of a PyTorch profiler trace: an object or a bare list of events, with keys only it writes."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] not in (b"{", b"["):
        return False
    return bool(re.search(_OWN, head)) and bool(re.search(_EVENTS, head) or re.search(_EVENT, head) or b'"schemaVersion"' in head)
