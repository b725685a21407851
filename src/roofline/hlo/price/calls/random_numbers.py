"""Random numbers by library kernels."""

from ....cost import Cost
from ....resource import vector
from ..types import Price, Site
from .registry import call
from .traffic import output, priced

# Threefry-2x32 with 20 rounds makes two words: a round is an addition, a rotation (two shifts and an or) and an exclusive or; three
# additions follow every fourth round, two precede the first, and the third key word takes two exclusive ors.
THREEFRY_OPERATIONS = 20 * 5 + 5 * 3 + 2 + 2


@call("cu_threefry2x32_ffi", "hip_threefry2x32_ffi", "cu_threefry2x32", "hip_threefry2x32")
def threefry(site: Site) -> Price:
    """Threefry-2x32: 119 integer operations for each pair of words, on the vector unit."""
    pairs = output(site).elements
    return priced(site, Cost.of({vector("int32"): THREEFRY_OPERATIONS * pairs}), "random numbers", "Threefry-2x32, 20 rounds")
