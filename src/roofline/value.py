"""Values: frozen slotted classes that compare, hash, print and pickle, at a tenth of what `dataclasses.dataclass` costs to make.

A dataclass compiles six functions from text and imports `inspect`; with a hundred of them that is most of the time of a short command.
Here the methods are shared and reach the fields through `operator.attrgetter`; only ``__init__`` is compiled, and only for a class of
which many are made. What `dataclasses`, msgspec and `inspect` look at is built when they look, so ``fields``, ``asdict`` and
``signature`` give what they give for a dataclass.

>>> @value
... class Span:
...     begin_s: float
...     end_s: float = 1.0
>>> Span(begin_s=0.5)
Span(begin_s=0.5, end_s=1.0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter, ge, gt, le, lt
from reprlib import recursive_repr

TYPE_CHECKING = False  # what type checkers take to be true; `typing`, which has the constant, costs 5 ms to import
if TYPE_CHECKING:
    from typing import Any, TypeVar, dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_):
        return lambda decorator: decorator


MISSING: Any = type("Missing", (), {"__slots__": ()})()
FACTORY: Any = type("Factory", (), {"__slots__": (), "__repr__": lambda _: "<factory>"})()  # a signature shows it
MANY = 60  # instances after which compiling a constructor pays: by instructions of the CPU, 55 of a small class and 110 of the largest


class Spec:
    """One field as its class declares it: the options of `dataclasses.field`, then its name, its type and the setter of its slot."""

    __slots__ = ("compare", "default", "default_factory", "hash", "init", "kw_only", "name", "repr", "set", "type")

    name: str
    type: Any
    set: Callable[[object, Any], None]

    def __init__(
        self,
        default: Any = MISSING,
        default_factory: Any = MISSING,
        init: bool = True,
        repr: bool = True,
        compare: bool = True,
        hash: bool | None = None,
        kw_only: bool | None = None,
    ) -> None:
        self.default, self.default_factory, self.init = default, default_factory, init
        self.repr, self.compare, self.hash, self.kw_only = repr, compare, hash, kw_only


def field(**options: Any) -> Any:
    """A field that is more than a type and a default; the options are those of `Spec`."""
    return Spec(**options)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value(made: Any = None, /, *, kw_only: bool = True, eq: bool = True, order: bool = False) -> Any:
    """A frozen class with slots; its fields are given by keyword unless ``kw_only=False``."""
    if made is None:
        return partial(_slotted, frozen=True, kw_only=kw_only, eq=eq, order=order)
    return _slotted(made, frozen=True, kw_only=kw_only, eq=eq, order=order)


@dataclass_transform(field_specifiers=(field,))
def record(made: Any = None, /, *, kw_only: bool = False, eq: bool = True) -> Any:
    """A class with slots whose instances change: what a reader fills while it reads."""
    if made is None:
        return partial(_slotted, frozen=False, kw_only=kw_only, eq=eq, order=False)
    return _slotted(made, frozen=False, kw_only=kw_only, eq=eq, order=False)


def replace(given: T, /, **changes: Any) -> T:
    """The value with some fields changed: `dataclasses.replace`, without its import."""
    specs: tuple[Spec, ...] = given.__value_specs__  # type: ignore[attr-defined]
    for spec in specs:
        if not spec.init:
            if spec.name in changes:
                raise ValueError(f"field {spec.name} is worked out; it cannot be replaced")
        elif spec.name not in changes:
            changes[spec.name] = getattr(given, spec.name)
    return type(given)(**changes)


def _slotted(made: Any, *, frozen: bool, kw_only: bool, eq: bool, order: bool) -> Any:
    """The class again, with a slot a field and the shared methods that it does not define itself."""
    members = dict(made.__dict__)
    inherited = {spec.name: spec for base in made.__mro__[-2:0:-1] for spec in base.__dict__.get("__value_specs__", ())}
    own = {name: _spec(members.pop(name, MISSING), name, kind, kw_only) for name, kind in made.__annotations__.items()}
    specs = tuple((inherited | own).values())
    for automatic in ("__dict__", "__weakref__"):
        members.pop(automatic, None)
    if members.get("__hash__", MISSING) is None and "__eq__" in members:
        del members["__hash__"]  # Python's own mark on a class that defines __eq__; the fields still give a hash
    methods = dict(_FROZEN if frozen else _SHARED)
    key = getter([spec.name for spec in specs if spec.compare])
    if eq:
        methods["__eq__"] = _equality(key)
        methods["__hash__"] = _hashing(specs, key) if frozen else None
    if order:
        methods |= _ordering(key)
    owner: list[Any] = []
    if "__init__" not in members:
        methods["__init__"] = _constructor(owner, specs, getattr(made, "__post_init__", None))
    methods |= members
    methods["__slots__"] = tuple([name for name in own if name not in inherited]) if inherited else tuple(own)
    methods["__match_args__"] = tuple([spec.name for spec in specs if spec.init and not spec.kw_only])
    methods["__value_specs__"] = specs
    whole: Any = type(made)(made.__name__, made.__bases__, methods)
    whole.__qualname__ = made.__qualname__
    owner.append(whole)
    slots = whole.__dict__
    for name, spec in own.items():
        spec.set = slots[name].__set__ if name in slots else getattr(whole, name).__set__
    return whole


def _spec(given: Any, name: str, kind: Any, kw_only: bool) -> Spec:
    spec = given if isinstance(given, Spec) else Spec(given)
    if spec.default.__class__.__hash__ is None:
        raise ValueError(f"the default of {name} can change; give a default_factory")
    spec.name, spec.type = name, kind
    if spec.kw_only is None:
        spec.kw_only = kw_only
    return spec


def getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The attributes of these names as a tuple, however many they are."""
    if len(names) > 1:
        return attrgetter(*names)
    if names:
        only = attrgetter(*names)
        return lambda self: (only(self),)
    return lambda self: ()


def _equality(key: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def equal(self: Any, other: Any) -> Any:
        if self is other:
            return True
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    return equal


def _hashing(specs: Sequence[Spec], key: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    names = [spec.name for spec in specs if (spec.compare if spec.hash is None else spec.hash)]
    hashed = key if names == [spec.name for spec in specs if spec.compare] else getter(names)
    return lambda self: hash(hashed(self))


def _ordering(key: Callable[[Any], tuple[Any, ...]]) -> dict[str, Any]:
    def ordered(holds: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda self, other: holds(key(self), key(other)) if other.__class__ is self.__class__ else NotImplemented

    return {"__lt__": ordered(lt), "__le__": ordered(le), "__gt__": ordered(gt), "__ge__": ordered(ge)}


@recursive_repr()
def _shown(self: Any) -> str:
    shown = ", ".join(f"{spec.name}={getattr(self, spec.name)!r}" for spec in self.__value_specs__ if spec.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, spec.name) for spec in self.__value_specs__]


def _restore(self: Any, state: list[Any]) -> None:
    for spec, held in zip(self.__value_specs__, state, strict=True):
        spec.set(self, held)


def _refuse_set(self: Any, name: str, _: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: Any, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _constructor(owner: list[Any], specs: tuple[Spec, ...], finish: Callable[[Any], None] | None) -> Callable[..., None]:
    """An ``__init__`` that reads the specs, for the first instances; from then on, and to refuse arguments, a compiled one.

    ``owner`` holds the class as soon as it is made: a class that is made with its ``__init__`` costs less than one that is given it.
    """
    positional = [spec.name for spec in specs if spec.init and not spec.kw_only]
    setters: dict[str, Callable[[object, Any], None]] = {}
    instances = 0

    def fill(self: Any, given: dict[str, Any]) -> bool:
        """Whether these were the arguments the class takes."""
        if not setters:
            setters.update({spec.name: spec.set for spec in specs if spec.init})
        if not given.keys() <= setters.keys():
            return False
        for name, held in given.items():
            setters[name](self, held)
        if len(given) < len(specs):
            for spec in specs:
                if spec.name in given:
                    continue
                if spec.default is not MISSING:
                    spec.set(self, spec.default)
                elif spec.default_factory is not MISSING:
                    spec.set(self, spec.default_factory())
                elif spec.init:
                    return False
        return True

    def __init__(self: Any, *args: Any, **named: Any) -> None:
        nonlocal instances
        instances += 1
        given = {**dict(zip(positional, args, strict=False)), **named} if args else named
        if instances > MANY or len(given) < len(args) + len(named) or not fill(self, given):
            _compiled(owner[0], specs)(self, *args, **named)
        elif finish is not None:
            finish(self)

    return __init__


def _compiled(made: Any, specs: tuple[Spec, ...]) -> Callable[..., None]:
    """The constructor of a class as Python would have it written, put in place of the one that reads the specs."""
    known: dict[str, Any] = {"_factory": FACTORY}
    positional: list[str] = []
    keyword: list[str] = []
    body: list[str] = []
    for spec in specs:
        name, default, made_by, setter = spec.name, f"_default_{spec.name}", f"_make_{spec.name}", f"_set_{spec.name}"
        known |= {default: spec.default, made_by: spec.default_factory, setter: spec.set}
        given = name if spec.init else default
        if spec.default_factory is not MISSING:
            known[default] = FACTORY
            given = f"{made_by}() if {name} is _factory else {name}" if spec.init else f"{made_by}()"
        has_default = spec.default is not MISSING or spec.default_factory is not MISSING
        if spec.init:
            (keyword if spec.kw_only else positional).append(f"{name}={default}" if has_default else name)
        if spec.init or has_default:
            body.append(f" {setter}(self, {given})")
    if hasattr(made, "__post_init__"):
        body.append(" self.__post_init__()")
    arguments = ", ".join(["self", *positional, *(["*", *keyword] if keyword else [])])
    exec(f"def __init__({arguments}):\n" + "\n".join(body or [" pass"]), known)
    init = known["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    init.__annotations__ = {spec.name: spec.type for spec in specs if spec.init} | {"return": None}
    made.__init__ = init
    return init  # type: ignore[no-any-return]


class _Lazy:
    """A class attribute that is worked out when somebody asks the class for it, then kept."""

    __slots__ = ("make", "name")

    def __init__(self, name: str, make: Callable[[Any], Any]) -> None:
        self.name, self.make = name, make

    def __get__(self, _: object, owner: Any) -> Any:
        holder = next(base for base in owner.__mro__ if base.__dict__.get(self.name) is self)
        made = self.make(holder)
        setattr(holder, self.name, made)
        return made


def _dataclass_fields(made: Any) -> dict[str, Any]:
    """True fields of a true dataclass with the same declaration."""
    from dataclasses import MISSING as ABSENT
    from dataclasses import field as declare
    from dataclasses import make_dataclass

    def declared(spec: Spec) -> Any:
        options: dict[str, Any] = {
            name: getattr(spec, name) for name in ("init", "repr", "compare", "hash", "kw_only", "default", "default_factory")
        }
        given: dict[str, Any] = {name: ABSENT if option is MISSING else option for name, option in options.items()}
        return declare(**given)

    like: Any = make_dataclass(made.__name__, [(spec.name, spec.type, declared(spec)) for spec in made.__value_specs__])
    return like.__dataclass_fields__  # type: ignore[no-any-return]


def _signature(made: Any) -> Any:
    from inspect import signature

    whole = signature(_compiled(made, made.__value_specs__))
    return whole.replace(parameters=list(whole.parameters.values())[1:], return_annotation=whole.empty)


_LAZY_FIELDS, _LAZY_SIGNATURE = _Lazy("__dataclass_fields__", _dataclass_fields), _Lazy("__signature__", _signature)
_SHARED: dict[str, Any] = {
    "__repr__": _shown,
    "__getstate__": _state,
    "__setstate__": _restore,
    "__replace__": replace,
    "__dataclass_fields__": _LAZY_FIELDS,
    "__signature__": _LAZY_SIGNATURE,
}
_FROZEN = _SHARED | {"__setattr__": _refuse_set, "__delattr__": _refuse_delete}
