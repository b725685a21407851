"""Meshes: how many devices each kind of parallelism spans. Tensor ranks are neighbours, then context, FSDP, data, and pipeline ranks."""

import re
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from ..errors import UsageError, did_you_mean

# word of an option -> field of a mesh
AXES = {"tp": "tensor", "pp": "pipeline", "vp": "virtual", "cp": "context", "ep": "experts", "fsdp": "fsdp", "data": "data"}
OTHER_NAMES = {
    "dp": "data",
    "tensor": "tp",
    "pipeline": "pp",
    "context": "cp",
    "expert": "ep",
    "experts": "ep",
    "virtual": "vp",
    "zero3": "fsdp",
}
REST = "rest"


class Mesh(Struct, frozen=True, kw_only=True):
    """Devices along each axis. ``fsdp`` ranks hold a share of the weights each and gather them for use; ``data`` ranks share the
    optimizer alone, or copy whole FSDP groups. ``virtual`` is the stages that a pipeline rank holds; experts spread over the ranks of
    all axes but the pipeline.
    """

    tensor: int = 1
    pipeline: int = 1
    virtual: int = 1
    context: int = 1
    experts: int = 1
    fsdp: int = 1
    data: int = 1

    @property
    def devices(self) -> int:
        return self.tensor * self.pipeline * self.context * self.fsdp * self.data

    @property
    def replicas(self) -> int:
        """Ranks that work on different sequences."""
        return self.fsdp * self.data

    @property
    def shards_weights(self) -> bool:
        return self.fsdp > 1

    def as_words(self) -> dict[str, int]:
        return {word: getattr(self, field) for word, field in AXES.items()}

    def __str__(self) -> str:
        sizes = [f"{word}{size}" for word, size in self.as_words().items() if size > 1]
        return " ".join(sizes) or "one device"


class Asked(Struct, frozen=True):
    """The axes that a user fixed, by word, and the one that takes the rest of the devices."""

    sizes: dict[str, int]
    rest: str = ""

    def fixes_all(self, has_experts: bool) -> bool:
        """Whether every axis is given, by size or as the rest; virtual stages need a pipeline, expert ranks need experts."""
        needed = {"tp", "pp", "cp", "fsdp", "data"}
        if self.sizes.get("pp", 2) > 1:
            needed.add("vp")
        if has_experts:
            needed.add("ep")
        return needed <= {*self.sizes, self.rest}


def asked_mesh(text: str) -> Asked:
    """The axes in words such as ``pp=8, tp=4 data=rest``."""
    sizes: dict[str, int] = {}
    rest = ""
    for part in re.split(r"[,\s]+", re.sub(r"\s*=\s*", "=", text.strip())):
        if not part:
            continue
        name, equals, size = part.partition("=")
        axis = OTHER_NAMES.get(name.lower(), name.lower())
        if axis not in AXES or not equals:
            raise UsageError(f"--mesh {part}: write AXIS=SIZE with an axis of {', '.join(AXES)}{did_you_mean(axis, AXES)}")
        if axis in sizes or axis == rest:
            raise UsageError(f"--mesh: {axis} is given twice")
        if size.lower() == REST:
            if rest or axis in ("vp", "ep"):
                raise UsageError(f"--mesh {part}: one axis of devices can take the rest")
            rest = axis
        elif not size.isdecimal() or not int(size):
            raise UsageError(f"--mesh {part}: the size is a positive whole number, or {REST}")
        else:
            sizes[axis] = int(size)
    return Asked(sizes, rest)


def complete(asked: Asked, devices: int) -> Mesh:
    """The mesh of axes that are all given, over so many devices; axes not named are 1."""
    mesh = Mesh(**{AXES[word]: size for word, size in asked.sizes.items()})
    if asked.rest:
        if devices % mesh.devices:
            raise UsageError(
                f"--mesh: {mesh} takes {mesh.devices} devices, of which {devices} is no multiple; nothing is left for {asked.rest}"
            )
        mesh = replace(mesh, **{AXES[asked.rest]: devices // mesh.devices})
    if mesh.devices != devices:
        raise UsageError(f"--mesh: {mesh} is {mesh.devices} devices, but there are {devices}; write {AXIS_HINT}")
    ranks = prod((mesh.tensor, mesh.context, mesh.fsdp, mesh.data))
    if mesh.experts > ranks:
        raise UsageError(f"--mesh: ep={mesh.experts} is more than the {ranks} ranks of a pipeline stage")
    if mesh.virtual > 1 and mesh.pipeline == 1:
        raise UsageError(f"--mesh: vp={mesh.virtual} divides the stages of a pipeline; give pp too")
    return mesh


AXIS_HINT = f"one axis as {REST}, such as data={REST}"
