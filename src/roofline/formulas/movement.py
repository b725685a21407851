"""Data movement: operations with little or no arithmetic."""

from ..cost import plain_number
from ..ledger import Ledger, read, send, write
from ..operation import Streamed
from ..resource import Resource
from .compute_units import number, port, vector_work
from .notation import Dim, Format, Level
from .registry import formula

HOST_BUS = "host memory is reached over PCIe, whose bytes are counted on pcie too"


@formula("copy", group="movement", example=(2**28,), aliases=("memcpy", "clone", "aten::copy_"))
def copy(elements: Dim, *, dtype: Format = "bf16", source: Level = "hbm", target: Level = "hbm") -> Ledger:
    """Elements read from one memory and written to another: no FLOP.

    bytes = elements read at `source` and written at `target`; between host and device they also cross PCIe.
    """
    one = number(dtype)
    rows = (read("x", (elements,), one, level=port(source, "read")), write("out", (elements,), one, level=port(target, "write")))
    if (source == "host") != (target == "host"):
        return Ledger("copy", rows=(*rows, send("x", (elements,), one, level=Resource("pcie"))), notes=(HOST_BUS,))
    return Ledger("copy", rows=rows, operation=Streamed(kind="elementwise"))


@formula("transpose", group="movement", example=(8192, 8192), aliases=("permute_dims",))
def transpose(rows: Dim, columns: Dim, *, dtype: Format = "bf16") -> Ledger:
    """Y[j, i] = X[i, j]: every element read once and written once, no FLOP.

    This is the traffic of a transpose that stages tiles on chip; one that strides through memory moves whole cache lines for single
    elements.
    """
    one = number(dtype)
    moved = (read("x", (rows, columns), one), write("out", (columns, rows), one))
    return Ledger("transpose", rows=moved, operation=Streamed(kind="transpose", elements=plain_number(rows * columns)))


@formula("concatenate", group="movement", example=(2**28,), aliases=("concat", "cat", "aten::cat"))
def concatenate(elements: Dim, *, parts: int = 2, dtype: Format = "bf16") -> Ledger:
    """Several tensors joined into one of `elements`: every element read once and written once, no FLOP."""
    one = number(dtype)
    return Ledger("concatenate", rows=(read(f"{parts} parts", (elements,), one), write("out", (elements,), one)))


@formula("gather", group="movement", example=(8192, 4096), aliases=("take", "index_select", "aten::index_select"))
def gather(rows: Dim, width: Dim, *, dtype: Format = "bf16", indices: Format = "int32") -> Ledger:
    """Y[i] = X[index[i]]: only the selected rows of X are read, and written.

    bytes = rows·width elements read and written, and one index per row.
    """
    one = number(dtype)
    moved = (read("indices", (rows,), number(indices)), read("x", (rows, width), one), write("out", (rows, width), one))
    return Ledger("gather", rows=moved, notes=("only the selected rows are counted",))


@formula("scatter", group="movement", example=(8192, 4096), aliases=("index_put", "index_add", "dynamic_update_slice"))
def scatter(
    rows: Dim, width: Dim, *, accumulate: bool = False, dtype: Format = "bf16", indices: Format = "int32", compute: Format = None
) -> Ledger:
    """X[index[i]] = Y[i], in place: only the selected rows are written; adding to them reads them too.

    bytes = rows·width elements read and written, and one index per row; `accumulate` reads the target rows and does 1 FLOP per element.
    """
    one = number(dtype)
    moved = (read("indices", (rows,), number(indices)), read("updates", (rows, width), one), write("x", (rows, width), one))
    if not accumulate:
        return Ledger("scatter", rows=moved, notes=("only the selected rows are counted",))
    work = vector_work(rows * width, 0, compute, one)
    return Ledger("scatter", work, (*moved, read("x", (rows, width), one)), ("only the selected rows are counted",))


@formula("embedding", group="movement", example=(8192, 4096), aliases=("embedding_lookup", "aten::embedding"))
def embedding(
    tokens: Dim, width: Dim, *, vocabulary: Dim | None = None, dtype: Format = "bf16", indices: Format = "int32", out: Format = None
) -> Ledger:
    """One row of a table for each token: tokens x width elements are gathered, whatever the size of the table.

    bytes = tokens·width elements read and written, and one index per token. With `vocabulary`, a row that several tokens share is read
    once, so at most the whole table is read.
    """
    one = number(dtype)
    distinct = tokens if vocabulary is None else min(tokens, vocabulary)
    rows = (
        read("indices", (tokens,), number(indices)),
        read("table", (distinct, width), one),
        write("out", (tokens, width), number(out, dtype)),
    )
    return Ledger("embedding", rows=rows, notes=("only the selected rows are counted",))
