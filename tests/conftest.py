"""Property tests run on shared, busy machines: no deadlines, and slow generation is not a failure. No test touches the user's files."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from roofline import rule_failures
from roofline.files.input_limits import DEFAULT, set_limits
from roofline.sources.files import files_of
from roofline.sources.parts import Part
from roofline.sources.xspace.recording import read_part
from tpu_compiler import HAS_WHEEL, why_not

# Scripts that made the data, some of which need an accelerator; two modules of one name, in which there are no doctests to find; kernels
# that only Triton imports.
collect_ignore_glob = ["data/*", "conftest.py", "browser/conftest.py", "compiled_kernels.py"]

# `make test-all` asks for the thorough profile.
settings.register_profile("thorough", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=250)
settings.register_profile("shared", settings.get_profile("thorough"), max_examples=25)
settings.load_profile("shared")
rule_failures.are_raised = True  # a rule that fails is a bug, not a note


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="fail if a test is skipped")


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("--no-skips") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("tpu") and (reason := why_not()):
        pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where the TPU compiler can be installed, tests that miss it show, and on GitHub they annotate the run."""
    skipped = [report for report in terminalreporter.stats.get("skipped", ()) if "tpu" in getattr(report, "keywords", ())]
    if skipped and HAS_WHEEL:
        prefix = "::warning::" if "GITHUB_ACTIONS" in os.environ else ""
        terminalreporter.write_line(f"{prefix}tests of TPU programs that were skipped: {len(skipped)}; {why_not()}", yellow=True)


@pytest.fixture(autouse=True, scope="session")
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROOFLINE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("ROOFLINE_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_proxy_to_servers_of_tests() -> Iterator[None]:
    """A computer that reaches the network through a proxy reaches itself directly."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, "127.0.0.1,localhost")
        yield


@pytest.fixture(autouse=True)
def _limits_of_its_own() -> Iterator[None]:
    """Options that a test parses set the limits of the process, which the next one must not find."""
    yield
    set_limits(DEFAULT)


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four hosts; what they ran differs, so that a host left out or read twice shows."""
    folder = tmp_path_factory.mktemp("logs") / "plugins" / "profile" / "monday"
    folder.mkdir(parents=True)
    captures = ("jax_scan.xplane.pb.gz", "jax_fusion.xplane.pb", "jax_graphs.xplane.pb.gz", "jax_cond.xplane.pb.gz")
    for number, name in enumerate(captures):
        shutil.copy(Path(__file__).parent / "data" / "h200" / name, folder / f"host{number}{name[name.index('.') :]}")
    return folder


@pytest.fixture(scope="session")
def parts(run_folder: Path) -> list[Part]:
    """What each host of that run says."""
    return [read_part(file, shared=True) for file in files_of([str(run_folder)])]
