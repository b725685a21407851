"""Programs of XLA as dataflow graphs, and those of the TPU compiler in the operators that were written."""

from .as_written import as_written
from .programs import Lowered, lowered

__all__ = ["Lowered", "as_written", "lowered"]
