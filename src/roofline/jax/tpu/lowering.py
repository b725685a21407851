"""Functions lowered for a slice: arguments as shapes, with shardings on the slice's mesh by the names of its axes.

This needs JAX and the standard library alone: the process that compiles may run in an environment without this package.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from types import FunctionType
from typing import Any, NamedTuple

AXIS = "data"  # the only axis of a mesh that nobody described
MAPPED = "it is mapped by jax.pmap; write jax.jit(jax.shard_map(step, mesh=…, in_specs=…, out_specs=…))"


def _module(name: str) -> Any:
    return import_module(name)


class Misfit(Exception):
    """A mesh, a sharding or a function that does not fit the slice; the message is for the user."""


class Portable(NamedTuple):
    """A function as StableHLO with the shardings of its arguments, and which of these it may overwrite. It can be pickled."""

    exported: Any
    donated: tuple[int, ...]


class Shipment(NamedTuple):
    """A portable function with the axes of the mesh that it is for, what was assumed, and what every device has whole (`replicated`)."""

    portable: Portable
    axes: dict[str, int]
    assumed: tuple[str, ...] = ()
    whole: Mapping[str, Any] = {}


class Arguments(NamedTuple):
    """The arguments of a function as shapes with shardings, and what was assumed about these."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    assumed: tuple[str, ...]


def mesh_axes(arguments: Any, devices: int, named: Mapping[str, int] | None) -> dict[str, int]:
    """The axes of the mesh: those that the user named, else those of the arguments' shardings, else one."""
    tree = _module("jax").tree

    if named is not None:
        return dict(named)
    for leaf in tree.leaves(arguments):
        sharding = _named_sharding(leaf)
        if sharding is None:
            continue
        sizes = dict(sharding.mesh.shape)
        if sharding.mesh.size == devices:
            return sizes
        if len(sizes) == 1:
            return dict.fromkeys(sizes, devices)
        axes = ",".join(f"{name}={size}" for name, size in sizes.items())
        raise Misfit(f"the arguments are sharded over the mesh {axes}, which has {sharding.mesh.size} devices, not {devices}; give a mesh")
    return {AXIS: devices}


def typed_mesh(mesh: Any, arguments: Any) -> Any:
    """A mesh whose axes are of the types (automatic, explicit, manual) of those that the arguments' shardings name."""
    tree, jax_sharding = _module("jax").tree, _module("jax.sharding")

    types: dict[str, Any] = {}
    for leaf in tree.leaves(arguments):
        own = getattr(_named_sharding(leaf), "mesh", None)
        if own is not None:
            types.update(zip(own.axis_names, own.axis_types, strict=True))
    if not types:
        return mesh
    usual = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    kinds = tuple(types.get(name, usual[name]) for name in mesh.axis_names)
    if isinstance(mesh, jax_sharding.AbstractMesh):
        return jax_sharding.AbstractMesh(mesh.axis_sizes, mesh.axis_names, axis_types=kinds)
    return jax_sharding.Mesh(mesh.devices, mesh.axis_names, axis_types=kinds)


def placed(arguments: tuple[tuple[Any, ...], dict[str, Any]], mesh: Any, batch: Sequence[int] = (), shard: str = "") -> Arguments:
    """Arguments as shapes with shardings on a mesh.

    Shardings that arguments have are moved to the mesh by the names of its axes; arguments without one are then replicated. Where none has
    a sharding, the first axis of the mesh divides the leading dimension of the arguments ``batch``, by default of the last one with an
    array that it divides, and ``shard`` names an axis that divides the largest dimension of the others.
    """
    tree = _module("jax").tree

    args, kwargs = arguments
    if any(_named_sharding(leaf) is not None for leaf in tree.leaves(arguments)):
        if batch or shard:
            raise Misfit("the arguments have shardings; batch and shard are for arguments without any")
        args, kwargs = tree.map(lambda leaf: _moved(leaf, mesh), arguments)
        return Arguments(args, kwargs, ())
    if mesh.size == 1:
        args, kwargs = tree.map(lambda leaf: _shape(leaf, mesh, ()), arguments)
        return Arguments(args, kwargs, ())
    first = mesh.axis_names[0]
    with_arrays = [place for place, argument in enumerate(args) if any(map(_sizes, tree.leaves(argument)))]
    dividable = [place for place in with_arrays if any(_is_dividable(leaf, mesh.shape[first]) for leaf in tree.leaves(args[place]))]
    last = (dividable or with_arrays)[-1:]
    chosen = [place % len(args) if args else place for place in batch] or last
    if shard and shard not in mesh.axis_names:
        raise Misfit(f"shard {shard}: the mesh has no such axis; it has {', '.join(mesh.axis_names)}")
    undivided: list[str] = []

    def divided(leaf: Any) -> Any:
        whole = _sizes(leaf)
        if whole and whole[0] % mesh.shape[first] == 0:
            return _shape(leaf, mesh, (first,))
        undivided.append(_words(leaf)) if whole else None
        return _shape(leaf, mesh, ())

    def weights(leaf: Any) -> Any:
        whole = _sizes(leaf)
        fitting = [(size, -place) for place, size in enumerate(whole or ()) if size > 1 and shard and size % mesh.shape[shard] == 0]
        return _shape(leaf, mesh, (*[None] * -max(fitting)[1], shard) if fitting else ())

    placed_args = tuple(tree.map(divided if place in chosen else weights, argument) for place, argument in enumerate(args))
    which = "the last argument" if chosen == with_arrays[-1:] else "arguments " + ", ".join(map(str, chosen))
    rest = f"{shard} divides the largest dimension of each other array" if shard else "the rest is replicated"
    assumed = [f"no argument has a sharding: {first} is taken to divide the leading dimension of {which}, and {rest}"]
    leading = _leading([args[place] for place in chosen])
    alike = [place for place in with_arrays if place not in chosen and len(leading) == 1 and _leading(args[place]) == leading]
    if alike:
        places = ",".join(map(str, sorted([*chosen, *alike])))
        assumed.append(f"argument {', '.join(map(str, alike))} has the same leading dimension; to divide it too: --batch-args {places}")
    if undivided:
        assumed.append(f"{', '.join(dict.fromkeys(undivided))}: {first}={mesh.shape[first]} does not divide it, so it is replicated")
    return Arguments(placed_args, tree.map(weights, kwargs), tuple(assumed))


def replicated(shapes: Any, mesh: Any) -> dict[str, Any]:
    """The arrays that every device has whole although an axis divides them: their number and bytes, the largest, and that axis."""
    found = []
    for leaf in _module("jax").tree.leaves(shapes):
        sharding = _named_sharding(leaf)
        if sharding is None or any(part is not None for part in sharding.spec):
            continue
        axes = [axis for axis in mesh.axis_names if mesh.shape[axis] > 1 and any(size % mesh.shape[axis] == 0 for size in leaf.shape)]
        if axes:
            found.append((leaf.size * leaf.dtype.itemsize, _words(leaf), max(axes, key=lambda axis: mesh.shape[axis])))
    if not found:
        return {}
    largest = max(found, key=lambda array: array[0])
    return {"arrays": len(found), "bytes": sum(array[0] for array in found), "largest": largest[1], "axis": largest[2]}


def is_mapped(function: Any) -> bool:
    """Whether a function is one of `jax.pmap`: it can be lowered, and not traced."""
    return isinstance(function, FunctionType) and hasattr(function, "lower") and not hasattr(function, "trace")


def unmapped(function: Any, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[Any, tuple[tuple[Any, ...], dict[str, Any]]]:
    """A function of `jax.pmap` as a jitted one, of arguments that are divided over its devices as it divides them."""
    jax, sharding = _module("jax"), _module("jax.sharding")

    leaves, structure = jax.tree.flatten(arguments)
    call = jax.make_jaxpr(function)(*arguments[0], **arguments[1]).jaxpr.eqns[0]
    inner = getattr(call.params.get("jaxpr"), "jaxpr", None)
    mapped = next((equation for equation in inner.eqns if "in_specs" in equation.params), None) if inner is not None else None
    if mapped is None or len(mapped.params["in_specs"]) != len(leaves) or not all(_sizes(leaf) is not None for leaf in leaves):
        raise Misfit(MAPPED)
    mesh = mapped.params["mesh"]
    divided = [
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding.NamedSharding(mesh, spec))
        for leaf, spec in zip(leaves, mapped.params["in_specs"], strict=True)
    ]

    def step(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    donated, numbers = call.params.get("donated_invars", ()), jax.tree.unflatten(structure, range(len(leaves)))[0]
    places = [place for place, argument in enumerate(numbers) if donated and all(donated[leaf] for leaf in jax.tree.leaves(argument))]
    step.__name__ = getattr(function, "__name__", "step")
    return jax.jit(step, donate_argnums=places), jax.tree.unflatten(structure, divided)


def jitted(function: Callable[..., Any], **options: Any) -> Any:
    """The function as one that can be lowered."""
    jax = _module("jax")

    return function if hasattr(function, "lower") and not options else jax.jit(function, **options)


def exported(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Portable:
    """A jitted function of these arguments as StableHLO for TPUs, on as many devices as their shardings have."""
    jax, export = _module("jax"), _module("jax.export")

    traced = function.trace(*args, **kwargs)
    leaves = jax.tree.leaves(traced.args_info)
    found = export.export(function, platforms=["tpu"])(*args, **kwargs)
    flat_in = jax.tree.structure((tuple(found.in_avals), {}))
    flat_out = jax.tree.structure(tuple(found.out_avals))
    flat = replace(found, in_tree=flat_in, out_tree=flat_out, _get_vjp=None)
    return Portable(flat, tuple(place for place, leaf in enumerate(leaves) if leaf.donated))


def shipped(
    function: Any,
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
    devices: int,
    axes: Mapping[str, int] | None = None,
    batch: Sequence[int] = (),
    shard: str = "",
    change: Callable[..., tuple[Any, tuple[Any, ...]]] | None = None,
) -> Shipment:
    """A jitted function of arguments that are here, traced for a mesh of so many devices that are not; shardings are moved by name.

    ``change`` is made first to the function and its arguments, by position and by name: it gives a function of arrays, and these.
    """
    sharding = _module("jax.sharding")

    sizes = mesh_axes(arguments, devices, axes)
    mesh = typed_mesh(sharding.AbstractMesh(tuple(sizes.values()), tuple(sizes)), arguments)
    shapes = placed(arguments, mesh, batch, shard)
    try:
        with sharding.use_abstract_mesh(mesh):
            whole = replicated((shapes.args, shapes.kwargs), mesh)
            if change is not None:
                made, arrays = change(function, shapes.args, shapes.kwargs)
                return Shipment(exported(made, arrays, {}), sizes, shapes.assumed, whole)
            return Shipment(exported(function, shapes.args, shapes.kwargs), sizes, shapes.assumed, whole)
    except ValueError as error:  # its own shardings may be of devices that are here
        if change is not None:
            raise Misfit("its own shardings are of devices that are here: no change can be tried") from None
        try:
            return Shipment(exported(function, *arguments), sizes)
        except Exception:
            raise error from None


def lowered_again(portable: Portable, mesh: Any) -> tuple[Any, dict[str, int]]:
    """An exported function, lowered for the devices of a mesh, and the axes of the mesh: those of its own shardings, where it has any."""
    jax, jax_sharding = _module("jax"), _module("jax.sharding")

    found = portable.exported
    if found.nr_devices not in (1, mesh.size):
        raise Misfit(f"the function is sharded over {found.nr_devices} devices, and the slice has {mesh.size}")
    mesh = _with_axes_of(found, mesh)
    replicated = jax_sharding.NamedSharding(mesh, jax_sharding.PartitionSpec())
    shardings = found.in_shardings_jax(mesh) if found.nr_devices > 1 else [None] * len(found.in_avals)
    shapes = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding or replicated)
        for aval, sharding in zip(found.in_avals, shardings, strict=True)
    ]

    def call(*leaves: Any) -> Any:
        return found.call(*leaves)

    call.__name__ = found.fun_name
    return jax.jit(call, donate_argnums=portable.donated).lower(*shapes), dict(mesh.shape)


def _with_axes_of(exported: Any, mesh: Any) -> Any:
    """The devices of a mesh along the axes of an exported function's own shardings, where it has any."""
    jax_sharding = _module("jax.sharding")

    own: Any = next((sharding.mesh for sharding in getattr(exported, "_in_named_shardings", None) or () if sharding is not None), None)
    if own is None or not own.axis_names:
        return mesh
    return jax_sharding.Mesh(mesh.devices.reshape(own.axis_sizes), own.axis_names, axis_types=own.axis_types)


def _named_sharding(leaf: Any) -> Any:
    """The sharding of an array or a shape that names the axes of a mesh."""
    sharding: Any = getattr(leaf, "sharding", None)
    return sharding if getattr(sharding, "spec", None) is not None and sharding.mesh.axis_names else None


def _moved(leaf: Any, mesh: Any) -> Any:
    sharding = _named_sharding(leaf)
    if sharding is None:
        return _shape(leaf, mesh, ())
    for part in sharding.spec:
        for name in part if isinstance(part, tuple) else (part,):
            if isinstance(name, str) and name not in mesh.axis_names:
                axes = ",".join(f"{axis}={mesh.shape[axis]}" for axis in mesh.axis_names)
                raise Misfit(f"the sharding {sharding.spec} of {_words(leaf)} names the axis {name!r}, which the mesh {axes} does not have")
    return _shape(leaf, mesh, tuple(sharding.spec), sharding.memory_kind)


def _sizes(leaf: Any) -> tuple[int, ...] | None:
    return tuple(leaf.shape) if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else None


def _leading(arguments: Any) -> set[int]:
    """The leading dimensions of all arrays; 0 is that of a scalar."""
    return {(sizes or (0,))[0] for leaf in _module("jax").tree.leaves(arguments) if (sizes := _sizes(leaf)) is not None}


def _is_dividable(leaf: Any, parts: int) -> bool:
    """Whether an array can be divided along its leading dimension; the two words of a random number generator's key are not."""
    sizes = _sizes(leaf)
    return sizes is not None and sizes != () and sizes[0] % parts == 0 and not (sizes == (2,) and leaf.dtype.name == "uint32")


def _words(leaf: Any) -> str:
    return f"{leaf.dtype.name}[{','.join(map(str, leaf.shape))}]"


def _shape(leaf: Any, mesh: Any, spec: tuple[Any, ...], memory_kind: str | None = None) -> Any:
    """An array as its shape, on a mesh; anything else, such as a static argument, as it is."""
    jax, jax_sharding = _module("jax"), _module("jax.sharding")

    if _sizes(leaf) is None:
        return leaf
    own = memory_kind if memory_kind == "pinned_host" else None  # the kinds of a CPU's memory mean nothing here
    return jax.ShapeDtypeStruct(
        leaf.shape, leaf.dtype, sharding=jax_sharding.NamedSharding(mesh, jax_sharding.PartitionSpec(*spec), memory_kind=own)
    )
