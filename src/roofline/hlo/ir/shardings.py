"""Shardings: along which device axes each dimension of an array is split.

A device axis is a prime factor of the device number, as (stride, size): of 8 devices laid out as a mesh of 2 x 4, the first mesh axis is
(4, 2), the second (2, 2) and (1, 2). Equal shardings are then equal values, however they are spelled.

>>> parse_sharding('{devices=[2,1,4]<=[8] last_tile_dim_replicate}', 2, {})
(((4, 2),), ())
>>> parse_sharding('#sdy.sharding<@mesh, [{"y"}, {}]>', 2, {"mesh": (("x", 2), ("y", 4))})
(((2, 2), (1, 2)), ())
"""

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from math import prod

Axis = tuple[int, int]  # stride and size of a factor of the device number
Axes = tuple[Axis, ...]
Sharding = tuple[Axes, ...]  # the axes of each dimension, major to minor
Mesh = tuple[tuple[str, int], ...]  # names and sizes of its axes

MESHES = "xla.sdy.meshes"  # the frontend attribute of a module that has them
MANUAL = ("SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape")

_TILES = re.compile(r"devices=\[([\d,\s]*)\](?:<=\[([\d,\s]*)\](?:T\(([\d,\s]*)\))?|([\d,\s]*))")
_LAST_TILES = re.compile(r"last_tile_dims=\{([^{}]*)\}")
_MESH = re.compile(r"(\w+)\s*=\s*#?(?:sdy\.)?mesh<\[([^\]]*)\]")
_INLINE_MESH = re.compile(r"mesh(?:<\[|\[)([^\]]*)\]")
MOST_DEVICES = 2**24  # of a mesh; a file with more is damaged
_MESH_AXIS = re.compile(r"""["']([^"']*)["']\s*=\s*(\d{1,19})""")
_MESH_NAME = re.compile(r"@\"?([\w.\-]+)")
_DIMENSION = re.compile(r"\{([^{}]*)\}")
_DIMENSION_AXIS = re.compile(r"""["']([^"']*)["'](?::\((\d{1,19})\)(\d{1,19}))?""")


def meshes_of(text: str) -> dict[str, Mesh]:
    """The meshes of a module by name, from its frontend attribute."""
    return {name: _mesh(axes) for name, axes in _MESH.findall(text.replace('\\"', '"'))}


def parse_shardings(text: str, ranks: tuple[int, ...], meshes: Mapping[str, Mesh]) -> tuple[Sharding | None, ...]:
    """The shardings of the arrays of a value; ``None`` for one that is not given or not supported."""
    parts = parts_of(text)
    if len(parts) == 1 and len(ranks) > 1:
        parts *= len(ranks)
    if len(parts) != len(ranks):
        return (None,) * len(ranks)
    return tuple(parse_sharding(part, rank, meshes) for part, rank in zip(parts, ranks, strict=True))


def parse_sharding(text: str, rank: int, meshes: Mapping[str, Mesh]) -> Sharding | None:
    """The sharding of one array, as HLO, Shardy or a proto spells it; ``None`` if it is not supported."""
    if match := _TILES.search(text):
        sharding = _tiled(text, match)
    elif "@" in text or "mesh" in text:
        sharding = _along_mesh(text, meshes)
    elif "unknown" in text:
        return None
    else:
        sharding = ()  # replicated, maximal, manual
    return (*sharding, *(() for _ in range(rank - len(sharding))))[:rank] if sharding is not None else None


def device_count(text: str, meshes: Mapping[str, Mesh]) -> int:
    """The number of devices of a sharding; 1 if it has none."""
    text = text.replace('\\"', '"')
    counts = [prod(_numbers(match[1])) for match in _TILES.finditer(text)]
    counts += [prod(size for _, size in _mesh(axes)) for axes in _INLINE_MESH.findall(text)]
    counts += [prod(size for _, size in meshes[name]) for name in _MESH_NAME.findall(text) if name in meshes]
    return max(counts, default=1)


def open_dimensions(text: str, rank: int) -> frozenset[int]:
    """The dimensions that a sharding leaves to the partitioner: ``{?}`` or ``{"x", ?}`` in Shardy."""
    listed = _DIMENSION.findall(text[text.find("[{") + 1 :]) if "[{" in text else []
    return frozenset(place for place, inside in enumerate(listed[:rank]) if "?" in inside)


def ways(axes: Axes) -> int:
    """The number of parts into which these axes split a dimension."""
    return prod(size for _, size in axes)


def axes_of(sharding: Sharding) -> Axes:
    """All axes that an array is split along."""
    return tuple(chain(*sharding))


def axes_of_groups(groups: Iterable[Collection[int]]) -> Axes | None:
    """The axes that groups of devices span; ``None`` if they span none, or not the same.

    >>> axes_of_groups([[0, 4, 8, 12], [1, 5, 9, 13]])
    ((8, 2), (4, 2))
    """
    spanned = {tuple(_digits(tuple(device - min(group) for device in sorted(group)))) for group in groups if group}
    if len(spanned) != 1:
        return None
    (axes,) = spanned
    return axes if all(stride > 0 for stride, _ in axes) else None


def parts_of(text: str) -> list[str]:
    """The shardings of the parts of a tuple: the items of the outermost brackets with more than one."""
    inside = text.replace('\\"', '"').strip()
    if "sharding_per_value<" in inside:
        inside = inside.partition("sharding_per_value<")[2]
        return _pieces(inside[inside.find("[") + 1 : inside.rfind("]")])
    if inside.startswith("{") and re.match(r"\{\s*(?:/\*.*?\*/\s*)?\{", inside):
        return _pieces(inside[1 : inside.rfind("}")])
    return [inside]


def _pieces(text: str) -> list[str]:
    """The parts of a list that are separated by commas outside brackets."""
    pieces, depth, start = [], 0, 0
    for place, mark in enumerate(text):
        if mark in "{[(<" and text[place : place + 2] != "<=":
            depth += 1
        elif mark in "}])>":
            depth -= 1
        elif mark == "," and depth == 0:
            pieces.append(text[start:place])
            start = place + 1
    pieces.append(text[start:])
    return [piece for piece in pieces if piece.strip()]


def _tiled(text: str, match: re.Match[str]) -> Sharding | None:
    """``devices=[2,1,4]<=[8]``: the tiles of each dimension, then of replicated or manual axes."""
    tiles = _numbers(match[1])
    if match[2] is not None:
        reshape, order = _numbers(match[2]), _numbers(match[3] or "")
        if max((*tiles, *reshape), default=0) > MOST_DEVICES:
            return None
        strides = [prod(reshape[place + 1 :]) for place in range(len(reshape))]
        digits = [axis for place in order or range(len(reshape)) for axis in _primes(strides[place], reshape[place])]
    else:
        digits = _digits(_numbers(match[4]))
    if prod(size for _, size in digits) != prod(tiles):
        return None
    replicated = 1 if "last_tile_dim_replicate" in text else 0
    if last := _LAST_TILES.search(text):
        replicated = len(last[1].split(","))
    tiled: list[Axes] = []
    for tile in tiles:
        taken: list[Axis] = []
        while ways(tuple(taken)) < tile and digits:
            taken.append(digits.pop(0))
        if ways(tuple(taken)) != tile:
            return None
        tiled.append(tuple(taken))
    return tuple(tiled[: len(tiled) - replicated])


def _digits(devices: tuple[int, ...]) -> list[Axis]:
    """The axes of devices that are listed one by one, if they form a grid; else axes that no other sharding has."""
    count = len(devices)
    axes = _primes(1, count)  # positions in the list
    strides = [devices[stride] - devices[0] if stride < count else 0 for stride, _ in axes]
    digits = [(stride, size) for stride, (_, size) in zip(strides, axes, strict=True)]
    grid = [0]
    for stride, size in digits:
        grid = [base + step * stride for base in grid for step in range(size)]
    if tuple(grid) == devices:
        return digits
    return [(-stride, size) for stride, size in axes]


def _primes(stride: int, size: int) -> list[Axis]:
    """A digit of the device number as prime factors, major to minor."""
    primes: list[Axis] = []
    factor = 2
    while size > 1:
        if factor * factor > size:
            factor = size  # the rest is prime
        while size % factor == 0:
            size //= factor
            primes.append((stride * size, factor))
        factor += 1
    return primes


def _mesh(text: str) -> Mesh:
    return tuple((name, int(size)) for name, size in _MESH_AXIS.findall(text))


def _along_mesh(text: str, meshes: Mapping[str, Mesh]) -> Sharding | None:
    """``<@mesh, [{"x"}, {}]>``, or ``{mesh['x'=2], [{'x'}, {}]}`` with its mesh written out."""
    inline, named = _INLINE_MESH.search(text), _MESH_NAME.search(text)
    written = meshes.get(named[1]) if named else None
    mesh = _mesh(inline[1]) if inline else written
    if mesh is None:
        return None
    start = text.find("[", inline.end() if inline else 0)
    listed = _DIMENSION.findall(text[start : text.find("]", start)]) if start >= 0 else []
    strides = {name: prod(size for _, size in mesh[place + 1 :]) for place, (name, _) in enumerate(mesh)}
    sizes = dict(mesh)
    along_mesh: list[Axes] = []
    for dimension in listed:
        axes: list[Axis] = []
        for name, before, part in _DIMENSION_AXIS.findall(dimension):
            if name not in sizes:
                return None
            size = int(part) if part else sizes[name]
            if not 0 < int(before or 1) * size <= MOST_DEVICES:
                return None
            axes += _primes(strides[name] * (sizes[name] // (int(before or 1) * size)), size)
        along_mesh.append(tuple(axes))
    return tuple(along_mesh)


def _numbers(text: str) -> tuple[int, ...]:
    """The whole numbers of a list; of one that no program has, the first digits, which are more than any count of devices."""
    return tuple(int(word.strip()[:20]) for word in text.split(",") if word.strip())
