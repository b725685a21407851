"""Arguments that every device has whole."""
