"""Changes of a training step that need less memory, made to the function as it is (`--compile make-it-fit` tries them).

    donate      arguments that come back as results (weights, optimizer state) may be overwritten
    divide      arrays that every device has whole are divided along their largest dimension, by the first axis of the mesh that fits
    remat       bodies of loops are recomputed in the backward pass: only what they carry is kept of them; `remat 8 of 32` those of the
                first 8 trips of loops that have 32
    recompute   of the whole loss only products with weights are kept for the backward pass
    narrow      state that the loss does not depend on, which is the optimizer's, is stored in bf16
    half        half of the batch: of the leading dimension of arrays that do not come back

This needs JAX and the standard library alone, as `lowering` does, for the process that compiles.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

MADE = ("divide", "half", "narrow", "donate")  # the order in which they are made to a function
INLINED = ("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "custom_jvp_call", "custom_vjp_call")


SOME_LAYERS = r"remat (\d+) of (\d+)"


class NoEffect(Exception):
    """A change that a function does not allow, or that changes nothing; the message says why."""


class Flat(NamedTuple):
    """A function of the arrays among its arguments, whatever else it takes: which of them it overwrites, and which come back.

    ``returned`` is, by the place of an array, the place among the results of its like.
    """

    function: Callable[..., list[Any]]
    arrays: tuple[Any, ...]
    donated: tuple[int, ...]
    returned: dict[int, int]

    def jitted(self) -> Any:
        jax: Any = import_module("jax")

        return jax.jit(self.function, donate_argnums=self.donated)


def prepare(changes: Sequence[str]) -> None:
    """What changes need before the user's module is loaded: loops and gradients that recompute."""
    jax: Any = import_module("jax")

    for change in changes:
        if layers := re.fullmatch(SOME_LAYERS, change):
            jax.lax.scan = partial(_scan_of_some_checkpointed, jax.lax.scan, int(layers[1]), int(layers[2]))
    if "remat" in changes:
        jax.lax.scan = partial(_scan_of_checkpointed, jax.lax.scan)
    if "recompute" in changes:
        jax.grad = partial(_gradient_of_checkpointed, jax.grad)
        jax.value_and_grad = partial(_gradient_of_checkpointed, jax.value_and_grad)


def _scan_of_checkpointed(scan: Any, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    jax: Any = import_module("jax")

    return scan(jax.checkpoint(f, prevent_cse=False), *args, **kwargs)


def _scan_of_some_checkpointed(
    scan: Any, some: int, trips: int, f: Any, init: Any, xs: Any = None, length: int | None = None, **kwargs: Any
) -> Any:
    """A loop of so many trips as two, of which the first recomputes its bodies; other loops as they are."""
    jax: Any = import_module("jax")

    numpy: Any = import_module("jax.numpy")
    leaves = jax.tree.leaves(xs)
    if (length or (len(leaves[0]) if leaves else 0)) != trips or kwargs.get("reverse"):
        return scan(f, init, xs, length, **kwargs)
    first, rest = (jax.tree.map(lambda stack, part=part: stack[part], xs) for part in (slice(some), slice(some, None)))
    carried, before = scan(jax.checkpoint(f, prevent_cse=False), init, first, some, **kwargs)
    carried, after = scan(f, carried, rest, trips - some, **kwargs)
    return carried, jax.tree.map(lambda *parts: numpy.concatenate(parts), before, after)


def _gradient_of_checkpointed(differentiate: Any, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    jax: Any = import_module("jax")

    return differentiate(jax.checkpoint(fun, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable), *args, **kwargs)


def changed(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], changes: Sequence[str]) -> tuple[Any, tuple[Any, ...]]:
    """A jitted function of arrays after some changes, and these arrays."""
    flat = flattened(function, args, kwargs)
    for change in MADE:
        if change in changes:
            flat = _CHANGES[change](flat)
    return flat.jitted(), flat.arrays


def flattened(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Flat:
    """A jitted function as one of the arrays among its arguments."""
    tree: Any = import_module("jax").tree

    leaves, structure = tree.flatten((args, kwargs))
    places = [place for place, leaf in enumerate(leaves) if hasattr(leaf, "shape") and hasattr(leaf, "dtype")]
    arrays = tuple(leaves[place] for place in places)

    def call(*given: Any) -> list[Any]:
        filled = list(leaves)
        for place, array in zip(places, given, strict=True):
            filled[place] = array
        of_args, of_kwargs = tree.unflatten(structure, filled)
        found: list[Any] = tree.leaves(function(*of_args, **of_kwargs))
        return found

    traced = function.trace(*args, **kwargs)
    call.__name__ = getattr(function, "__name__", "step")
    donated, infos = [], iter(tree.leaves(traced.args_info))
    for place, array in enumerate(arrays):  # scalars of Python are among the infos, and not among the arrays
        info = next((info for info in infos if _kind(info) == _kind(array)), None)
        donated += [place] if info is not None and info.donated else []
    return Flat(call, arrays, tuple(donated), _returned(arrays, tree.leaves(traced.out_info)))


def _returned(arrays: Sequence[Any], results: Sequence[Any]) -> dict[int, int]:
    """The place among the results of the like of each array that has one: of equal ones the first is the first."""
    free: dict[Any, list[int]] = {}
    for place, result in enumerate(results):
        free.setdefault(_kind(result), []).append(place)
    return {place: free[_kind(array)].pop(0) for place, array in enumerate(arrays) if array.shape and free.get(_kind(array))}


def donating(flat: Flat) -> Flat:
    """With every array donated that comes back."""
    places = tuple(sorted({*flat.donated, *flat.returned}))
    if places == flat.donated:
        raise NoEffect("all arguments that come back are donated already")
    return flat._replace(donated=places)


def divided(flat: Flat) -> Flat:
    """With the arrays divided that every device has whole."""
    jax: Any = import_module("jax")

    def part(array: Any) -> Any:
        mesh = array.sharding.mesh
        if any(axis is not None for axis in array.sharding.spec):
            return array
        for axis in mesh.axis_names:
            fitting = [(size, -place) for place, size in enumerate(array.shape) if mesh.shape[axis] > 1 and size % mesh.shape[axis] == 0]
            if fitting:
                spec = jax.sharding.PartitionSpec(*[None] * -max(fitting)[1], axis)
                return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=jax.sharding.NamedSharding(mesh, spec))
        return array

    arrays = tuple(part(array) if place in flat.returned else array for place, array in enumerate(flat.arrays))
    if all(array is whole for array, whole in zip(arrays, flat.arrays, strict=True)):
        raise NoEffect("no array that comes back is whole on every device and can be divided")
    return flat._replace(arrays=arrays)


def halved(flat: Flat) -> Flat:
    """With half of the batch: the arrays that do not come back and share the longest leading dimension are half as long."""
    jax: Any = import_module("jax")

    coming = [array for place, array in enumerate(flat.arrays) if place not in flat.returned and array.shape and not _is_key(array)]
    longest = max((array.shape[0] for array in coming), default=0)
    parts = max((array.shape[0] // array.sharding.shard_shape(array.shape)[0] for array in coming), default=1)
    if longest < 2 * parts or longest % (2 * parts):
        raise NoEffect(f"the batch of {longest} cannot be halved over {parts} devices" if longest else "no argument is a batch")

    def half(array: Any) -> Any:
        if not any(array is other for other in coming) or array.shape[0] != longest:
            return array
        return jax.ShapeDtypeStruct((longest // 2, *array.shape[1:]), array.dtype, sharding=array.sharding)

    return flat._replace(arrays=tuple(map(half, flat.arrays)))


def narrowed(flat: Flat) -> Flat:
    """With the state in bf16 on which no result depends but the state itself."""
    jax: Any = import_module("jax")
    numpy: Any = import_module("jax.numpy")

    jaxpr = jax.make_jaxpr(flat.function)(*flat.arrays).jaxpr
    others = {place for place in range(len(jaxpr.outvars)) if place not in flat.returned.values()}
    needed = reached(jaxpr, others)
    places = [place for place in flat.returned if place not in needed and flat.arrays[place].dtype == numpy.float32]
    if not others or not places:
        raise NoEffect("no state in fp32 was found that the loss does not depend on")

    def narrow(array: Any) -> Any:
        return jax.ShapeDtypeStruct(array.shape, numpy.bfloat16, sharding=array.sharding)

    def step(*given: Any) -> list[Any]:
        results = flat.function(*(array.astype(numpy.float32) if place in places else array for place, array in enumerate(given)))
        stored = {flat.returned[place] for place in places}
        return [result.astype(numpy.bfloat16) if place in stored else result for place, result in enumerate(results)]

    arrays = tuple(narrow(array) if place in places else array for place, array in enumerate(flat.arrays))
    return flat._replace(function=step, arrays=arrays)


def reached(jaxpr: Any, results: set[int]) -> set[int]:
    """The places of the arguments of a traced function that some of its results depend on."""
    needed = {jaxpr.outvars[place] for place in results if not hasattr(jaxpr.outvars[place], "val")}
    for equation in reversed(jaxpr.eqns):
        used = {place for place, variable in enumerate(equation.outvars) if variable in needed}
        if not used:
            continue
        inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        inner = getattr(inner, "jaxpr", inner)
        places = set(range(len(equation.invars)))
        if equation.primitive.name in INLINED and inner is not None and len(inner.invars) == len(equation.invars):
            places = reached(inner, used)
        needed |= {equation.invars[place] for place in places if not hasattr(equation.invars[place], "val")}
    return {place for place, variable in enumerate(jaxpr.invars) if variable in needed}


def _kind(array: Any) -> tuple[Any, ...]:
    return tuple(array.shape), str(array.dtype)


def _is_key(array: Any) -> bool:
    """Whether an array is the state of a random number generator."""
    return str(array.dtype).startswith("key") or (array.shape == (2,) and str(array.dtype) == "uint32")


_CHANGES: dict[str, Callable[[Flat], Flat]] = {"divide": divided, "half": halved, "narrow": narrowed, "donate": donating}
