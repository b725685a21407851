"""TOML files as typed values: msgspec decodes them, and an error names the file, the table and the key, what is wrong and what to do."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from ..dtypes import dtype
from ..errors import MachineError, RooflineError, did_you_mean
from ..resource import Resource
from ..units import parse, show

MOST_BYTES = int(parse("1 MB", "B"))  # a hundred times the longest of the catalogue
_ONE_AT_A_TIME = Lock()  # msgspec crashes if two threads are the first to convert to a type
_T = TypeVar("_T")
_Row = TypeVar("_Row")
Texts = tuple[str, ...]


class WrongValue(MachineError):
    """A value of a file that cannot be used, and its ``place``, such as ``compute[0].rate``."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.place, self.message = place, message


@contextmanager
def within(table: str) -> Iterator[None]:
    """Prefix the place of a wrong value with the table that contains it."""
    try:
        yield
    except WrongValue as error:
        raise WrongValue(f"{table}.{error.place}" if error.place else table, error.message) from None


@contextmanager
def in_file(file: str) -> Iterator[None]:
    """Say of a wrong value in which file it is."""
    try:
        yield
    except WrongValue as error:
        raise MachineError(f"{file}: {error}") from None


def each_row(key: str, rows: Iterable[_Row], value: Callable[[_Row], _T]) -> list[_T]:
    """The value of each row of a table; an error names the row."""
    values = []
    for index, row in enumerate(rows):
        with within(f"{key}[{index}]"):
            values.append(value(row))
    return values


def read_toml(path: str | Path, kind: type[_T], *, regular: bool = False) -> _T:
    """A file's TOML as a value of a type. With ``regular``, for a file named by another file, it must be no device and no pipe."""
    try:
        if regular and os.path.exists(path) and not os.path.isfile(path):
            raise MachineError(f"{path}: not a plain file; a machine file extends a chip's name or another machine file")
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise MachineError(f"{path}: larger than {show(MOST_BYTES, 'B')}; a machine file is a page of TOML")
        tables = tomllib.loads(data.decode("utf-8"))
    except FileNotFoundError:
        raise MachineError(f"{path}: no such file; give a machine file's path or a chip's name") from None
    except OSError as error:
        raise MachineError(f"{path}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MachineError(f"{path}: not UTF-8 text; a machine file is TOML") from None
    except ValueError as error:
        raise MachineError(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise MachineError(f"{path}: TOML nested too deeply for a machine file") from None
    return typed(tables, kind, Path(path).name)


def typed(tables: object, kind: type[_T], file: str) -> _T:
    """Tables as a value of a type; ``file`` is their file's name, for errors."""
    try:
        with _ONE_AT_A_TIME:
            return msgspec.convert(tables, kind, dec_hook=_resource)
    except (msgspec.ValidationError, RooflineError) as error:
        with in_file(file):
            raise _fault(tables, kind, "", error) from None


def _resource(kind: type, name: object) -> Resource:
    """A resource by name, its number format in our spelling."""
    named = Resource(name)  # type: ignore[arg-type]
    if named.unit in ("matrix", "vector") and named.kind != "transcendental":
        return Resource(f"{named.unit}/{dtype(named.kind).rate}")
    return named


def _fault(value: object, kind: Any, place: str, error: Exception) -> WrongValue:
    """The first part of a value that is not of its declared type; ``error`` is what the value as a whole was refused with."""
    if type(None) in get_args(kind):
        kind = get_args(kind)[0]
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, Struct):
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        for key in value:
            if key not in fields:
                return WrongValue(_joined(place, key), f"unknown key{did_you_mean(key, fields) or '; known: ' + ', '.join(fields)}")
        for key, field in fields.items():
            if field.required and value.get(key, "") in ("", []):
                return WrongValue(_joined(place, key), f"missing; write it like {key} = {_noted(field.type, 'examples')[0]!r}")
        parts = [(inner, fields[key].type, _joined(place, key)) for key, inner in value.items()]
    elif isinstance(value, dict) and get_origin(kind) is dict:
        parts = [(inner, get_args(kind)[1], _joined(place, key)) for key, inner in value.items()]
    elif isinstance(value, list) and get_origin(kind) is tuple and all(isinstance(inner, dict) for inner in value):
        parts = [(inner, get_args(kind)[0], f"{place}[{index}]") for index, inner in enumerate(value)]
    else:
        parts = []
    for inner, inner_kind, inner_place in parts:
        try:
            msgspec.convert(inner, inner_kind, dec_hook=_resource)
        except (msgspec.ValidationError, RooflineError) as inner_error:
            return _fault(inner, inner_kind, inner_place, inner_error)
    if isinstance(error, WrongValue):
        return WrongValue(_joined(place, error.place), error.message)
    return WrongValue(place, str(error) if isinstance(error, RooflineError) else f"{value!r} is {_expected(kind, place)}")


def _joined(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _noted(kind: Any, attribute: str) -> Any:
    """What an annotated type says of itself: its ``description`` or its ``examples``."""
    return next((noted for meta in reversed(getattr(kind, "__metadata__", ())) if (noted := getattr(meta, attribute))), None)


def _expected(kind: Any, place: str) -> str:
    """What a value of another type is not, and how to write it."""
    key = place.rpartition(".")[2]
    if description := _noted(kind, "description"):
        return f"not {description}"
    if get_origin(kind) is Literal:
        return f"not one of {', '.join(get_args(kind))}"
    if get_origin(kind) is tuple and isinstance(item := get_args(kind)[0], type) and issubclass(item, Struct):
        return f"not a list of tables; write each under its own [[{key}]]"
    words = {
        str: "not text; write it in quotes",
        bool: "neither true nor false",
        Texts: f"not a list of strings; write it like {key} = ['…']",
    }
    return words.get(kind, f"not a table; write it under [{key}]")
