"""Numbers in a wider format than needed, in products, in arrays beside them, in weights, and in transforms of real numbers."""
