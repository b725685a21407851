"""Plans as text, rows and a page."""
