"""What instructions cost: arithmetic by unit, bytes by memory, and library calls."""
