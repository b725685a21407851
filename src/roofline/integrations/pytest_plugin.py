"""The pytest plugin: budgets for JAX and PyTorch functions as tests.

    def test_layer(roofline_report):
        report = roofline_report(layer, chip="h100")(weights, tokens)
        report.check("hbm <= 1.1x baseline", "peak memory < 2 GB")

pytest imports this module in every project with roofline installed, so it imports nothing else until a test uses the fixture.
"""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .pytest_budgets import ReportMaker


def pytest_addoption(parser: Any) -> None:
    """The option that writes baselines."""
    group = parser.getgroup("roofline", "roofline budgets")
    group.addoption(
        "--roofline-update",
        action="store_true",
        help="write the baselines that roofline budgets compare with, from the functions as they are now",
    )


@pytest.fixture
def roofline_report(request: pytest.FixtureRequest) -> "ReportMaker":
    """Reports on functions for budgets: ``roofline_report(function, chip="h100")(*args).check("hbm <= 1.1 GB")``."""
    from .pytest_budgets import ReportMaker

    return ReportMaker(request)
