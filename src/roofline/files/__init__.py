"""Files on disk: written whole or not at all, unfinished ones, the folders of the user, and how much an input may hold."""
