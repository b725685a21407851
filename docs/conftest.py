"""Pages whose snippets need a framework that is not installed are left out."""

from importlib.util import find_spec

collect_ignore = ["conftest.py", *([] if find_spec("torch") else ["torch.md"])]
