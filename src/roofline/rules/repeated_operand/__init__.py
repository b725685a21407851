"""Arrays that are stored or multiplied several times over."""
