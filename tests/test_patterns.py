"""Patterns that are compiled late do what patterns do."""

import re

import pytest

from roofline.patterns import pattern


def test_a_late_pattern_finds_what_a_compiled_one_finds() -> None:
    late, compiled, text = pattern(r"(\w+)=(\d+)", re.IGNORECASE), re.compile(r"(\w+)=(\d+)", re.IGNORECASE), "a=1 B=22"
    for name in ("match", "search", "fullmatch", "findall", "split"):
        ours, theirs = getattr(late, name)(text), getattr(compiled, name)(text)
        assert (ours and ours.groups() if hasattr(ours, "groups") else ours) == (theirs.groups() if hasattr(theirs, "groups") else theirs)
    assert late.sub("x", text) == "x x"
    assert (late.pattern, late.flags, late.groups) == (compiled.pattern, compiled.flags, compiled.groups)
    assert late.match is late.match  # kept, not looked up again


def test_a_wrong_pattern_is_found_when_it_is_used() -> None:
    late = pattern("(")
    with pytest.raises(re.error):
        late.match("")
