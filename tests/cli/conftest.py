"""Commands as a shell runs them: their exit code, what they print, and what they say on standard error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autoscaler.cli import main
from autoscaler.ring import encode
from tests.planner.world import World, catalogue, policy


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Runs `lora-autoscaler` in this process; a traceback fails the test by itself."""
    for name in ("LORA_AUTOSCALER_URL", "LORA_AUTOSCALER_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def call(*words: object) -> Ran:
        try:
            code = main([str(w) for w in words])
        except SystemExit as end:
            code = int(end.code or 0)
        caught = capsys.readouterr()
        return Ran(code, caught.out, caught.err)

    return call


@pytest.fixture
def rings(tmp_path: Path) -> tuple[Path, Path, World]:
    """Snapshots of a fleet before and after a replica joined."""
    world = World(policy(), catalogue(20))
    world.start("warm", 3)
    for _ in range(4):
        world.tick()
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_bytes(encode(world.snapshot()))
    world.start("warm", 4 - 3)
    for _ in range(6):
        world.tick()
    after.write_bytes(encode(world.snapshot()))
    return before, after, world
