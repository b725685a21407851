"""Property tests run on shared, busy machines: no deadlines, and slow generation is no failure. No test touches the user's cache."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Scripts that made the data, some of which need an accelerator; and two modules of one name, in which there are no doctests to find.
collect_ignore_glob = ["data/*", "conftest.py", "browser/conftest.py"]

settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROOFLINE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
