"""Files on disk: atomic writes, user folders, and limits on input sizes."""
