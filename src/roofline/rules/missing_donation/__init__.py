"""Arrays that are copied in full, although only a small part of them changes."""
