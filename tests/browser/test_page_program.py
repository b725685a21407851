"""The program level and the device: one chart, one table, one sheet of peaks with their origins."""

from playwright.sync_api import expect
from reading import Opener, at, column, count, report, rows, words, written

import roofline as rl
from roofline.machine import PROVENANCES
from roofline.units import plain


def test_the_program_has_a_chart_and_a_table_of_its_points(show: Opener) -> None:
    page = show("train")
    at(page, "tab-program").click()
    points = [point for point in report(page)["points"] if point["infeed_outfeed"]]
    expect(rows(page, "program-table")).to_have_count(len(points) + 1)
    names = column(page, "name", "program-table")
    assert len(set(names)) == len(points) + 1  # the whole, the average, the time before the first step, six steps
    said = words(page, "program-chart")
    assert "Achieved FLOP/s" in said
    assert "matrix bf16 989.4 TFLOP/s" in said


def test_the_table_of_the_program_has_what_is_asked_of_it(show: Opener) -> None:
    page = show("train", "tab=program")
    headings = " ".join(page.locator("[data-testid=program-table] [role=columnheader]").all_inner_texts())
    for word in ("time", "work", "achieved", "intensity", "bound by", "roofline efficiency", "compute utilization", "memory utilization"):
        assert word in headings
    total = next(point for point in report(page)["points"] if point["scope"] == "total")
    assert column(page, "time_s", "program-table")[0] == f"{1000 * total['time_s']:.4g} ms"
    assert column(page, "efficiency", "program-table")[0] == f"{100 * total['efficiency']:.0f}%"
    # The matrix unit's share of its peak is its utilization, and the memory's that of HBM.
    assert column(page, "peak_share", "program-table")[0] == f"{100 * total['utilization']['matrix']:.0f}%"
    assert column(page, "memory_utilization", "program-table")[0] == f"{100 * total['utilization']['hbm']:.0f}%"


def test_points_of_the_program_can_be_switched_off(show: Opener) -> None:
    page = show("train", "tab=program")
    before = rows(page, "program-table").count()
    at(page, "scope-step").uncheck()
    expect(rows(page, "program-table")).to_have_count(before - 7)  # six steps, and the time before them
    at(page, "scope-average").uncheck()
    expect(rows(page, "program-table")).to_have_count(1)


def test_the_device_has_every_peak_and_where_it_comes_from(show: Opener) -> None:
    page = show("train")
    at(page, "panel-device").click()
    machine = report(page)["machine"]
    expect(at(page, "machine-name")).to_have_text(machine["title"])
    ceilings = page.locator("[data-testid=ceilings] .ceiling")
    expect(ceilings).to_have_count(len(machine["ceilings"]))
    for ceiling in machine["ceilings"]:
        line = page.locator(f"[data-testid=ceilings] [data-resource='{ceiling['resource']}']")
        expect(line).to_contain_text(ceiling["provenance"])
        expect(line.locator(".tag")).to_have_attribute("title", PROVENANCES[ceiling["provenance"]])
        if ceiling["citation"]:
            expect(line).to_contain_text(ceiling["citation"])
    hbm = page.locator("[data-testid=ceilings] [data-resource=hbm]")
    expect(hbm).to_contain_text("4.814 TB/s")  # what the profile says
    expect(hbm).to_contain_text("profile")
    expect(hbm).to_contain_text("4.8 TB/s")  # the catalogue's, beside it
    expect(at(page, "device-information")).to_contain_text("NVIDIA H200")


def test_the_device_has_the_ridge_of_each_memory_level(show: Opener) -> None:
    page = show("feeds", "chip=tpu-v5p&panel=device")
    machine = rl.chip("v5p")
    for level in ("hbm", "vmem.read"):
        ridge = machine.rate("matrix/bf16") / machine.rate(level)
        expect(at(page, "ridges")).to_contain_text(f"{plain(ridge)} FLOP/B")
    expect(at(page, "device-information")).to_contain_text("Ridge points of matrix bf16")


def test_the_figures_at_the_top_are_those_of_an_average_step(show: Opener) -> None:
    page = show("train")
    average = next(point for point in report(page)["points"] if point["scope"] == "average")
    expect(at(page, "figure-time")).to_contain_text(f"{1000 * average['time_s']:.3g} ms")
    expect(at(page, "figure-floor")).to_contain_text(f"{1000 * average['at_roof_s']:.3g} ms")
    expect(at(page, "figure-mfu")).to_contain_text(f"{100 * average['mfu']:.0f}%")
    expect(at(page, "figure-hfu")).to_contain_text(f"{100 * average['hfu']:.0f}%")
    expect(at(page, "figure-efficiency")).to_contain_text(f"{100 * average['efficiency']:.0f}%")
    expect(at(page, "figure-ops")).to_contain_text("231")


def test_a_program_that_was_not_timed_shows_its_minimum_time(show: Opener) -> None:
    page = show("untimed")
    expect(at(page, "figure-floor")).to_contain_text("no measured times")
    written(page, "Attainable FLOP/s")
    assert count(page) == len(report(page)["ops"])
