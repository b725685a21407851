"""Views inside other programs: notebooks."""
