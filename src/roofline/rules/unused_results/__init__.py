"""Results that are computed, of which a part or nothing is used."""
