"""The guide does what it says: its commands print what it shows, its figures can be drawn again, and no number goes missing."""

import io
import re
import runpy
import shlex
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageChops

from every import every
from roofline.cli import main
from roofline.render.plot import save

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GUIDE = (DOCS / "guide.md").read_text()


def console_blocks(page: str) -> list[tuple[str, str]]:
    """Every command of a page's console blocks, and what stands below it."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = entry.replace("\\\n", " ").partition("\n")
            found.append((command, shown))
    return found


def test_a_block_is_split_into_commands_and_what_they_print() -> None:
    page = "text\n```console\n$ roofline one\na\n\nb\n$ roofline two \\\n-o x\n```\n```python\n$ roofline no\n```\n"
    assert console_blocks(page) == [("roofline one", "a\n\nb\n"), ("roofline two  -o x", "")]


PAGES = sorted(page for page in (ROOT / "README.md", *DOCS.glob("*.md")) if console_blocks(page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_print_what_the_page_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in a folder of their own, where `src` is ours; `cat FILE` makes the file out of the lines it shows."""
    (tmp_path / "src").symlink_to(ROOT / "src")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROOFLINE_CHIP", raising=False)
    for command, shown in console_blocks(page.read_text()):
        program, *words = shlex.split(command)
        if program == "cat":
            Path(words[0]).write_text(shown)
            continue
        assert program == "roofline", f"$ {command}: only roofline is run here"
        printed = io.StringIO()
        with redirect_stdout(printed):
            status = main(words)
        # Exit 3 is a check that failed, which a page may show.
        assert status in (0, 3), f"$ {command}"
        assert printed.getvalue() == shown, f"$ {command}"
        if "-o" in words:
            assert Path(words[words.index("-o") + 1]).stat().st_size > 0


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "guide_figures.py"))


def test_every_figure_is_shown_kept_and_made(figures: dict[str, Any]) -> None:
    shown = set(re.findall(r"!\[[^\]]+\]\(figures/([^)]+)\)", GUIDE))
    kept = {path.name for path in (DOCS / "figures").glob("guide-*")}
    assert shown == kept == set(figures["FIGURES"])


@pytest.mark.parametrize(
    "chosen", [("guide-distance.png", "guide-times.png"), pytest.param(None, marks=pytest.mark.slow)], ids=["two", "every one"]
)
def test_figures_can_be_drawn_again(figures: dict[str, Any], tmp_path: Path, chosen: tuple[str, ...] | None) -> None:
    # A figure that comes out much larger or smaller than the one kept has changed: run docs/guide_figures.py and look at it.
    drawn = figures["write"](tmp_path, chosen or figures["FIGURES"])
    assert len(drawn) == len(chosen or figures["FIGURES"])
    for path in drawn:
        assert path.stat().st_size == pytest.approx((DOCS / "figures" / path.name).stat().st_size, rel=0.5), path.name


def test_few_colours_are_the_right_ones(figures: dict[str, Any], tmp_path: Path) -> None:
    # The green, purple and orange of this figure's legend are a few hundred pixels each.
    plain = save(figures["distance"](), tmp_path / "plain.png", dpi=figures["DPI"])
    (reduced,) = figures["write"](tmp_path, ["guide-distance.png"])
    with Image.open(plain) as drawn, Image.open(reduced) as few:
        difference = ImageChops.difference(drawn.convert("RGB"), few.convert("RGB"))
    assert max(high for _, high in difference.getextrema()) < 24


# What published guides print, by subject. Snippets compute most of them; this list keeps anyone from dropping one.
NUMBERS: dict[str, tuple[str, ...]] = {
    "ridges of four roofs": ("640.8", "320.4", "573.8", "166.3"),
    "LayerNorm on four roofs": ("1.7    12T", "12T   0.5%", "3T   0.3%", "5T   1.0%", "12.0 TFLOP/s", "'0.5%', '100%'", "2.5"),
    "attention scores, both ways": ("107.8   776T", "172T", "297T", "113.8"),
    "a product of 600": ("200.0  1440T", "320T", "459T 100.0% comp"),
    "FFN up": ("3120.8  4614T", "2307T 100.0% comp", "918T 100.0% comp"),
    "square products": (
        *("524,288 FLOP", "24,576 B", "21.3 FLOP/B"),
        *("33,554,432 FLOP", "393,216 B", "85.3 FLOP/B"),
        *("2,147,483,648 FLOP", "6,291,456 B", "341.3 FLOP/B"),
        *("137,438,953,472 FLOP", "100,663,296 B", "1365.3 FLOP/B"),
        *("8,796,093,022,208 FLOP", "1,610,612,736 B", "5461.3 FLOP/B"),
        *("N/3", "[333, 33]"),
    ),
    "crossings of square products": ("1922.50", "1922\n", "961.25", "961\n", "1721.25", "1721\n", "498.91", "498\n"),
    "fusion": (
        *("268,435,456", "4.29 GB  1.25 FLOP/B    9 TFLOP/s    1.0x", "2.15 GB  2.50 FLOP/B   18 TFLOP/s    2.0x"),
        *("1.07 GB  5.00 FLOP/B   36 TFLOP/s    4.0x", "1.25 as 1.2", "4.83", "2.68", "1.61"),
    ),
    "2048 with and without accumulator": ("17,179,869,184", "41,943,040 B  409.6", "20,971,520 B  819.2", "25,165,824"),
    "measurements": ("92%", "55%", "35%", "78%", "92%', '8%'", "25%', '75%'"),
    "memory levels": ("(320, 15)", "150 TB/s", "360 TFLOP/s", "1260"),
    "communication": ("20, 40 and 60%", "20% 1.846 PFLOP/s", "40% 1.384 PFLOP/s", "60% 922.8 TFLOP/s"),
    "dot product": ("2N − 1", "4N + 2", "1/2 FLOP/B", "(50.0, 1999, 4002, 0.5)", "'1 TFLOP/s'"),
    "vector unit of v5p": ("7·10¹²", '"about 3"', "2.54", "5.1"),
    "critical batches": ("[240, 295]", "8192 crosses at 255.2", "4096 crosses at 272.2"),
    "two chips": ("8755.56", "8755 ", "7880", "1970"),
    "tiles": ("2·t_m·t_n·t_k·b_m·b_k·b_n", "2·t_m·t_n·[t_k·(b_m·b_k + b_k·b_n)]", "b_m·b_n/(b_m + b_n)"),
    "quantization": ("(240.2, 240.2, 120.1, 240.2, 60.1)", "(486, 243)"),
    "weights of each example": ("below 1 FLOP/B",),
    "sustained rates": ("about 95%", "80 to 85%"),
    "bounds": ("T_max ≤ 2·T_min", "k units give k"),
}


@every("subject", NUMBERS)
def test_no_published_number_is_missing(subject: str) -> None:
    # A line break may fall anywhere in a sentence.
    text = f"{GUIDE}\n{' '.join(GUIDE.split())}"
    assert [number for number in NUMBERS[subject] if number not in text] == []
