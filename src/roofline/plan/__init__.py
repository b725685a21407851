"""Plans: which mesh, microbatch, recomputation and format a model is trained with on some chips, how long a step takes, and what fits.

A model (`transformer`, from a configuration or the catalogue) on chips and networks (`machines`) with a mesh gives the time of a step and
its memory in parts, each a named function of a few lines.
"""
