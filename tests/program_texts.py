"""Programs for tests, as text: the files of ``tests/data/programs``, in which ``$word`` stands for what a test puts there."""

from pathlib import Path
from string import Template

FOLDER = Path(__file__).parent / "data" / "programs"


def program_text(name: str, **values: object) -> str:
    """The text of a program; with values for the words in it, if it has any."""
    text = (FOLDER / name).read_text()
    return Template(text).substitute(values) if values else text
