"""What a user sees: thirty screens as they were approved (`python tests/screens/screens.py` writes them anew)."""

from every import every
from screens.screens import COMMANDS, HERE, approved, screen


@every("name", COMMANDS)
def test_a_command_shows_what_was_approved(name: str) -> None:
    assert screen(name) == approved(name).read_text(), f"see what changed; if it is better: python tests/screens/screens.py {name}"


def test_every_approved_screen_is_of_a_command() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} - {"commands"} == set(COMMANDS)
