"""What a compiler fuses, what it did not fuse and why, and what that costs."""
