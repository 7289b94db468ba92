"""How quick the dashboard is on a large fleet, in a real browser, beside a plain `st.dataframe` of the same rows.

    python -m benchmarks.dashboard --tenants 5000 --replicas 64 [--viewers 20] [--json]

First paint: from asking for the page's address, in a new tab of a browser that was there before, to its first banner,
table or list; the server is warm. Interaction: from a click or a key to what it should change. Medians of five.
The browser has a profile, as a person's has: what it compiled once it keeps, which a private window does not.
Viewers: the controller's mean tick without them; while their dashboards' questions are asked of the API, without
dashboards and browsers (`asked`); and with as many tabs that watch, live (`watched`). Browsers are on other machines
than the controller as a rule, and here on its cores: they and the dashboard get what is idle (SCHED_IDLE), and still
take its caches. `api_s_per_tick` is the controller's own processor time for the questions of one tick.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import BrowserContext, Page, sync_playwright

from benchmarks.dashboard_fleet import FLEET, TICK_S

ROOT = Path(__file__).resolve().parent.parent
RUNS = 5
SETTLE_TICKS, MEASURED_TICKS = 12, 20
PAINTED = ".la-banner, .la-table, [data-testid=stDataFrame] canvas"
PLAIN = """
    import httpx, os, pandas as pd, streamlit as st
    url, token = os.environ["LORA_AUTOSCALER_URL"], os.environ["LORA_AUTOSCALER_TOKEN"]
    rows, cursor = [], ""
    while cursor is not None:
        answer = httpx.get(f"{url}/v1/fleets/FLEET/tenants", params={"limit": 1000, "cursor": cursor},
                           headers={"Authorization": f"Bearer {token}"}, timeout=60).json()
        rows, cursor = rows + answer["items"], answer["next_cursor"]
    st.dataframe(pd.DataFrame(rows))
"""


def _click(role: str, name: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role(role, name=name, exact=True).first.click()  # type: ignore[arg-type]


def _shows(text: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_text(text).first.wait_for()


def _type(label: str, text: str) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        page.get_by_label(label, exact=True).first.fill(text)
        page.keyboard.press("Enter")

    return act


_Step = Callable[[Page], None]
PAGES: dict[str, tuple[str, _Step, _Step]] = {
    "fleet": ("", _click("link", "Tenants"), lambda page: page.get_by_role("heading", name="Tenants").wait_for()),
    "tenants": ("tenants", _type("Search", "tenant-0049"), _shows("of 100 tenants")),
    "noisy-neighbours": (
        "noisy-neighbours", _click("link", "Ring"), lambda page: page.get_by_role("heading", name="Ring").wait_for()
    ),
    "adapter-thrash": (
        "adapter-thrash", _click("link", "Cost"), lambda page: page.get_by_role("heading", name="Cost").wait_for()
    ),
    "ring": ("ring", _type("Who owns an adapter", "tenant-004999"), _shows("tenant-004999")),
    "decisions": ("decisions", _type("Explain", "tenant/tenant-000007"), _shows("What would change it")),
    "overrides": (
        "overrides", _click("link", "Fleet"), lambda page: page.get_by_role("heading", name="Fleet").wait_for()
    ),
    "cost": ("cost", _type("Price of a replica-hour, $", "2.5"), _shows("Per month at this size")),
}  # fmt: skip


def main() -> None:
    told = _arguments()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not here; install what Debian calls chromium")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends too
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fleet = stack.enter_context(_fleet(folder, told.tenants, told.replicas))
        environment = {"LORA_AUTOSCALER_URL": fleet.url, "LORA_AUTOSCALER_TOKEN": fleet.token}
        app = stack.enter_context(_streamlit(ROOT / "dashboard" / "app.py", environment, folder))
        plain_file = folder / "plain.py"
        plain_file.write_text(textwrap.dedent(PLAIN).replace("FLEET", FLEET))
        plain = stack.enter_context(_streamlit(plain_file, environment, folder))
        playwright = stack.enter_context(sync_playwright())
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        browser = playwright.chromium.launch_persistent_context(
            str(folder / "profile"), executable_path=chromium, args=arguments,
            viewport={"width": 1280, "height": 900}, timezone_id="Europe/Zurich",
        )  # fmt: skip
        browser.set_default_timeout(60_000)
        stack.callback(browser.close)
        result: dict[str, Any] = {"tenants": told.tenants, "replicas": told.replicas}
        result["pages"] = {
            name: _page(browser, app, fleet, *steps) for name, steps in PAGES.items() if name in told.pages
        }
        result["plain_dataframe"] = _paints(browser, plain, _family(fleet.pid))
        if told.viewers:
            result["viewers"] = _viewers(browser, app, fleet, told.viewers)
    _say(result)
    if told.json:
        print(json.dumps(result))


class Fleet:
    """The controller process that is looked at."""

    def __init__(self, url: str, token: str, pid: int) -> None:
        self.url, self.token, self.pid = url, token, pid

    def ticks(self) -> tuple[float, float]:
        """Ticks so far, and the seconds that they took together."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        spent = re.findall(r"^lora_autoscaler_tick_duration_seconds_sum\{.*\} (\S+)$", text, re.MULTILINE)
        count = re.findall(
            r"^lora_autoscaler_tick_duration_seconds_count\{.*step=\"decide\".*\} (\S+)$", text, re.MULTILINE
        )
        return (float(count[0]) if count else 0.0), sum(map(float, spent))

    def mean_tick_s(self, ticks: int) -> tuple[float, float]:
        """Of the next so many ticks: their mean, and the processor time of the process from one to the next."""
        before, before_cpu_s = self.ticks(), _cpu_s({self.pid})
        _until(lambda: self.ticks()[0] >= before[0] + ticks, 20 * TICK_S * ticks, every_s=TICK_S)
        after, used_s = self.ticks(), _cpu_s({self.pid}) - before_cpu_s
        many = after[0] - before[0]
        return (after[1] - before[1]) / many, used_s / many


@contextmanager
def _fleet(folder: Path, tenants: int, replicas: int) -> Iterator[Fleet]:
    port = _free_port()
    argv = [sys.executable, "-m", "benchmarks.dashboard_fleet", "--port", str(port), "--state", str(folder / "state"),
            "--tenants", str(tenants), "--replicas", str(replicas)]  # fmt: skip
    with _running(argv, {}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        fleet = Fleet(f"http://127.0.0.1:{port}", json.loads(process.stdout.readline())["reader"], process.pid)
        _until(lambda: _answers(f"{fleet.url}/readyz") and fleet.ticks()[0] >= SETTLE_TICKS, 300)
        yield fleet


@contextmanager
def _streamlit(script: Path, environment: dict[str, str], folder: Path) -> Iterator[str]:
    port = _free_port()
    argv = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port),
            "--server.address", "127.0.0.1", "--server.headless", "true"]  # fmt: skip
    with (
        (folder / f"{script.stem}.log").open("wb") as log,
        _running(argv, environment, stdout=log, stderr=log),
    ):
        _until(lambda: _answers(f"http://127.0.0.1:{port}/_stcore/health"), 60)
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _running(argv: list[str], environment: dict[str, str], **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, **environment}, **streams)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _paints(browser: BrowserContext, url: str, others: set[int]) -> dict[str, float]:
    """To the first content in a new tab, after one visit that warms server and browser: medians.

    The processor time is of browser and server until then: what one waits at most where nothing else is done.
    """
    waited, used = [], []
    for _ in range(RUNS + 1):
        page = browser.new_page()
        mine = _family(os.getpid()) - others
        before_s, started = _cpu_s(mine), time.perf_counter()
        page.goto(url, wait_until="commit")
        page.locator(PAINTED).first.wait_for()
        waited.append(time.perf_counter() - started)
        used.append(_cpu_s(_family(os.getpid()) - others) - before_s)
        page.close()
    return {"first_paint_s": median(waited[1:]), "first_paint_cpu_s": median(used[1:])}


def _page(browser: BrowserContext, app: str, fleet: Fleet, path: str, act: _Step, shows: _Step) -> dict[str, float]:
    url = f"{app}/{path}?fleet={FLEET}"
    waited = []
    for _ in range(RUNS):
        page = browser.new_page()
        page.goto(url, wait_until="commit")
        page.locator(PAINTED).first.wait_for()
        page.wait_for_timeout(1500)  # what one reads before one clicks
        started = time.perf_counter()
        act(page)
        shows(page)
        waited.append(time.perf_counter() - started)
        page.close()
    found = {**_paints(browser, url, _family(fleet.pid)), "interaction_s": median(waited)}
    print(f"  /{path:<18} {found}", file=sys.stderr, flush=True)
    return found


def _viewers(browser: BrowserContext, app: str, fleet: Fleet, count: int) -> dict[str, float]:
    """The controller's mean tick alone, asked, watched, and alone again."""
    alone_s, alone_cpu_s = fleet.mean_tick_s(MEASURED_TICKS)
    argv = [sys.executable, "-m", "benchmarks.dashboard_viewers", "--url", fleet.url, "--token", fleet.token,
            "--fleet", FLEET, "--viewers", str(count)]  # fmt: skip
    with _running(argv, {}):
        asked_s, asked_cpu_s = fleet.mean_tick_s(MEASURED_TICKS)
    between_s, _ = fleet.mean_tick_s(MEASURED_TICKS)
    _step_back(_family(os.getpid()) - _family(fleet.pid))
    with ExitStack() as stack:
        paths = [path for path, _, _ in PAGES.values()]
        for number in range(count):
            page = browser.new_page()
            stack.callback(page.close)
            page.goto(f"{app}/{paths[number % len(paths)]}?fleet={FLEET}", wait_until="commit")
            page.locator(PAINTED).first.wait_for(timeout=120_000)
        watched_s, _ = fleet.mean_tick_s(MEASURED_TICKS)
    again_s, _ = fleet.mean_tick_s(MEASURED_TICKS)
    return {
        "viewers": count,
        "tick_alone_s": min(alone_s, between_s, again_s),
        "tick_alone_again_s": max(alone_s, between_s, again_s),
        "tick_asked_s": asked_s,
        "tick_watched_s": watched_s,
        "api_s_per_tick": asked_cpu_s - alone_cpu_s,
        "cpu_s_per_tick": alone_cpu_s,
    }


def _family(pid: int) -> set[int]:
    """A process and all that it started."""
    found = {pid}
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found |= _family(int(child))
    return found


def _cpu_s(pids: set[int]) -> float:
    """Processor seconds that processes used so far."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _step_back(pids: set[int]) -> None:
    """Only what is idle, for each thread."""
    for pid in pids:
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=5):
        return True
    return False


def _until(condition: Callable[[], bool], timeout_s: float, every_s: float = 0.2) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing after {timeout_s:.0f} s")
        time.sleep(every_s)


def _say(result: dict[str, Any]) -> None:
    print(f"{result['tenants']:,} tenants, {result['replicas']} replicas; medians of {RUNS}")
    for name, figures in result["pages"].items():
        print(f"  {name:<18} {_paint(figures)}, interaction {figures['interaction_s']:.2f} s")
    print(f"  plain st.dataframe {_paint(result['plain_dataframe'])}")
    if not (seen := result.get("viewers")):
        return
    print(
        f"  tick {seen['tick_alone_s']:.3f} s alone (again: {seen['tick_alone_again_s']:.3f} s), "
        f"{seen['tick_asked_s']:.3f} s asked for {seen['viewers']} viewers (the API takes "
        f"{seen['api_s_per_tick'] * 1000:.0f} ms of processor a tick of {TICK_S:g} s), "
        f"{seen['tick_watched_s']:.3f} s watched by them on the same cores"
    )


def _paint(figures: dict[str, float]) -> str:
    return f"first paint {figures['first_paint_s']:.2f} s (processor {figures['first_paint_cpu_s']:.2f} s)"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", type=int, default=5000)
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--viewers", type=int, default=20, help="tabs that watch; 0 leaves this part out")
    parser.add_argument("--pages", nargs="+", choices=PAGES, default=list(PAGES), help="all unless named")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    return parser.parse_args()


if __name__ == "__main__":
    main()
