"""Padding in the tiles that arrays are stored in."""
