"""Compiles the corpus of JAX functions for CPUs and freezes it with XLA's own cost analysis, instruction by instruction.

Run with a Python that has jax and can import roofline and the tests: ``PYTHONPATH=src:tests python tests/data/price/make.py``. Each
instruction is put alone into a module of its own, with its operands as parameters, and XLA is asked what it costs.
"""

import gzip
import json
import os
import re
import sys
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from jax._src.lib import xla_client
from jax.extend import backend
from jaxlib import _hlo

from data.price.corpus import CASES, compiled
from roofline.hlo.ir.module import Computation, HloModule, Instruction
from roofline.hlo.read import parse

# Opcodes that JAX does not lower to for CPUs.
BY_HAND = """HloModule by_hand

%add {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

%mapped {
  %d = f32[] parameter(0)
  %e = f32[] exponential(%d)
  ROOT %f = f32[] multiply(%e, %d)
}

ENTRY %main {
  %x = f32[6,13,13]{2,1,0} parameter(0)
  %y = f32[6,13,5]{2,1,0} parameter(1)
  %s = u64[2]{0} parameter(2)
  %g = f32[13]{0} parameter(3)
  %m = f32[13,13]{1,0} parameter(4)
  %w = f32[3,13,7]{2,1,0} parameter(5)
  %n = s64[3]{0} parameter(6)
  %v = f32[40]{0} parameter(7)
  %low = f32[] parameter(8)
  %cholesky = f32[6,13,13]{2,1,0} cholesky(%x), lower=true
  %solve = f32[6,13,5]{2,1,0} triangular-solve(%x, %y), left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE
  %bits = (u64[2]{0}, u32[77]{0}) rng-bit-generator(%s), algorithm=rng_philox
  %logistic = f32[6,13,13]{2,1,0} logistic(%x)
  %acos = f32[6,13,13]{2,1,0} acos(%x)
  %acosh = f32[6,13,13]{2,1,0} acosh(%x)
  %asin = f32[6,13,13]{2,1,0} asin(%x)
  %asinh = f32[6,13,13]{2,1,0} asinh(%x)
  %atanh = f32[6,13,13]{2,1,0} atanh(%x)
  %cosh = f32[6,13,13]{2,1,0} cosh(%x)
  %sinh = f32[6,13,13]{2,1,0} sinh(%x)
  %round = f32[6,13,13]{2,1,0} round-nearest-afz(%x)
  %barrier = f32[6,13,13]{2,1,0} opt-barrier(%x)
  %uniform = f32[40]{0} rng(%low, %low), distribution=rng_uniform
  %map = f32[13,13]{1,0} map(%m), dimensions={0,1}, to_apply=%mapped
  %ragged = f32[13,7]{1,0} ragged-dot(%m, %w, %n),
    lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
  %inference = f32[6,13,13]{2,1,0} batch-norm-inference(%x, %g, %g, %g, %g), epsilon=0.001, feature_index=1
  %norm = (f32[6,13,13]{2,1,0}, f32[13]{0}, f32[13]{0}) batch-norm-training(%x, %g, %g), epsilon=0.001, feature_index=1
  %top = (f32[6,13,3]{2,1,0}, s32[6,13,3]{2,1,0}) topk(%x), k=3, largest=true
  ROOT %sum = u64[2]{0} add(%s, %s)
}
"""
SKIPPED = {"parameter", "constant", "tuple", "get-tuple-element", "while", "conditional", "call", "bitcast", "after-all", "partition-id"}
HERE = Path(__file__).parent
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?(\S+) (?:\([^\n]*\) -> [^\n]*)?\{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
_CONTROL = re.compile(r", control-predecessors=\{[^{}]*\}")
_NOISE = re.compile(r", (?:metadata=\{[^{}]*\}|frontend_attributes=\{[^{}]*\}|origin=\{[^\n]*?\}\})")


def stripped(text: str) -> str:
    """The text without its tables of stack frames and its metadata, which no price needs."""
    head, _, rest = text.partition("\n")
    rest = re.sub(r"\n(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d+ .*\n)*", "\n", rest)
    return head + "\n" + re.sub(r"\n{3,}", "\n\n", _NOISE.sub("", rest))


def alone(module: HloModule, texts: dict[str, str], computation: Computation, instruction: Instruction) -> str:
    """A module of one instruction: the computations it calls, parameters for its operands, and itself."""
    needed: dict[str, None] = {}
    waiting = [call.computation for call in instruction.calls]
    while waiting:
        number = waiting.pop()
        called = module.computations[number]
        needed = {called.name: None, **needed} if called.name not in needed else needed
        waiting += [call.computation for inside in called.instructions for call in inside.calls]
    lines = ["HloModule alone\n"]
    lines += [f"%{name} {{\n{texts[name]}}}\n" for name in needed]
    lines.append("ENTRY %alone {")
    operands = computation.operands(instruction)
    lines += [f"  %operand.{place} = {operand.shape} parameter({place})" for place, operand in enumerate(operands)]
    listed = ", ".join(f"%operand.{place}" for place in range(len(operands)))
    lines.append(f"  ROOT %result = {instruction.shape} {instruction.opcode}({listed}){_CONTROL.sub('', str(instruction.raw))}\n}}")
    return "\n".join(lines)


def figures(text: str) -> dict[str, list[float]]:
    """FLOP, transcendentals and bytes of every instruction, as XLA counts them when it stands alone."""
    module = parse(text)
    texts = dict(_COMPUTATION.findall(text))
    client = backend.get_backend("cpu")
    found: dict[str, list[float]] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode in SKIPPED or instruction.name in found:
                continue
            one = alone(module, texts, computation, instruction)
            said = xla_client._xla.hlo_module_cost_analysis(client, _hlo.hlo_module_from_text(one))
            found[instruction.name] = [said.get(key, 0.0) for key in ("flops", "transcendentals", "bytes accessed")]
    return found


def main() -> None:
    frozen = {}
    for one in CASES:
        forms = {}
        for form, text in zip(("before", "after"), compiled(one), strict=True):
            short = stripped(text)
            forms[form] = {"text": short, "xla": figures(short)}
        frozen[one.name] = forms
        sys.stderr.write(f"{one.name}: {', '.join(str(len(kept['xla'])) for kept in forms.values())} instructions\n")
    frozen["by_hand"] = {"before": {"text": BY_HAND, "xla": figures(BY_HAND)}}
    with gzip.GzipFile(HERE / "corpus.json.gz", "wb", compresslevel=9, mtime=0) as file:
        file.write(json.dumps(frozen, separators=(",", ":"), sort_keys=True).encode())


if __name__ == "__main__":
    main()
