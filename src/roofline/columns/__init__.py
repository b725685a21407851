"""Very many ops, kept in columns: arrays instead of a value for each, made into rows only where one is looked at."""
