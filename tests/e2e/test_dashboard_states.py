"""What pages say where there is nothing to show, and where what is shown is not to be trusted; in a real browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.dashboard.recorded_api import RecordedApi, recorded, serving
from tests.e2e.test_dashboard import browser, dashboard, page_of

__all__ = ["browser"]


def test_a_fleet_without_a_tenant_says_so_on_every_page(browser: Browser, tmp_path: Path) -> None:
    empty = RecordedApi(recorded("managed"))
    for path, answer in empty.answers.items():
        if path.startswith("fleets/local/") and isinstance(answer, dict) and "items" in answer:
            empty.answers[path] = {"items": [], "next_cursor": None, "total": 0}
    empty.answers["fleets/local/costs"] |= {"tenants": [], "deployment_per_tenant_replicas": 0}
    empty.fleet["tenants"] = {"hot": 0, "warm": 0, "cold": 0}
    says = {
        "tenants": "No tenant here", "noisy-neighbours": "No tenant is known to hurt another",
        "adapter-thrash": "No replica was looked at yet", "ring": "No adapter matches ''",
        "decisions": "No decision yet", "overrides": "No override", "cost": "No tenant has demand",
        "reports": "No folder of reports is set",
    }  # fmt: skip
    with (
        serving(empty) as api,
        dashboard(tmp_path, int(api.url.rpartition(":")[2]), "reader") as url,
        page_of(browser) as (page, wrong),
    ):
        for path, said in says.items():
            page.goto(f"{url}/{path}?fleet=local")
            expect(page.locator(".la-banner h2", has_text=said)).to_be_visible()
        assert wrong == []


def test_a_controller_that_stands_still_and_signals_that_are_missing_are_said(browser: Browser, tmp_path: Path) -> None:
    still = RecordedApi(recorded("managed"))
    still.late_s = 600.0
    still.fleet["signals"]["traffic"] = {"value": None, "missing": "stale by 312 s"}
    still.fleet["health"] = {"state": "unknown", "sentence": "Signals are missing (traffic: stale by 312 s): held."}
    with (
        serving(still) as api,
        dashboard(tmp_path, int(api.url.rpartition(":")[2]), "reader") as url,
        page_of(browser) as (page, wrong),
    ):
        page.goto(url)
        expect(page.locator(".la-banner h2").first).to_have_text("The controller's last tick was 10 min ago")
        expect(page.locator(".la-banner h2").nth(1)).to_have_text("Not known: signals are missing")
        expect(page.locator(".la-table", has_text="Source")).to_contain_text("stale by 312 s")
        assert wrong == []
