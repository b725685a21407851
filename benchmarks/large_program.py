"""How large programs and tables are analyzed: seconds and peak memory of whole commands, start-up included.

    python benchmarks/large_program.py [INSTRUCTIONS]

Writes a deep transformer, unrolled, of so many instructions (200,000): as it is traced, before any compiler fuses it; scheduled without
fusions; with the fusions and library calls of a compiled program; one chain of elementwise operations; and op tables of as many rows.
Every command runs in a process of its own, beside a bare pass over the same bytes that only splits them into lines. Figures of a busy
machine are compared by processor seconds over those of a loop of 5 million `x += i * i`, which takes about 0.85 s where nothing else runs:
`of a calm machine` is the processor time times 0.85 over what that loop takes just before and after. The loop fits in the first cache
and shows the clock alone: where other work shares the larger caches, a command slows by more, and only runs side by side compare.

The goals: a program of 200,000 instructions in 8 s and 800 MB, a table of 200,000 rows in 3 s.
Seen once of a CSV of 200,000 rows (20 MB), on a machine that took 1.74 s for 5 million `x += i * i` in Python: 3.8 s of CPU and 267 MB;
with a unit in each cell 6 s.
"""

import csv
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from timing import MEGABYTE, Taken, run, timed

TRIES = 2
CALM_S = 0.85  # of the loop
X, HEADS, WIDE, SCORES, ROWS = "f32[8,512,1024]", "f32[8,16,512,64]", "f32[8,512,4096]", "f32[8,16,512,512]", "f32[8,512]"
BARE = "import sys; [line.find('=') for line in open(sys.argv[1], 'rb').read().decode('utf-8', 'replace').split('\\n')]"


def layer(number: int) -> Iterator[tuple[str, str, str]]:
    """The operations of one layer before optimisation: name, shape and the rest of the line. It reads %x{number}, writes %x{number + 1}."""
    n = number

    def normalised(value: str, to: str) -> Iterator[tuple[str, str, str]]:
        yield f"{to}_sum", ROWS, f"reduce(%{value}, %zero), dimensions={{2}}, to_apply=%add_f32"
        yield f"{to}_count", ROWS, "broadcast(%width), dimensions={}"
        yield f"{to}_mean", ROWS, f"divide(%{to}_sum, %{to}_count)"
        yield f"{to}_mean_wide", X, f"broadcast(%{to}_mean), dimensions={{0,1}}"
        yield f"{to}_centred", X, f"subtract(%{value}, %{to}_mean_wide)"
        yield f"{to}_square", X, f"multiply(%{to}_centred, %{to}_centred)"
        yield f"{to}_square_sum", ROWS, f"reduce(%{to}_square, %zero), dimensions={{2}}, to_apply=%add_f32"
        yield f"{to}_variance", ROWS, f"divide(%{to}_square_sum, %{to}_count)"
        yield f"{to}_scale", ROWS, f"rsqrt(%{to}_variance)"
        yield f"{to}_scale_wide", X, f"broadcast(%{to}_scale), dimensions={{0,1}}"
        yield to, X, f"multiply(%{to}_centred, %{to}_scale_wide)"

    yield from normalised(f"x{n}", f"first{n}")
    for part in "qkv":
        contracted = "lhs_contracting_dims={2}, rhs_contracting_dims={0}"
        yield f"{part}{n}_dot", "f32[8,512,1024]", f"dot(%first{n}, %weights), {contracted}"
        yield f"{part}{n}_heads", "f32[8,512,16,64]", f"reshape(%{part}{n}_dot)"
        yield f"{part}{n}", HEADS, f"transpose(%{part}{n}_heads), dimensions={{0,2,1,3}}"
    batched = "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}"
    yield f"scores{n}", SCORES, f"dot(%q{n}, %k{n}), {batched}, rhs_contracting_dims={{3}}"
    yield f"largest{n}", "f32[8,16,512]", f"reduce(%scores{n}, %lowest), dimensions={{3}}, to_apply=%max_f32"
    yield f"largest_wide{n}", SCORES, f"broadcast(%largest{n}), dimensions={{0,1,2}}"
    yield f"shifted{n}", SCORES, f"subtract(%scores{n}, %largest_wide{n})"
    yield f"powers{n}", SCORES, f"exponential(%shifted{n})"
    yield f"total{n}", "f32[8,16,512]", f"reduce(%powers{n}, %zero), dimensions={{3}}, to_apply=%add_f32"
    yield f"total_wide{n}", SCORES, f"broadcast(%total{n}), dimensions={{0,1,2}}"
    yield f"weights{n}", SCORES, f"divide(%powers{n}, %total_wide{n})"
    yield f"mixed{n}", HEADS, f"dot(%weights{n}, %v{n}), {batched}, rhs_contracting_dims={{2}}"
    yield f"mixed_rows{n}", "f32[8,512,16,64]", f"transpose(%mixed{n}), dimensions={{0,2,1,3}}"
    yield f"joined{n}", X, f"reshape(%mixed_rows{n})"
    yield f"projected{n}", X, f"dot(%joined{n}, %weights), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}"
    yield f"middle{n}", X, f"add(%x{n}, %projected{n})"
    yield from normalised(f"middle{n}", f"second{n}")
    yield f"up{n}", WIDE, f"dot(%second{n}, %up), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}"
    yield f"gate{n}", WIDE, f"logistic(%up{n})"
    yield f"active{n}", WIDE, f"multiply(%up{n}, %gate{n})"
    yield f"down{n}", X, f"dot(%active{n}, %down), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}"
    yield f"x{n + 1}", X, f"add(%middle{n}, %down{n})"


REDUCERS = """
%add_f32 (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%max_f32 (c: f32[], d: f32[]) -> f32[] {
  %c = f32[] parameter(0)
  %d = f32[] parameter(1)
  ROOT %larger = f32[] maximum(%c, %d)
}
"""
INPUTS = f"""  %x0 = {X} parameter(0)
  %weights = f32[1024,1024] parameter(1)
  %up = f32[1024,4096] parameter(2)
  %down = f32[4096,1024] parameter(3)
  %zero = f32[] constant(0)
  %lowest = f32[] constant(-inf)
  %width = f32[] constant(1024)
"""


def source(name: str, number: int) -> str:
    """The metadata of an instruction of one layer: its scope and line."""
    return f'metadata={{op_name="jit(step)/layer_{number}/{name}" source_file="/app/model.py" source_line={len(name)}}}'


def traced(count: int, out: Path, header: str = "HloModule jit_step") -> None:
    """A transformer as it is traced: one computation, no fusions."""
    with out.open("w") as file:
        file.write(f"{header}, entry_computation_layout={{({X})->{X}}}\n{REDUCERS}\nENTRY %main (x0: {X}) -> {X} {{\n{INPUTS}")
        written = number = 0
        while written < count:
            lines = [f"  %{name} = {shape} {rest}, {source(name, number)}\n" for name, shape, rest in layer(number)]
            file.writelines(lines)
            written, number = written + len(lines), number + 1
        file.write(f"  ROOT %result = {X} negate(%x{number})\n}}\n")


def scheduled(count: int, out: Path) -> None:
    """The same as a compiler that fuses nothing would leave it: each instruction is an op."""
    traced(count, out, "HloModule jit_step, is_scheduled=true")


def compiled(count: int, out: Path) -> None:
    """The same, compiled for a GPU: products are library calls, what lies between them fusions, each with a computation of its own."""
    bodies, entry, written, number = [], [], 0, 0
    config = '{"gemm_backend_config":{"alpha_real":1,"beta":0,"dot_dimension_numbers":%s,"precision_config":{"operand_precision":[]}}}'
    while written < count:
        inner: list[tuple[str, str, str]] = []
        made = {"x0", "weights", "up", "down"} if number == 0 else {f"x{number}", "weights", "up", "down"}
        for name, shape, rest in layer(number):
            if rest.startswith("dot("):
                written += fusion(inner, made, bodies, entry, number)
                operands = rest[4 : rest.index(")")]
                numbers = json.dumps(dims(rest))
                entry.append(
                    f"  %{name}_call = ({shape}{layout(shape)}, s8[4194304]{{0}}) custom-call({operands}), "
                    f'custom_call_target="__cublas$gemm", {source(name, number)}, backend_config={config % numbers}\n'
                    f"  %{name} = {shape}{layout(shape)} get-tuple-element(%{name}_call), index=0, {source(name, number)}\n"
                )
                made.add(name)
                written += 2
            else:
                inner.append((name, shape, rest))
        written += fusion(inner, made, bodies, entry, number)
        number += 1
    with out.open("w") as file:
        head = f"HloModule jit_step, is_scheduled=true, entry_computation_layout={{({X})->{X}}}\n"
        file.write(f"{head}{REDUCERS}\n{''.join(bodies)}ENTRY %main (x0: {X}) -> {X} {{\n")
        file.write("".join(INPUTS.splitlines(keepends=True)[:4]))
        file.writelines(entry)
        file.write(f"  ROOT %result = {X}{layout(X)} copy(%x{number})\n}}\n")


def dims(rest: str) -> dict[str, list[str]]:
    """The dimension numbers of a dot, as library calls name them."""
    return {f"{kind}_dimensions": numbers.split(",") for kind, numbers in re.findall(r"(\w+)_dims=\{([\d,]+)\}", rest)}


def layout(shape: str) -> str:
    return "{" + ",".join(map(str, reversed(range(shape.count(",") + 1)))) + "}" if "," in shape or shape[4] != "]" else ""


def fusion(inner: list[tuple[str, str, str]], made: set[str], bodies: list[str], entry: list[str], number: int) -> int:
    """Operations that became one kernel, its results a tuple; how many instructions that wrote."""
    if not inner:
        return 0
    name = f"fusion_{inner[-1][0]}"
    defined = {one for one, _, _ in inner}
    asked = [word.strip(" %") for _, _, rest in inner for word in rest[rest.index("(") + 1 : rest.index(")")].split(",")]
    constants = {"zero": "0", "lowest": "-inf", "width": "1024"}
    taken = [word for word in dict.fromkeys(asked) if word not in defined and word not in constants]
    shapes = {f"x{number}": X, "up": "f32[1024,4096]", "weights": "f32[1024,1024]", **{one: shape for one, shape, _ in layer(number)}}
    lines = [f"  %{one} = {shapes[one]} parameter({place})\n" for place, one in enumerate(taken)]
    lines += [f"  %{one} = f32[] constant({constants[one]})\n" for one in constants if one in asked]
    lines += [f"  %{one} = {shape} {rest}, {source(one, number)}\n" for one, shape, rest in inner]
    kept = [one for one, _, _ in inner if one.startswith(("x", "middle", "first", "second", "q", "k", "v", "weights", "joined", "active"))]
    kept = [one for one in kept if "_" not in one] or [inner[-1][0]]
    kept = kept if len(kept) < len(inner) else [inner[-1][0]]
    results = ", ".join(f"{shapes[one]}{layout(shapes[one])}" for one in kept)
    lines.append(f"  ROOT %result = ({results}) tuple({', '.join('%' + one for one in kept)})\n")
    bodies.append(f"%{name}_body ({taken[0]}: {shapes[taken[0]]}) -> ({results}) {{\n{''.join(lines)}}}\n\n")
    operands = ", ".join("%" + one for one in taken)
    entry.append(f"  %{name} = ({results}) fusion({operands}), kind=kInput, calls=%{name}_body, {source(name, number)}\n")
    for place, one in enumerate(kept):
        entry.append(f"  %{one} = {shapes[one]}{layout(shapes[one])} get-tuple-element(%{name}), index={place}\n")
        made.add(one)
    count = len(lines) + 1 + len(kept)
    inner.clear()
    return count


def chain(count: int, out: Path) -> None:
    """One long chain of elementwise operations that all read one parameter."""
    with out.open("w") as file:
        file.write("HloModule jit_chain\n\nENTRY %main (x: f32[1024]) -> f32[1024] {\n  %x = f32[1024] parameter(0)\n")
        value = "x"
        for number in range(count):
            opcode = ("add", "multiply", "maximum")[number % 3]
            file.write(f"  %v{number} = f32[1024] {opcode}(%{value}, %x), {source(opcode, number % 100)}\n")
            value = f"v{number}"
        file.write(f"  ROOT %result = f32[1024] negate(%{value})\n}}\n")


FIELDS = "name", "category", "module", "scope", "count", "time", "flops", "dtype", "bytes"


def rows(count: int) -> Iterator[tuple[str, str, str, str, int, float, float, str, float]]:
    """Rows of an op table: products, elementwise work and copies of many sizes and speeds, some unknown."""
    chance = random.Random(0)
    for number in range(count):
        kind = ("dot", "fusion", "copy")[number % 3]
        moved = chance.lognormvariate(16, 2)
        flops = moved * chance.lognormvariate(4, 1) if kind == "dot" else moved if kind == "fusion" else 0.0
        seconds = max(flops / 900e12, moved / 4e12) * chance.lognormvariate(1, 1) + 1e-6
        yield f"{kind}.{number}", kind, "jit_step", f"layer_{number // 50}/{kind}", 1, seconds, flops, "bf16", moved


def csv_table(count: int, out: Path) -> None:
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        writer.writerows(rows(count))


def json_lines(count: int, out: Path) -> None:
    with out.open("w") as file:
        file.writelines(json.dumps(dict(zip(FIELDS, row, strict=True))) + "\n" for row in rows(count))


KINDS: dict[str, tuple[str, Callable[[int, Path], None]]] = {
    "traced": ("hlo", traced),
    "scheduled": ("hlo", scheduled),
    "compiled": ("hlo", compiled),
    "chain": ("hlo", chain),
    "CSV table": ("analyze", csv_table),
    "JSON Lines table": ("analyze", json_lines),
}


def loop_s() -> float:
    """Processor seconds of a loop that shows how busy the machine is."""
    start, total = time.process_time(), 0
    for number in range(5_000_000):
        total += number * number
    return time.process_time() - start


def calm(command: Sequence[str | Path]) -> tuple[Taken, float]:
    """What a command takes, the least of several runs, and its processor seconds as on a calm machine."""
    found = []
    for _ in range(TRIES):
        before, taken, after = loop_s(), run(command), loop_s()
        found.append((taken.processor * CALM_S * 2 / (before + after), taken))
    seconds, taken = min(found)
    return taken, seconds


def main() -> None:
    if sys.argv[1:2] == ["--write"]:
        KINDS[sys.argv[2]][1](int(sys.argv[3]), Path(sys.argv[4]))
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    heads = f"{'input MB':>10}{'processor s':>13}{'of a calm machine':>19}{'MB':>8}{'bare s':>10}{'--json':>10}{'--csv':>10}"
    print(f"{count:,} instructions or rows\n{'':22}{heads}")
    with tempfile.TemporaryDirectory() as folder:
        for kind, (command, _) in KINDS.items():
            path = Path(folder, "large")
            # In a process of its own: a child's peak memory begins at what its parent holds.
            subprocess.run([sys.executable, __file__, "--write", kind, str(count), path], check=True)
            bare, _ = timed([sys.executable, "-c", BARE, path], TRIES)
            roofline = sys.executable, "-m", "roofline", command, path, "--chip", "h200"
            taken, seconds = calm(roofline)
            written = [calm([*roofline, option, os.devnull])[1] for option in ("--json", "--csv")]
            size = path.stat().st_size / MEGABYTE
            figures = f"{size:10.1f}{taken.processor:13.2f}{seconds:19.2f}{taken.megabytes:8.0f}{bare:10.3f}"
            print(f"{kind:22}{figures}{written[0]:10.2f}{written[1]:10.2f}", flush=True)


if __name__ == "__main__":
    main()
