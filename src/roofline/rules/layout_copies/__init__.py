"""Copies of arrays into another layout, or into one piece, before they are used."""
