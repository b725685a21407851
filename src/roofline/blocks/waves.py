"""What the last blocks of a launch leave idle: the share of its time that the same work takes in blocks that fill all cores evenly."""


def even_share(blocks: int, cores: int) -> float:
    """The share where a core's own units are the limit: the time is that of the core with most blocks, side by side or in turn.

    >>> round(even_share(140, 132), 2)  # 8 cores have two blocks, all others one
    0.53
    """
    return blocks / cores / -(-blocks // cores)


def streamed_share(blocks: int, cores: int, fit: int, port: float) -> float:
    """The share where main memory is the limit: the last ``fit`` times ``cores`` blocks or fewer share its rate, of which a core alone can
    take ``port`` times its part.

    >>> round(streamed_share(140, 132, 1, 3.0), 2)  # the last 8 take 8/132 of the bytes at 8 * 3 / 132 of the rate
    0.8
    """
    full, rest = divmod(blocks / (fit * cores), 1)
    slowed = max(1.0, cores / (port * min(rest * fit * cores, cores))) if rest else 1.0
    return (full + rest) / (full + rest * slowed)
