"""Plans: which mesh, microbatch, recomputation and format a model is trained with on some chips, how long a step takes, and what fits.

A model (`transformer`, from a configuration or the catalogue) on chips and networks (`machines`) with a mesh gives the time of a step and
its memory in parts, each a named function of a few lines; `search` tries what a question leaves free.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .plans import Plans
    from .serving_plans import ServingPlans
    from .transformer import Model


def plan(model: "str | Model", chip: str, count: int | str | None = None, *, anchor: str = "", **options: Any) -> "Plans":
    """The training plans of a model on chips, the best first; options are those of `roofline plan`.

    ``--max`` is ``most={"tp": 8}``, ``--set`` is ``settings={"graphs": "step"}``; lists and ``mesh`` may be words, lists and mappings.
    ``model`` is a name of the catalogue, or the path of a config.json or of a folder with one; ``anchor`` a measured step, such as
    ``pp=8 tp=4 data=rest mbs=1: 20.1 s``.
    """
    from .question import question
    from .search import find_plans

    return find_plans(question(model, chip, count, **options), anchor)


def plan_serving(model: str, chip: str, count: int | str | None = None, **options: Any) -> "ServingPlans":
    """The serving plans of a model on chips, the best first; the options are those of `roofline plan … serve`, with underscores."""
    from .serving_plans import find_serving

    return find_serving(model, chip, count, **options)
