"""Text on paper."""

from roofline.render.tables import Paper


def test_a_line_may_be_as_long_as_the_paper_is_wide() -> None:
    # "- to be" has 7 letters; "  or not" would have 8.
    assert Paper(7).paragraph("to be or not", "- ", "  ") == "- to be\n  or\n  not"


def test_a_paragraph_without_words_keeps_its_mark() -> None:
    assert Paper(7).paragraph("", "- ", "  ") == "-"
