"""Starts the dashboard beside the controller. It speaks HTTP to the API only, with a token that can only read."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from pathlib import Path


async def start_dashboard(port: int, api_url: str, reader_token: str) -> asyncio.subprocess.Process:
    """Start Streamlit on loopback. The token goes by environment: the process list shows it to nobody."""
    package = importlib.util.find_spec("dashboard")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("dashboard", name="dashboard")
    app = str(Path(package.origin).with_name("app.py"))
    environment = {**os.environ, "LORA_AUTOSCALER_URL": api_url, "LORA_AUTOSCALER_TOKEN": reader_token}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "streamlit", "run", app, "--server.port", str(port), "--server.address", "127.0.0.1",
        "--server.headless", "true", "--browser.gatherUsageStats", "false", env=environment,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
