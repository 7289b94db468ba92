"""Takes the pictures of docs/images from recorded answers: `python -m tests.dashboard.pictures FOLDER [PAGE ...]`.

Every page (`fleet`, `tenants`, ...) or those that are named, light and dark, at 1280 and 400 px. The fleet's figures
move a little from look to look, so that lines over time have something to show.
"""

from __future__ import annotations

import copy
import random
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from tests.dashboard.recorded_api import RecordedApi, recorded, serving
from tests.e2e.test_dashboard import NOISY, PAGES, chromium, dashboard, simulate

LOOKS = 10
PATIENCE_MS = 180_000.0
WIDTHS = (1280, 400)
SHOWN_ON = {"": "thrash", "adapter-thrash": "thrash", "noisy-neighbours": "noisy"}  # the others: managed
DRAWN = ("", "tenants", "noisy-neighbours", "adapter-thrash", "decisions", "reports")
CHOSEN = {"tenants": "&tenant=tenant-00", "decisions": "&subject=tenant/tenant-00", "cost": "&price=2.4"}


def incident() -> dict[str, Any]:
    """The managed fleet with an aggressor, and tenants without a verdict."""
    answers = recorded("managed")
    found = [f for f in answers["fleets/local/noisy-neighbours"]["items"] if f["share_ratio"] < 0.28]
    second = NOISY | {"tenant": "globex", "others": ["tenant-02", "tenant-09"], "added_s": [0.7, 0.5],
                      "effect_s": 0.6, "effect_low_s": 0.4, "effect_high_s": 0.8, "aggressor_score": 0.6,
                      "share_ratio": 0.31, "evidence": ["it takes 31% of the tokens of warm-0004"]}  # fmt: skip
    answers["fleets/local/noisy-neighbours"] = {"items": [NOISY, second, *found]}
    return answers


def wander(api: RecordedApi, start: dict[str, Any], rng: random.Random) -> None:
    """One more tick: fifteen seconds later, a little more or less of everything."""
    fleet = api.fleet
    fleet["at"] = (datetime.fromisoformat(fleet["at"]) + timedelta(seconds=15)).isoformat().replace("+00:00", "Z")
    for name in ("ttft_p99_s", "requests_per_s"):
        fleet[name] = start[name] * rng.uniform(0.92, 1.08)
    for group, before in zip(fleet["groups"], start["groups"], strict=True):
        for replica, was in zip(group["replicas"], before["replicas"], strict=True):
            times = rng.uniform(0.9, 1.1)
            for name in ("waiting", "deferred", "running"):
                if was[name].get("value"):
                    replica[name]["value"] = round(was[name]["value"] * times)


@contextmanager
def stage(answers: dict[str, Any], folder: Path, reports: Path) -> Iterator[str]:
    """A dashboard whose server has seen some ticks, with a folder of simulator reports."""
    api = RecordedApi(answers)
    for router in api.fleet["routers"]:
        router["epoch"] = api.fleet["epoch"]
    start, rng, over = copy.deepcopy(api.fleet), random.Random(7), threading.Event()

    def tick() -> None:
        while not over.wait(0.5):
            wander(api, start, rng)

    with serving(api), dashboard(folder, int(api.url.rpartition(":")[2]), "reader", reports=str(reports)) as url:
        ticking = threading.Thread(target=tick, daemon=True)
        ticking.start()
        try:
            yield url
        finally:
            over.set()
            ticking.join()


def picture(browser: Browser, url: str, width: int, scheme: Any, file: Path) -> None:
    """One picture of a whole page."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, timezone_id="Europe/Zurich", color_scheme=scheme,
        extra_http_headers={"X-Forwarded-User": "ada@example.com"},
    )  # fmt: skip
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(url)
    page.locator(".la-banner, .la-table, [data-testid=stDataFrame]").first.wait_for()
    if page.url.partition("?")[0].rpartition("/")[2] in DRAWN:
        page.locator("[data-testid=stVegaLiteChart], [data-testid=stDataFrame] canvas").first.wait_for()
    page.wait_for_timeout(4000)  # charts draw themselves
    height = page.get_by_test_id("stMain").evaluate("e => e.scrollHeight")
    page.set_viewport_size({"width": width, "height": max(height, 700)})
    page.wait_for_timeout(1500)
    page.screenshot(path=file)
    context.close()


def main(into: Path, wanted: list[str]) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        browser = stack.enter_context(chromium())
        fleets = {"thrash": recorded("thrash"), "managed": recorded("managed"), "noisy": incident()}
        reports = folder / "reports"
        reports.mkdir()
        simulate(reports / "six-minutes.json")
        urls = {n: stack.enter_context(stage(a, folder / n, reports)) for n, a in fleets.items()}
        watching = browser.new_context()
        for url in urls.values():
            page = watching.new_page()
            page.goto(url)
            page.locator(".la-banner").first.wait_for(timeout=PATIENCE_MS)
        page.wait_for_timeout(LOOKS * 2000)
        watching.close()
        for path in PAGES:
            if wanted and (path or "fleet") not in wanted:
                continue
            address = f"{urls[SHOWN_ON.get(path, 'managed')]}/{path}?fleet=local{CHOSEN.get(path, '')}"
            for width in WIDTHS:
                for scheme in ("light", "dark"):
                    file = into / f"{path or 'fleet'}-{scheme}-{width}.png"
                    picture(browser, address, width, scheme, file)
                    print(file, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
