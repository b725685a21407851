"""A law of every report: separate savings never sum to more than the time."""

from roofline.report import Report


def assert_savings_fit(report: Report) -> None:
    """Assert it for the whole of a report, and for its step, or its run on one device."""
    saving = [finding for finding in report.findings if finding.saving_s]
    whole, point = report.points[0], report.main_point or report.points[0]
    each = [finding.saving_per_device_s if finding.saving_per_step_s is None else finding.saving_per_step_s for finding in saving]
    of_all = max(whole.device_seconds or 0, whole.span_s or 0, whole.time_s or 0, whole.floors_s or 0)
    assert sum(finding.saving_s or 0 for finding in saving) <= (1 + 1e-6) * of_all
    assert sum(seconds or 0 for seconds in each) <= (1 + 1e-6) * (point.time_s or point.floors_s or point.floor_s or 0)
    assert all(finding.then_s is None or finding.then_s >= 0 for finding in saving)
