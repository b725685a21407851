"""Work on padding, which the program itself added."""
