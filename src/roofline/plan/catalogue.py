"""Models by name or by path: the shipped catalogue in `models/`, a config.json, or a folder with one."""

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from ..errors import SourceError, did_you_mean
from ..machines.toml_files import read_toml
from ..units import parse, show
from .configuration import read_configuration
from .transformer import Model

FOLDER = Path(__file__).with_name("models")
CONFIGURATION = "config.json"
MOST_BYTES = int(parse("10 MB", "B"))


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model of the catalogue: the keys of its config.json, and where they are published."""

    name: str
    source: Annotated[str, Meta(min_length=1)]
    config: dict[str, Any]
    aliases: tuple[str, ...] = ()
    note: str = ""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    schema: Literal["roofline.models/1"]
    model: tuple[Entry, ...]


@cache
def entries() -> dict[str, Entry]:
    """Every model of the catalogue by name."""
    files = [read_toml(path, _File) for path in sorted(FOLDER.glob("*.toml"))]
    return {entry.name: entry for file in files for entry in file.model}


def load_model(name: str) -> Model:
    """The model with this name, or at this path."""
    wanted = name.lower().replace("_", "-").rpartition("/")[2]
    for entry in entries().values():
        if wanted in (entry.name, *entry.aliases):
            return read_configuration(entry.config, entry.name)
    path = Path(name)
    if path.is_dir():
        path /= CONFIGURATION
    if path.is_file():
        return _of_file(path)
    if path.suffix or path.name != name:
        raise SourceError(
            f"{name}: no such file; give a config.json, a folder with one, or a name of the catalogue: {', '.join(entries())}"
        )
    others = did_you_mean(name, entries()) or f"; known: {', '.join(entries())}"
    raise SourceError(f"no model named {name!r}{others}; a config.json or a folder with one will do too")


def _of_file(path: Path) -> Model:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise SourceError(f"{path}: larger than {show(MOST_BYTES, 'B')}; a config.json is a page of JSON")
        written = msgspec.json.decode(text)
    except OSError as error:
        raise SourceError(f"{path}: cannot read: {error.strerror}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise SourceError(f"{path}: not JSON: {error}") from None
    if not isinstance(written, dict):
        raise SourceError(f"{path}: not an object of keys; give the config.json of a model")
    folder = path.resolve().parent.name
    return read_configuration(written, folder if path.name == CONFIGURATION and folder else path.stem, str(path))
