"""Lowers the executions of a trace to a graph."""
