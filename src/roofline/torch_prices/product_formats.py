"""The number format that a product runs in: the operands', except that fp32 may run as tf32, which only the kernel's name shows.

cuBLAS and CUTLASS name tf32 kernels (``tf32``, ``tensorop_s1688gemm``); those that name ``simt``, ``ffma`` or ``sgemm`` run on the vector
units. nvjet kernels are tensor-core ones. AMD's matrix units have fp32 itself (``Cijk_…_SB_…MI…``), and xf32 where the name says so.
"""

import re

from ..dtypes import DType, dtype, wider
from ..errors import FormulaError
from .call import Call, Tensor

TF32 = "fp32 operands, computed in tf32: the kernel's name says so"
ALLOWED = "fp32 operands, computed in tf32, which the program allows"
_TF32 = re.compile(r"tf32|xf32|tensorop_s1688gemm|nvjet", re.IGNORECASE)
_FP32 = re.compile(r"simt|ffma|sgemm|scudnn|f32f32_f32f32_f32|gemmk1|gemv|winograd|fft|Cijk", re.IGNORECASE)


def product_format(call: Call, *operands: Tensor, allow_tf32: bool = False) -> tuple[DType, tuple[str, ...]]:
    """The format that a product of these operands runs in, and notes."""
    known = [one.dtype for one in operands if one.dtype is not None]
    if not known:
        raise FormulaError(f"{call.op}: the recording lacks the operands' number formats")
    own = wider(*known)
    if own.rate != "fp32" or own.is_complex:
        return own, ()
    names = [kernel.name for kernel in call.kernels]
    if any(_TF32.search(name) for name in names):
        return dtype("tf32"), (TF32,)
    on_host = call.op in names  # on a CPU the op is its own kernel, and there is no tf32
    if on_host or any(_FP32.search(name) for name in names) or not (allow_tf32 or call.extra.get("allow_tf32")):
        return own, ()
    return dtype("tf32"), (ALLOWED,)
