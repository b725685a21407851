"""Values against the standard library's dataclasses: the same declaration has to give the same class, only sooner."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline import value as values
from roofline.value import field, record, replace, value

Maker = Callable[..., Any]  # the decorator with its options


def kinds_of(body: Callable[[Maker], type], *, ours: Any = value, **options: bool) -> tuple[Any, Any]:
    """The same body as a value and as a dataclass; it gets the function that declares a field."""
    frozen = ours is value
    plain = {"kw_only": frozen} | options
    return ours(**options)(body(field)), dataclasses.dataclass(frozen=frozen, slots=True, **plain)(body(dataclasses.field))  # type: ignore[call-overload]


def op(declare: Maker) -> type:
    class Op:
        """An operation."""

        name: str
        count: float = 1
        work: dict[str, float] = declare(default_factory=dict)
        hidden: int = declare(default=7, repr=False, compare=False)
        apart: tuple[int, ...] = declare(default=(), hash=False)
        size: int = declare(init=False, repr=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "size", len(self.name))

    return Op


def place(declare: Maker) -> type:
    class Place:
        """A place."""

        row: int
        column: int = 0
        note: str = declare(default="", kw_only=True)

    return Place


arguments = st.fixed_dictionaries(
    {"name": st.text(max_size=3)},
    optional={
        "count": st.floats(),
        "work": st.dictionaries(st.text(max_size=2), st.floats(), max_size=2),
        "hidden": st.integers(0, 2),
        "apart": st.tuples(st.integers(0, 1)),
    },
)


@given(arguments, arguments)
def test_the_same_arguments_print_compare_and_copy_alike(first: dict[str, Any], second: dict[str, Any]) -> None:
    ours, plain = kinds_of(op)
    a, b, c, d = ours(**first), ours(**second), plain(**first), plain(**second)
    assert repr(a).partition("(")[2] == repr(c).partition("(")[2]
    # NaN is unequal to itself, but a tuple that holds the same NaN is equal: both classes have to say the same.
    assert ((a == b), (a == a), (a != b)) == ((c == d), (c == c), (c != d))
    assert dataclasses.asdict(a) == dataclasses.asdict(c) or "nan" in repr(a)
    assert repr(copy.deepcopy(a)) == repr(a)
    assert repr(dataclasses.replace(a, name="xyz")) == repr(replace(a, name="xyz"))
    assert replace(a, name="xyz").size == 3  # what follows from the fields is worked out again


@given(st.integers(0, 3), st.integers(0, 3), st.text(max_size=2), st.integers(0, 3), st.integers(0, 3))
def test_the_same_values_hash_and_order_alike(row: int, column: int, note: str, other_row: int, other_column: int) -> None:
    ours, plain = kinds_of(place, kw_only=False, order=True)
    a, b, c, d = ours(row, column, note=note), ours(other_row, other_column), plain(row, column, note=note), plain(other_row, other_column)
    assert hash(a) == hash(c)
    assert (a < b, a <= b, a > b, a >= b, a == b) == (c < d, c <= d, c > d, c >= d, c == d)


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2, 3), {}),
    ((1,), {"row": 2}),
    ((1,), {"colour": 2}),
    ((), {"row": 1, "note": "n"}),
    ((1,), {"note": "n", "column": 3}),
]


def outcome(kind: Any, call: Any) -> object:
    """The fields, or what was said instead of making them."""
    try:
        return dataclasses.astuple(kind(*call[0], **call[1]))
    except TypeError as error:
        return str(error).partition("__init__")[2]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("before", [0, values.MANY + 1])
def test_a_constructor_takes_and_refuses_the_same_arguments_before_and_after_it_is_compiled(call: Any, before: int) -> None:
    ours, plain = kinds_of(place, kw_only=False)
    for _ in range(before):
        ours(0)
    assert outcome(ours, call) == outcome(plain, call)


def test_what_the_standard_library_looks_at_is_the_same() -> None:
    for body, options in ((op, {}), (place, {"kw_only": False})):
        ours, plain = kinds_of(body, **options)
        assert dataclasses.is_dataclass(ours)
        assert [repr(one) for one in dataclasses.fields(ours)] == [repr(one) for one in dataclasses.fields(plain)]
        assert ours.__match_args__ == plain.__match_args__
        assert ours.__slots__ == plain.__slots__
        shown, wanted = inspect.signature(ours), inspect.signature(plain)
        assert str(shown) == str(wanted).removesuffix(" -> None")
        assert (ours.__name__, ours.__qualname__, ours.__module__, ours.__doc__) == (
            plain.__name__,
            plain.__qualname__,
            plain.__module__,
            plain.__doc__,
        )


def test_a_value_is_frozen_and_a_record_is_not() -> None:
    ours, plain = kinds_of(place)
    for kind in (ours, plain):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'row'"):
            kind(row=1).row = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'row'"):
            del kind(row=1).row
    changing, plain = kinds_of(place, ours=record)
    for kind in (changing, plain):
        one = kind(1)
        one.row = 2
        assert one == kind(2)
        with pytest.raises(TypeError, match="unhashable"):
            hash(one)
        with pytest.raises(AttributeError):
            one.depth = 3  # slots: no other attribute


def test_without_eq_a_value_is_only_equal_to_itself() -> None:
    ours, _ = kinds_of(place, eq=False)
    one = ours(row=1)
    assert (one == one, one == ours(row=1)) == (True, False)
    assert hash(one) == object.__hash__(one)


def test_methods_that_a_class_defines_stay() -> None:
    @value(kw_only=False)
    class Named:
        name: str
        case: str = ""

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and self.name == other.name

        def __repr__(self) -> str:
            return self.name

    @value(kw_only=False)
    class Constant:
        name: str

        def __hash__(self) -> int:
            return 5

    assert Named("a", "x") == Named("a", "y")
    assert repr(Named("a")) == "a"
    assert hash(Named("a")) == hash(("a", ""))  # a dataclass, too, hashes the fields although __eq__ is the class's own
    assert hash(Constant("a")) == 5


def test_a_value_extends_another() -> None:
    @value
    class Base:
        level: str = "hbm"
        note: str = ""

    @value(kw_only=False)
    class Row(Base):
        tensor: str
        note: str = field(default="n", kw_only=True)

        def size(self) -> int:
            return len(self.tensor)

    one = Row("abc", level="l2")
    # The redefined field keeps its place.
    assert repr(one).endswith("Row(level='l2', note='n', tensor='abc')")
    assert (one.size(), Row.__slots__, isinstance(one, Base)) == (3, ("tensor",), True)
    assert one != Base(level="l2", note="n")
    assert [part.name for part in dataclasses.fields(Row)] == ["level", "note", "tensor"]
    assert [part.name for part in dataclasses.fields(Base)] == ["level", "note"]


def test_a_default_that_can_change_is_refused() -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @value
        class Shared:
            names: list[str] = []  # noqa: RUF012


def test_a_field_that_is_worked_out_cannot_be_replaced() -> None:
    ours, plain = kinds_of(op)
    for kind, change in ((ours, replace), (plain, dataclasses.replace)):
        with pytest.raises(ValueError, match="size"):
            change(kind(name="a"), size=3)


@value
class Leaf:
    """A value of a module, so that pickle finds it."""

    name: str
    parts: tuple[int, ...] = ()


@value
class Tree:
    """A value of values."""

    leaves: tuple[Leaf, ...]
    amounts: dict[str, float | None] = field(default_factory=dict)
    cached: dict[str, int] = field(init=False, compare=False, repr=False, default_factory=dict)


def test_values_survive_pickle_and_msgspec() -> None:
    tree = Tree(leaves=(Leaf(name="a", parts=(1, 2)), Leaf(name="b")), amounts={"hbm": None})
    tree.cached["a"] = 1
    again = pickle.loads(pickle.dumps(tree))
    assert (again, again.cached) == (tree, {"a": 1})
    encoded = msgspec.json.encode(Tree(leaves=tree.leaves, amounts=tree.amounts))
    assert msgspec.json.decode(encoded, type=Tree) == tree
    assert msgspec.convert({"leaves": [{"name": "a"}]}, Tree).leaves[0] == Leaf(name="a")
    assert list(msgspec.json.schema(Leaf)["$defs"]["Leaf"]["properties"]) == ["name", "parts"]
    with pytest.raises(msgspec.ValidationError, match="name"):
        msgspec.json.decode(b'{"leaves": [{}]}', type=Tree)


def test_a_value_that_holds_itself_can_be_printed() -> None:
    @record
    class Region:
        inner: list[Any] = field(default_factory=list)

    region = Region()
    region.inner.append(region)
    assert repr(region).endswith("Region(inner=[...])")


def test_a_class_of_which_many_are_made_gets_a_compiled_constructor() -> None:
    ours, _ = kinds_of(place)
    first = ours.__init__
    for _ in range(values.MANY):
        ours(row=1)
    assert ours.__init__ is first  # a few cost less through the shared one
    ours(row=1)
    assert ours.__init__ is not first
    assert repr(ours(row=1)) == repr(ours(row=1, column=0, note=""))
