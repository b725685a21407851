"""Text on paper."""

from roofline.render.tables import Paper, shorten_label


def test_a_line_may_be_as_long_as_the_paper_is_wide() -> None:
    # "- to be" has 7 letters; "  or not" would have 8.
    assert Paper(7).paragraph("to be or not", "- ", "  ") == "- to be\n  or\n  not"


def test_a_paragraph_without_words_keeps_its_mark() -> None:
    assert Paper(7).paragraph("", "- ", "  ") == "-"


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    assert Paper(width=18).paragraph("about 4.2 ms less, 24 ms per step left") == "about 4.2 ms less,\n24 ms per step\nleft"
    assert Paper(width=9).paragraph("moves 12 GB/s") == "moves\n12 GB/s"


def test_labels_lose_the_beginning_of_their_place_first_and_keep_how_often_they_ran() -> None:
    long = "transformer/decoder/layer*/mlp/up  dot 8192×2048×8192 bf16  ×4"
    assert shorten_label(long, 100) == long
    assert shorten_label(long, 57) == "…/decoder/layer*/mlp/up  dot 8192×2048×8192 bf16  ×4"
    assert shorten_label(long, 48) == "…/layer*/mlp/up  dot 8192×2048×8192 bf16  ×4"
    short = shorten_label(long, 30)
    assert len(short) <= 30
    assert short.endswith("bf16  ×4")
