"""A click on the dashboard moves a tenant in real Envoy's answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from autoscaler.policy.words import Mode
from tests.e2e.parts.processes import need
from tests.e2e.test_dashboard import chromium, dashboard, override_by_click, page_of
from tests.e2e.test_one_machine import FLEET, machine, ring_ready, traffic, until


def click(folder: Path, api_port: int, reader: str, operator: str) -> list[str]:
    """What went wrong in the page; in a thread of its own, since the browser's calls block."""
    with (
        dashboard(folder, api_port, reader, operator) as url,
        chromium() as browser,
        page_of(browser, "ada@example.com") as (page, wrong),
    ):
        override_by_click(page, url, "tenant-03", "WARM becomes HOT")
        return list(wrong)


async def test_an_override_by_click_moves_the_tenant_in_envoy_s_own_answers(tmp_path: Path) -> None:
    need("chromium")
    async with machine(tmp_path, Mode.ENFORCE) as m, traffic(m.world):
        await ring_ready(m)
        reader, operator = (c.headers["Authorization"].removeprefix("Bearer ") for c in (m.reader, m.client))
        port = m.reader.base_url.port or 0
        assert await asyncio.to_thread(click, tmp_path / "dashboard", port, reader, operator) == []
        (kept,) = (await m.reader.get(f"{FLEET}/overrides")).json()["items"]
        assert (kept["tenant"], kept["tier"]) == ("tenant-03", "hot")
        assert kept["reason"] == "launch day (by ada@example.com, dashboard)"

        async def is_served_by_its_group() -> bool:
            return await m.served_by("tenant-03", 3) == {"hot-tenant-03-0000"}

        await until(is_served_by_its_group, 60.0)
