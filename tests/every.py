"""One test for a law and many cases: all of them are tried, and those that break it are told together."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def every(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Calls a test once a case, as ``pytest.mark.parametrize`` would, but as one test, with the same fixtures for all cases."""
    words = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    rows = [(case,) if len(words) == 1 else tuple(case) for case in cases]
    assert rows, "a law without cases cannot fail"

    def looped(law: Callable[..., None]) -> Callable[..., None]:
        def test(**fixtures: Any) -> None:
            broken: list[BaseException] = []
            for row in rows:
                values = dict(zip(words, row, strict=True))
                for name in ("capsys", "capfd"):
                    if name in fixtures:
                        fixtures[name].readouterr()  # what the case before left unread
                try:
                    law(**values, **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"where {', '.join(f'{name} = {value!r:.200}' for name, value in values.items())}")
                    broken.append(error)
            if broken:
                raise BaseExceptionGroup(f"{len(broken)} of {len(rows)} cases", broken)

        signature = inspect.signature(law)
        test.__name__, test.__qualname__, test.__doc__, test.__module__ = law.__name__, law.__qualname__, law.__doc__, law.__module__
        test.__dict__.update(law.__dict__)
        test.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[parameter for name, parameter in signature.parameters.items() if name not in words]
        )
        return test

    return looped
