"""Property tests run on shared, busy machines: no deadlines, and slow generation is no failure."""

from hypothesis import HealthCheck, settings

collect_ignore_glob = ["data/*"]  # scripts that made the data; some need an accelerator

settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")
