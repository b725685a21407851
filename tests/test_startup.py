"""Starting is most of a short command's time, so what `roofline analyze PROFILE --json FILE` imports is kept by name.

Each of these costs milliseconds, where the whole command takes a hundred or so: `dataclasses` imports `inspect` and compiles text,
`typing` builds hundreds of objects, `msgspec` imports `typing_extensions`, a pattern that is compiled when its module is imported costs
whether it is used or not. If a module of ours has to be added to the path below, add it; if the standard library grew, look for another
way first.
"""

import json
import subprocess
import sys

import pytest

from roofline.machines import toml
from test_xspace_tpu import US, breakdown, op, ran, tpu
from xspace_writer import space

LIBRARIES = ("numpy", "pyarrow", "matplotlib", "msgspec", "starlette", "uvicorn", "fsspec", "distributed", "jax")
STANDARD = (
    *(
        "typing",
        "dataclasses",
        "inspect",
        "ast",
        "contextlib",
        "locale",
        "tomllib",
        "datetime",
        "json",
        "csv",
        "gzip",
        "shutil",
        "textwrap",
    ),
    *("difflib", "tempfile", "hashlib", "pickle", "multiprocessing", "concurrent.futures", "subprocess", "socket", "logging", "asyncio"),
)
OURS = ("roofline.hlo", "roofline.formulas", "roofline.machines.checks", "roofline.render.plot", "roofline.render.page", "roofline.cluster")
MOST_OF_OURS = 64  # modules; each costs about a third of a millisecond

RUN = """
import sys
before = set(sys.modules)
from pathlib import Path
from roofline.machines import toml
toml.PARSED = Path(sys.argv[3])
from roofline.cli import main
assert main(["analyze", sys.argv[1], "--json", sys.argv[2]]) == 0
print(*sorted(set(sys.modules) - before), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What the command imports for a TPU's profile with a fusion, a copy to the host and a collective."""
    folder = tmp_path_factory.mktemp("startup")
    groups = "replica_groups=[1,4]<=[4], to_apply=%sum"
    ops = [
        op("fusion.1", "loop fusion", flops=1000, moved=8000, access=breakdown((1, 1, 4000), (2, 1, 4000))),
        op("all-reduce.1", "all-reduce", f"%all-reduce.1 = f32[1000]{{0}} all-reduce(f32[1000]{{0}} %x), {groups}", flops=1000, moved=8000),
    ]
    events = [ran(one, place * US, US) for place, one in enumerate(ops)]
    profile, report, parsed = folder / "host.xplane.pb", folder / "report.json", folder / "parsed.bin"
    profile.write_bytes(space([tpu(events, ops)]))
    toml.write_parsed(parsed)
    run = subprocess.run([sys.executable, "-c", RUN, profile, report, parsed], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert json.loads(report.read_text())["machine"]["name"] == "tpu-v6e"
    return set(run.stderr.split())


@pytest.mark.parametrize("name", [*LIBRARIES, *STANDARD, *OURS])
def test_analysing_a_profile_does_without(name: str, imported: set[str]) -> None:
    assert name not in imported


def test_analysing_a_profile_imports_few_of_our_modules(imported: set[str]) -> None:
    ours = sorted(name for name in imported if name.startswith("roofline"))
    assert len(ours) <= MOST_OF_OURS, ours
