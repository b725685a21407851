"""Reads the files of a trace into columns of numbers."""
