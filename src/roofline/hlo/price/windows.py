"""Sliding windows of HLO instructions: those of convolutions."""

from ...ops.convolution import inputs_read as inputs_read
