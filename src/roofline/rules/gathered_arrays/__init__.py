"""Arrays that are gathered whole."""
