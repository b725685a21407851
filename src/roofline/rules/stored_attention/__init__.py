"""Attention whose scores, one for each pair of a query and a key, go through memory."""
