"""Forms of commands that modules of their own run, and what former names of commands run."""
