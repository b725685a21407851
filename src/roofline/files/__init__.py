"""Files on disk: atomic writes, cleanup of unfinished files, user folders, and limits on input sizes."""
