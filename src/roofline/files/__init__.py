"""Files on disk: written whole or not at all, unfinished ones, and the folders of the user."""
