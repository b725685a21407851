"""The compiled parts of the package; everything else is in pyproject.toml.

The extensions keep to the limited C API of Python 3.11, so one build serves every later version.
"""

import sys
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path("src/roofline")
XSPACE = ROOT / "sources" / "xspace"
CORE = sorted(str(path) for path in (XSPACE / "core").glob("*.c"))
BINDING = [str(XSPACE / name) for name in ("_scan.c", "binding_index.c", "binding_jobs.c")]
HEADERS = sorted(str(path) for path in ROOT.glob("**/*.h"))


def native(name: str, sources: list[str], folders: list[Path]) -> Extension:
    return Extension(
        name,
        sources=sources,
        depends=HEADERS,
        include_dirs=[str(folder) for folder in folders],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=["/std:c11", "/O2"] if sys.platform == "win32" else ["-std=c11", "-O3", "-fvisibility=hidden"],
        py_limited_api=True,
    )


setup(
    ext_modules=[
        native("roofline.hlo.read._wire", [str(ROOT / "hlo" / "read" / "_wire.c")], [ROOT]),
        native("roofline.sources.xspace._scan", BINDING + CORE, [ROOT, XSPACE]),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
