"""HLO programs for tests: small ones written by hand, and generated ones."""

from hypothesis import strategies as st

from roofline.hlo.ir.module import HloModule
from roofline.hlo.read import parse

ADD = "add_f32 { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }\n".replace(") ", ")\n ").replace("{ ", "{\n ")
MAX = ADD.replace("add_f32", "max_f32").replace(" add(", " maximum(")


def module(body: str, before: str = "") -> HloModule:
    """A module from the lines of its entry."""
    lines = "\n".join(f"  {line.strip()}" for line in body.strip().splitlines())
    return parse(f"HloModule m\n\n{ADD}\n{MAX}\n{before}\nENTRY main {{\n{lines}\n}}\n")


@st.composite
def programs(draw: st.DrawFn, moving: bool = False) -> str:
    """The entry of a module: elementwise work, broadcasts, reductions, transposes and products over a few shapes, several results.

    With ``moving`` also slices and concatenations, of which only the needed elements are computed.
    """
    rows, columns = draw(st.sampled_from([(2, 3), (16, 40), (3, 30000)]))
    shapes = {"m": (rows, columns), "r": (rows,), "c": (columns,), "t": (columns, rows)}
    lines: list[str] = []
    values: list[tuple[str, str, str]] = []  # name, number format, shape

    def emit(text: str, kind: str, number: str = "f32") -> None:
        name = f"v{len(values)}"
        lines.append(f"{name} = {number}[{','.join(map(str, shapes[kind]))}] {text}")
        values.append((name, number, kind))

    for place in range(draw(st.integers(1, 3))):
        emit(f"parameter({place})", draw(st.sampled_from("mrc")))
    lines.append("zero = f32[] constant(0)")
    for _ in range(draw(st.integers(1, 14))):
        name, number, kind = draw(st.sampled_from(values))
        wide = number == "f32"
        choice = draw(st.sampled_from(["unary", "binary", "binary", "reduce", "broadcast", "convert", "transpose", "dot", "moving"]))
        same = [other for other, form, shape in values if shape == kind and form == number]
        if choice == "unary":
            emit(f"{draw(st.sampled_from(['negate', 'tanh', 'sine']))}({name})", kind, number)
        elif choice == "binary":
            emit(f"{draw(st.sampled_from(['add', 'multiply', 'subtract']))}({name}, {draw(st.sampled_from(same))})", kind, number)
        elif choice == "convert":
            emit(f"convert({name})", kind, "bf16" if wide else "f32")
        elif choice == "reduce" and kind == "m" and wide:
            axis = draw(st.integers(0, 1))
            emit(f"reduce({name}, zero), dimensions={{{axis}}}, to_apply=add_f32", "rc"[1 - axis], number)
        elif choice == "broadcast" and kind in "rc":
            emit(f"broadcast({name}), dimensions={{{'rc'.index(kind)}}}", "m", number)
        elif choice == "transpose" and kind in "mt":
            emit(f"transpose({name}), dimensions={{1,0}}", "t" if kind == "m" else "m", number)
        elif choice == "dot" and kind == "m":
            vectors = [other for other, form, shape in values if shape == "c" and form == number]
            if vectors:
                emit(f"dot({name}, {draw(st.sampled_from(vectors))}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}", "r", number)
        elif choice == "moving" and moving and kind == "m":
            cut = draw(st.integers(1, rows - 1))
            shapes[f"top{cut}"], shapes[f"rest{cut}"] = (cut, columns), (rows - cut, columns)
            emit(f"slice({name}), slice={{[0:{cut}], [0:{columns}]}}", f"top{cut}", number)
            emit(f"slice({name}), slice={{[{cut}:{rows}], [0:{columns}]}}", f"rest{cut}", number)
            emit(f"concatenate({values[-2][0]}, {values[-1][0]}), dimensions={{0}}", "m", number)
    results = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4, unique=True))
    shape = ", ".join(f"{number}[{','.join(map(str, shapes[kind]))}]" for _, number, kind in results)
    return "\n".join([*lines, f"ROOT out = ({shape}) tuple({', '.join(name for name, _, _ in results)})"])
