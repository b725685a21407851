"""Findings: where a program loses time, what to do about it, and how long it takes after that.

Each origin (avoidable work that rules find, idle time, counters, the speed of kernels, single ops) gives `evidence`: numbers and names.
It is merged in `diagnosis`, written in `writing` with the words of the catalogue (`roofline.rules.words`), and ordered in `order`.
"""
