"""Very many ops, stored in columns: arrays instead of an object per op; rows are made only when they are read."""
