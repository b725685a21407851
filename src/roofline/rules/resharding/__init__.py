"""Arrays that are divided in two ways."""
