"""The compiled parts of the package; everything else is in pyproject.toml.

The extensions keep to the limited C API of Python 3.11, so one build serves every later version.
"""

import sys
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path("src/roofline")
FLAGS = ["-std=c11", "-O3", "-fvisibility=hidden", "-ffp-contract=fast"]  # the last: multiply-adds are fused, as CPUs are measured with
HEADERS = sorted(str(path) for path in ROOT.rglob("*.h"))


def native(module: Path) -> Extension:
    """An extension module: the C file it is named after, and the C beside and below it."""
    return Extension(
        ".".join(module.relative_to("src").with_suffix("").parts),
        sources=sorted(str(path) for path in module.parent.rglob("*.c")),
        depends=HEADERS,
        include_dirs=[str(ROOT), str(module.parent)],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=["/std:c11", "/O2"] if sys.platform == "win32" else FLAGS,
        py_limited_api=True,
    )


setup(
    ext_modules=[native(path) for path in sorted(ROOT.rglob("_*.c"))],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
