"""Traces of the PyTorch profiler (Kineto): events of the host's threads and of the devices, as JSON.

`chunks` cuts a file into events, `events` decodes them, `columns` keeps what is needed of them; everything above works on columns.
"""

TRACES = (".pt.trace.json", ".pt.trace.json.gz")  # how the names end that torch.profiler gives traces for TensorBoard
