"""Cost estimates that kernel authors attach to their calls: FLOP, transcendentals, bytes, bytes sent to other chips."""

from ....cost import NOTHING, Cost
from ....dtypes import DType, one_pass_note, passes_note, wider
from ....resource import TRANSCENDENTAL, Resource, vector
from ..contractions import unit_at
from ..types import Price, Site
from .settings import Config, integer
from .traffic import Misfit, results, traffic

ICI = Resource("ici")
FIELDS = ("flops", "transcendentals", "bytes_accessed")
# A kernel with more FLOP than this per element of its arrays uses elements more than once: it contains a product.
MATRIX_FLOPS_AN_ELEMENT = 16


def estimated(site: Site, estimate: Config, category: str, precision: str = "default") -> Price:
    """A call priced by its author's cost estimate, with products at ``precision``.

    Bytes are divided among the memories of its arrays in proportion to the arrays. The estimate does not name the unit: it is the matrix
    unit for more than 16 FLOP per element of its arrays, else the vector unit; the number format is that of the largest arrays.
    """
    flops, transcendentals, accessed = (integer(estimate, name) for name in FIELDS)
    remote = integer(estimate, "remote_bytes_transferred")
    if min(flops, transcendentals, accessed, remote) < 0:
        raise Misfit("a cost estimate below 0")
    unit, notes = _unit(site, flops, precision)
    work = Cost.of({unit: flops, TRANSCENDENTAL: transcendentals, ICI: remote})
    return Price(work + _shared(site, accessed), category, ("its author's cost estimate", *(notes if flops else ())))


def _unit(site: Site, flops: int, precision: str) -> tuple[Resource, tuple[str, ...]]:
    """The unit and number format that most likely run the work, and why."""
    arrays = [operand.shape for operand in site.operands if operand.shape.is_array and operand.shape.is_bounded] or list(results(site))
    largest = sorted(arrays, key=lambda shape: shape.elements, reverse=True)[:2]
    if not largest:
        raise Misfit("a cost estimate for a call without arrays")
    number: DType = wider(*(shape.number for shape in largest))
    touched = sum(shape.elements for shape in (*arrays, *results(site)))
    if flops > MATRIX_FLOPS_AN_ELEMENT * touched:
        unit = unit_at(number, site.platform, precision)
        passes = passes_note(unit.kind) or one_pass_note(number, unit.kind)  # fp32 runs as bf16 on TPUs only
        why = f"counted as {number} matrix work: more than {MATRIX_FLOPS_AN_ELEMENT} FLOP per element of its arrays"
        return unit, (why, passes) if passes else (why,)
    return vector(number), (f"counted as {number} elementwise work: at most {MATRIX_FLOPS_AN_ELEMENT} FLOP per element of its arrays",)


def _shared(site: Site, accessed: int) -> Cost:
    """Bytes over the memories where the call's arrays are."""
    moved = traffic(site)
    total = sum(amount for _, amount in moved.amounts)
    if not total:
        return Cost.of({"hbm": accessed})
    shares = [Cost.of({place: accessed * amount // total if isinstance(amount, int) else accessed}) for place, amount in moved.amounts]
    return sum(shares, NOTHING)
