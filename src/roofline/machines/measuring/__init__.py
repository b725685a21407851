"""Measuring a machine: experiments on this computer's CPU or accelerator, and the machine that their results describe."""
