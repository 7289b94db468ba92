"""Records answers of a running API for the page tests: `python tests/dashboard/record.py URL TOKEN FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx

LISTED = 12


def record(url: str, token: str) -> dict[str, Any]:
    """Answers by path, cut to what the pages of a small fleet need."""
    with httpx.Client(base_url=f"{url}/v1/", headers={"Authorization": f"Bearer {token}"}, timeout=30) as client:

        def ask(path: str, **params: Any) -> dict[str, Any]:
            response = client.get(path, params=params)
            response.raise_for_status()
            found: dict[str, Any] = response.json()
            return found

        fleets = ask("fleets")
        name = fleets["items"][0]["fleet"]
        base = f"fleets/{name}"
        tenants = ask(f"{base}/tenants", limit=LISTED)
        first = tenants["items"][0]["tenant"]
        answers = {"fleets": fleets, f"{base}/tenants": tenants}
        answers[f"{base}/tenants/{first}"] = ask(f"{base}/tenants/{first}")
        answers[f"{base}/adapters"] = ask(f"{base}/adapters", limit=LISTED)
        answers[f"{base}/decisions"] = ask(f"{base}/decisions", limit=40)
        answers[f"{base}/ring/moves"] = ask(f"{base}/ring/moves", limit=LISTED)
        answers[f"{base}/ring/owners"] = ask(f"{base}/ring/owners", adapter=first)
        answers[f"{base}/explain"] = ask(f"{base}/explain", subject=f"tenant/{first}")
        for part in ("noisy-neighbours", "adapter-thrash", "residency", "overrides", "costs", "proposals", "ring"):
            answers[f"{base}/{part}"] = ask(f"{base}/{part}")
    return answers


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(json.dumps(record(*sys.argv[1:3]), separators=(",", ":")) + "\n", "utf-8")
