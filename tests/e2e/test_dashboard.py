"""The dashboard in a real browser over a running API: pages, an override by click, an expired token, a dead API."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from autoscaler.connectors.stores.sqlite import SqliteStores
from autoscaler.domain.fleet import Tier
from tests.api.conftest import TOKENS, Api
from tests.dashboard.recorded_api import RecordedApi, recorded, serving
from tests.e2e.parts.processes import LOOPBACK, Server, answers_200, free_port, need, wait_until
from tests.planner.world import World, catalogue, policy

expect.set_options(timeout=30_000)
ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "": "Fleet", "tenants": "Tenants", "noisy-neighbours": "Noisy neighbours", "adapter-thrash": "Adapter thrash",
    "ring": "Ring", "decisions": "Decisions", "overrides": "Overrides", "cost": "Cost",
    "reports": "Simulator reports",
}  # fmt: skip
# Streamlit finds its server by asking below the page's own address first; these two answers are expected.
OPERATOR_TOKEN = "never-in-a-browser"
PROBES = ("/_stcore/health", "/_stcore/host-config")


@dataclass
class Stage:
    """A fleet of 24 tenants behind a served API, and a dashboard over it."""

    api: Api
    port: int
    dashboard: str
    server: uvicorn.Server | None = None
    thread: threading.Thread | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def tick(self) -> None:
        """The controller's loop, until it is over."""
        while not self.over.wait(2.0):
            self.api.world.now_s = time.time() - 15
            self.api.tick()

    def serve(self) -> None:
        config = uvicorn.Config(self.api.app, host=LOOPBACK, port=self.port, log_level="error")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        wait_until("the API serves", lambda: self.server is not None and self.server.started)

    def stop(self) -> None:
        if self.server is not None and self.thread is not None:
            self.server.should_exit = True
            self.thread.join(10)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("dashboard")
    stores = SqliteStores(folder / "state.db", time.time)
    world = World(policy(), catalogue(24), now_s=time.time() - 60)
    world.start("warm", 4)
    api = Api(world, stores, now_s=time.time())
    api.tick(3)
    asyncio.run(api.publish())
    port = free_port()
    with pytest.MonkeyPatch.context() as patch, dashboard(folder, port, "rob") as url:
        patch.setitem(TOKENS, OPERATOR_TOKEN, TOKENS["ann"])
        stage = Stage(api, port, url)
        stage.serve()
        ticking = threading.Thread(target=stage.tick, daemon=True)
        ticking.start()
        try:
            yield stage
        finally:
            stage.over.set()
            ticking.join()
            stage.stop()
            stores.close()


@contextmanager
def dashboard(
    folder: Path, api_port: int, token: str, operator_token: str = OPERATOR_TOKEN, reports: str = ""
) -> Iterator[str]:
    """A dashboard of its own over an API on loopback. `reports`: the folder of simulator reports."""
    port = free_port()
    argv = [
        sys.executable, "-m", "streamlit", "run", str(ROOT / "dashboard" / "app.py"), "--server.port", str(port),
        "--server.address", LOOPBACK, "--server.headless", "true",
    ]  # fmt: skip
    environment = {
        "LORA_AUTOSCALER_URL": f"http://{LOOPBACK}:{api_port}",
        "LORA_AUTOSCALER_TOKEN": token,
        "LORA_AUTOSCALER_OPERATOR_TOKEN": operator_token,
        "LORA_AUTOSCALER_OPERATORS": "*@example.com",
        "LORA_AUTOSCALER_USER_HEADER": "X-Forwarded-User",
        "LORA_AUTOSCALER_REFRESH_S": "2",
        "LORA_AUTOSCALER_REPORTS": reports,
    }
    url = f"http://{LOOPBACK}:{port}"
    ready: Callable[[], object] = lambda: answers_200(f"{url}/_stcore/health")  # noqa: E731
    with Server(f"dashboard-{port}", argv, folder, ready, environment=environment):
        yield url


def simulate(into: Path) -> None:
    """A report of six simulated minutes, by the command itself."""
    argv = [
        str(Path(sys.executable).with_name("lora-autoscaler")), "simulate", "--hours", "0.1", "--rate", "6",
        "--adapters", "24", "--replicas", "2", "--max-loras", "8", "--strategy", "ours", "round-robin-hpa",
        "--output", str(into),
    ]  # fmt: skip
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=300)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser, of the thread that asks for it."""
    program = need("chromium")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip
        started = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield started
        finally:
            started.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@contextmanager
def page_of(browser: Browser, user: str = "", width: int = 1280) -> Iterator[tuple[Page, list[str]]]:
    """A page, and what went wrong in it; requests that leave this machine are refused and count as wrong."""
    headers = {"X-Forwarded-User": user} if user else {}
    context = browser.new_context(
        viewport={"width": width, "height": 900}, timezone_id="Europe/Zurich", extra_http_headers=headers
    )
    page, wrong = context.new_page(), []

    def only_here(route: Route) -> None:
        if LOOPBACK in route.request.url:
            route.continue_()
        else:
            wrong.append(f"left the machine: {route.request.url}")
            route.abort()

    page.route("**/*", only_here)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" and not _is_probe(m.location) else None)
    page.set_default_timeout(30_000)
    try:
        yield page, wrong
    finally:
        with suppress(Exception):
            context.close()


def _is_probe(location: object) -> bool:
    return any(str(getattr(location, "get", dict)("url", "")).endswith(probe) for probe in PROBES)


@pytest.mark.parametrize("width", [1280, 400])
def test_every_page_opens_without_an_error_and_fits(stage: Stage, browser: Browser, width: int):
    with page_of(browser, width=width) as (page, wrong):
        for path, title in PAGES.items():
            page.goto(f"{stage.dashboard}/{path}?fleet=fleet")
            expect(page.get_by_role("heading", name=title, exact=True, level=1)).to_be_visible(timeout=30_000)
            expect(page.locator(".la-banner, .la-table, [data-testid=stDataFrame]").first).to_be_visible(timeout=30_000)
            main = page.get_by_test_id("stMain")
            assert main.evaluate("e => e.scrollWidth <= e.clientWidth"), f"{title} is wider than {width} px"
        assert wrong == []


def test_health_is_said_first_and_the_page_follows_the_fleet(stage: Stage, browser: Browser):
    with page_of(browser) as (page, wrong):
        page.goto(stage.dashboard)
        expect(page.locator(".la-banner h2").first).to_have_text("The fleet is well")
        epoch = stage.api.world.ring[0]
        expect(page.get_by_test_id("stMetric").filter(has_text="Ring epoch")).to_contain_text(str(epoch))
        expect(page.get_by_text("Times in Europe/Zurich")).to_be_visible()
        assert page.locator(".la-banner").count() == 1, "one sentence, not two"
        assert wrong == []


def test_a_search_in_the_address_is_the_search_of_the_page(stage: Stage, browser: Browser):
    with page_of(browser) as (page, _):
        page.goto(f"{stage.dashboard}/tenants?q=t01&tenant=t011")
        expect(page.get_by_text("of 10 tenants")).to_be_visible()
        expect(page.get_by_role("heading", name="t011")).to_be_visible()
        expect(page.get_by_text("Why this tier")).to_be_visible()
        # Streamlit may take back what is typed while a page is still being sent.
        expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
        page.get_by_test_id("stTextInputField").fill("t02")
        expect(page).to_have_url(re.compile("q=t02"))
        assert "tenant=t011" in page.url


def override_by_click(page: Page, url: str, tenant: str, displaces: str) -> None:
    """Set a tenant to HOT for an hour, as an operator does."""
    page.goto(f"{url}/overrides")
    page.get_by_label("Tenant", exact=True).fill(tenant)
    page.get_by_label("Reason").fill("launch day")
    page.get_by_label("Reason").press("Tab")
    page.get_by_role("button", name="Look at what it displaces").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(displaces)
    dialog.get_by_role("button", name=f"Set {tenant} to HOT").click()
    expect(page.locator(".la-table")).to_contain_text(tenant)


def test_an_override_by_click_arrives_in_the_api_with_who_and_why(stage: Stage, browser: Browser):
    with page_of(browser, "ada@example.com") as (page, wrong):
        override_by_click(page, stage.dashboard, "t007", "WARM becomes HOT")
        (kept,) = stage.api.stores.overrides.overrides("fleet")
        assert (kept.tenant, kept.tier, kept.actor) == ("t007", Tier.HOT, "ann")
        assert kept.reason == "launch day (by ada@example.com, dashboard)"
        wait_until("the controller obeys", lambda: stage.api.views["fleet"].plan.tiers.tier("t007") is Tier.HOT)
        assert OPERATOR_TOKEN not in page.content(), "the operator's token stays in the server"
        assert wrong == []
    with page_of(browser, "ada@example.com") as (page, _):
        page.goto(f"{stage.dashboard}/overrides")
        page.get_by_role("combobox", name="Clear an override").click()
        page.get_by_role("option", name="t007").click()
        page.get_by_role("button", name="Clear", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Clear it").click()
        expect(page.get_by_text("No override", exact=True)).to_be_visible()
        assert stage.api.stores.overrides.overrides("fleet") == ()


@pytest.mark.parametrize("user", ["", "eve@elsewhere.com"])
def test_who_is_no_operator_can_only_read(stage: Stage, browser: Browser, user: str):
    with page_of(browser, user) as (page, _):
        page.goto(f"{stage.dashboard}/overrides")
        expect(page.get_by_role("heading", name="Read-only")).to_be_visible()
        assert page.get_by_role("button", name="Look at what it displaces").count() == 0


def test_an_expired_token_is_said_with_what_to_do(stage: Stage, browser: Browser, tmp_path: Path):
    with dashboard(tmp_path, stage.port, "expired") as url, page_of(browser) as (page, wrong):
        page.goto(url)
        expect(page.get_by_role("heading", name="The dashboard's token is not accepted")).to_be_visible()
        expect(page.locator(".la-banner")).to_contain_text("LORA_AUTOSCALER_TOKEN")
        assert wrong == []


def test_a_dead_api_is_said_and_the_page_comes_back_by_itself(stage: Stage, browser: Browser):
    with page_of(browser) as (page, wrong):
        page.goto(stage.dashboard)
        expect(page.locator(".la-banner h2").first).to_have_text("The fleet is well")
        stage.stop()
        try:
            expect(page.locator(".la-banner h2").first).to_contain_text("What is shown is")
            expect(page.locator(".la-banner h2").nth(1)).to_have_text("The fleet is well")
        finally:
            stage.serve()
        expect(page.locator(".la-banner h2").first).to_have_text("The fleet is well")
        assert wrong == []


def test_a_report_that_the_simulator_has_just_written_is_shown(stage: Stage, browser: Browser, tmp_path: Path):
    reports = tmp_path / "reports"
    reports.mkdir()
    simulate(reports / "small.json")
    told = json.loads((reports / "small.json").read_text("utf-8"))["strategies"]
    with dashboard(tmp_path, stage.port, "rob", reports=str(reports)) as url, page_of(browser) as (page, wrong):
        page.goto(f"{url}/reports")
        expect(page.locator(".la-banner h2").first).to_have_text("2 strategies on the same trace")
        rows = page.locator(".la-table tbody tr")
        expect(rows).to_have_count(2)
        by_hours = sorted(told, key=lambda name: told[name]["gpu_hours"])
        for row, name in enumerate(by_hours):
            expect(rows.nth(row)).to_contain_text(name)
            expect(rows.nth(row)).to_contain_text(f"{told[name]['slo_attainment'] * 100:.1f} %")
        expect(page.get_by_role("combobox", name="Report")).to_be_visible()
        expect(page.locator("[data-testid=stVegaLiteChart] canvas, [data-testid=stVegaLiteChart] svg")).to_be_visible()
        assert wrong == []


NOISY = {
    "tenant": "acme", "aggressor_score": 0.9, "victim_score": 0.0, "share_ratio": 0.57, "effect_s": 1.84,
    "effect_low_s": 1.2, "effect_high_s": 2.5, "samples": 14, "missing": None, "others": ["tenant-01", "tenant-02"],
    "added_s": [2.1, None], "harm": 12.0, "evidence": ["it takes 57% of the tokens of warm-0000"],
}  # fmt: skip


def test_a_recorded_incident_is_told_with_the_aggressor_s_name_and_the_cure(browser: Browser, tmp_path: Path):
    incident = RecordedApi(recorded("thrash"))
    incident.answers["fleets/local/noisy-neighbours"] = {"items": [NOISY]}
    with (
        serving(incident) as api,
        dashboard(tmp_path, int(api.url.rpartition(":")[2]), "reader") as url,
        page_of(browser) as (page, wrong),
    ):
        page.goto(url)
        banner = page.locator(".la-banner").first
        expect(banner).to_contain_text("Adapter thrash")
        expect(banner).to_contain_text("Would more replicas help? No")
        page.get_by_role("link", name="Noisy neighbours").click()
        expect(page.locator(".la-banner").first).to_contain_text("acme hurts tenant-01, tenant-02")
        expect(page.locator(".la-banner").first).to_contain_text("a group of its own (tier HOT)")
        expect(page.get_by_role("heading", name="Noisy neighbours", level=1)).to_be_visible()
        page.get_by_role("link", name="Adapter thrash").click()
        expect(page.locator(".la-banner").first).to_contain_text("8 replicas of 8 thrash")
        cure = api.fleet["groups"][0]["cure"].split(",")[0]
        expect(page.locator(".la-banner").first).to_contain_text(cure)
        assert wrong == []
