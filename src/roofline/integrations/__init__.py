"""Reports inside other programs: notebooks, pytest and agents."""

import sys
from typing import Any


def show_reports_in_notebooks() -> None:
    """In IPython, register the display of a `Report` as its page; nothing else is imported until one is shown."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None:
        return

    def bundle(report: Any, include: object = None, exclude: object = None) -> dict[str, str]:
        from . import notebook

        return notebook.bundle(report)

    shell.display_formatter.mimebundle_formatter.for_type_by_name("roofline.report", "Report", bundle)
