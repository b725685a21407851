"""Work of the forward pass that the backward pass does again."""
