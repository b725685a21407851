"""Losses of very many ops, computed in columns with numpy; equal to `losses.split_losses`, which handles ops one by one."""

from collections.abc import Mapping, Sequence

import numpy as np

from .losses import CAUSES, UNNEEDED, Losses, busy_share, with_idle


def split_loss_columns(
    seconds: Sequence[float],
    floor_s: Sequence[float],
    cause: Sequence[str],
    needed_s: Mapping[int, float],
    wall_s: float,
    busy_s: float | None,
) -> Losses:
    """The result of `split_losses` for ops in columns; ``needed_s`` has, by index, the ops of which not all work was needed."""
    busy, share = busy_share(spent := sum(seconds), wall_s, busy_s)
    mine = np.array(seconds) * share
    ran = np.minimum(floor_s, mine)
    needed = ran.copy()
    for place, least in needed_s.items():
        needed[place] = min(least, needed[place])
    codes = {name: code for code, name in enumerate(CAUSES)}
    each = np.array(list(map(codes.__getitem__, cause)), dtype=np.intp)
    # These sums add in order, like a loop, so that the results are identical.
    lost = dict(zip(CAUSES, np.bincount(each, mine - ran, len(CAUSES)).tolist(), strict=True))
    nothing = np.zeros(len(mine), dtype=np.intp)
    at_roof, unneeded = (np.bincount(nothing, one, 1).tolist()[0] for one in (needed, ran - needed))
    lost[UNNEEDED] += unneeded
    return with_idle(Losses(at_roof, lost), spent, wall_s, busy, share)
