"""Traces of the PyTorch profiler (Kineto): events of the host's threads and of the devices, as JSON.

`chunks` cuts a file into events, `events` decodes them, `columns` stores them; all other modules work on columns. `linking` and `pricing`
find the op and the cost of each event, `rows` sums them up, `idle` explains gaps, `lower` makes the
graph on which rules find avoidable work.
"""

TRACES = (".pt.trace.json", ".pt.trace.json.gz")  # suffixes that torch.profiler uses for TensorBoard
