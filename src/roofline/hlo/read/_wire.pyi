from typing import Any

from typing_extensions import Buffer

Field = tuple[int, int, int, int]

def unpack(plan: str, data: Buffer, start: int = ..., end: int = ..., /) -> tuple[Any, ...]: ...
def fields(data: Buffer, start: int = ..., end: int = ..., /) -> list[Field]: ...
