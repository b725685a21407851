"""Work that is done twice."""
