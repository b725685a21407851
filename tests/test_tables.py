"""Text on paper: lines are filled as `textwrap` fills them, which is imported only where a word is longer than a line."""

from textwrap import wrap

from hypothesis import given
from hypothesis import strategies as st

from roofline.render.tables import Paper

words = st.text("ab-–\t\u00a0", min_size=1, max_size=12)


@given(
    st.lists(words, min_size=1),
    st.sampled_from((" ", "  ")),
    st.integers(8, 40),
    st.sampled_from(("", "1. ")),
    st.sampled_from(("", "   ")),
)
def test_a_paragraph_breaks_where_textwrap_breaks(some: list[str], gap: str, width: int, first: str, rest: str) -> None:
    text = gap.join(some)
    lines = wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    assert Paper(width).paragraph(text, first, rest) == "\n".join(lines or [first.rstrip()])


def test_a_line_may_be_as_long_as_the_paper_is_wide() -> None:
    # "- to be" has 7 letters; "  or not" would have 8.
    assert Paper(7).paragraph("to be or not", "- ", "  ") == "- to be\n  or\n  not"
