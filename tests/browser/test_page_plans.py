"""The page of plans: a dot per plan, and the chosen plan's step, parts and memory."""

from pathlib import Path

from playwright.sync_api import expect
from watching import Watch

import roofline as rl
from roofline.render.plan.page import plans_page


def test_a_plan_is_chosen_on_the_chart_and_in_the_table(watch: Watch, tmp_path: Path) -> None:
    plans = rl.plan("llama3-70b", "h100", 64, batch=256, seq=8192, format="fp8", mesh="tp=4")
    file = tmp_path / "plans.html"
    file.write_text(plans_page(plans))
    page = watch.page()
    page.goto(file.as_uri())
    expect(page.locator("circle.dot")).to_have_count(len(plans.plans))
    expect(page.locator("#chosen-title")).to_contain_text(f"Plan 1: {plans.best.name}, microbatch")
    third = plans.plans[2]
    page.locator("circle.dot").nth(2).dispatch_event("click")
    expect(page.locator("#chosen-title")).to_contain_text(f"Plan 3: {third.name}")
    assert page.locator("#timeline rect").count() >= third.mesh["pp"]
    for part in third.parts:
        expect(page.locator("#parts")).to_contain_text(part)
    page.get_by_role("button", name="2: ").first.click()
    expect(page.locator("#chosen-title")).to_contain_text("Plan 2: ")
