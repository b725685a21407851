"""What shows configurations of kernels: text, rows and a page."""
