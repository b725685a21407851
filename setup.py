"""The compiled parts of the package; everything else is in pyproject.toml.

The extensions keep to the limited C API of Python 3.11, so one build serves every later version.
"""

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, ExecError, PlatformError

ROOT = Path("src/roofline")
FLAGS = ["-std=c11", "-O3", "-fvisibility=hidden", "-ffp-contract=fast"]  # the last: multiply-adds are fused, as CPUs are measured with
HEADERS = sorted(str(path) for path in ROOT.rglob("*.h"))


COMPILERS = "apt install build-essential, dnf install gcc, xcode-select --install, or Visual Studio Build Tools with C++"


class BuildExtensions(build_ext):
    """Compiles, and says in one line what is missing."""

    def build_extension(self, extension: Extension) -> None:
        try:
            super().build_extension(extension)
        except (CompileError, ExecError, PlatformError) as error:
            sys.exit(f"roofline: cannot compile {extension.name}: {missing() or error}")


def missing() -> str:
    """What compiling needs and this computer lacks."""
    command = shlex.split(sysconfig.get_config_var("CC") or "") if sys.platform != "win32" else []
    command = shlex.split(os.environ.get("CC", "")) or command
    if command and not shutil.which(command[0]):
        return f"no C compiler ({command[0]} is not found); install one: {COMPILERS}"
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return "" if headers.exists() else f"no headers of Python ({headers}); install them: apt install python3-dev, dnf install python3-devel"


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
    cmdclass={"build_ext": BuildExtensions},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
