"""Products in a costly order."""
