"""A folder of policies: reloaded file by file, and an invalid one keeps the old."""

import os
from pathlib import Path

import pytest

from autoscaler.connectors.files.policies import PolicyFolder
from tests.connectors.conftest import SetClock


def text(fleet: str, model: str = "base") -> str:
    return (
        "apiVersion: lora-autoscaler.io/v1alpha1\nkind: FleetPolicy\n"
        f"metadata: {{name: {fleet}}}\nspec: {{baseModel: {model}}}\n"
    )


@pytest.fixture
def folder(tmp_path: Path, clock: SetClock) -> PolicyFolder:
    return PolicyFolder(tmp_path, clock.now_s)


def write(path: Path, content: str, at_s: float) -> None:
    path.write_text(content)
    os.utime(path, (at_s, at_s))


def test_files_come_change_and_go(folder: PolicyFolder, tmp_path: Path, clock: SetClock) -> None:
    write(tmp_path / "a.yaml", text("one"), clock.at_s - 10)
    write(tmp_path / "b.yml", text("two"), clock.at_s - 10)
    write(tmp_path / "notes.txt", "no policy", clock.at_s - 10)
    first = folder.look()
    assert {n: p.name for n, p in first.items()} == {"a.yaml": "one", "b.yml": "two"}
    write(tmp_path / "a.yaml", text("one", "other"), clock.at_s - 5)
    second = folder.look()
    assert second["a.yaml"].base_model == "other"
    assert second["b.yml"] is first["b.yml"]
    (tmp_path / "b.yml").unlink()
    assert list(folder.look()) == ["a.yaml"]
    assert folder.conditions == {}


def test_an_invalid_file_keeps_the_old(folder: PolicyFolder, tmp_path: Path, clock: SetClock) -> None:
    write(tmp_path / "a.yaml", text("one"), clock.at_s - 10)
    before = folder.look()
    write(tmp_path / "a.yaml", text("one") + "oops: 1\n", clock.at_s - 5)
    assert folder.look()["a.yaml"] is before["a.yaml"]
    assert "oops" in folder.conditions["PolicyInvalid/a.yaml"]
    assert folder.conditions["PolicyInvalid/a.yaml"].endswith("; the last valid one stands")


@pytest.mark.parametrize(("thief", "owner"), [("a.yaml", "b.yaml"), ("b.yaml", "a.yaml")])
def test_a_file_that_takes_anothers_fleet_keeps_what_it_had(
    folder: PolicyFolder, tmp_path: Path, clock: SetClock, thief: str, owner: str
) -> None:
    write(tmp_path / thief, text("mine"), clock.at_s - 10)
    write(tmp_path / owner, text("theirs"), clock.at_s - 10)
    before = folder.look()
    write(tmp_path / thief, text("theirs", "stolen"), clock.at_s - 5)
    for _ in range(2):
        assert folder.look() == before
        assert list(folder.conditions) == [f"PolicyInvalid/{thief}"]
    write(tmp_path / thief, text("mine", "again"), clock.at_s - 2)
    assert folder.look()[thief].base_model == "again"
    assert folder.conditions == {}


def test_a_folder_that_is_gone_keeps_all(tmp_path: Path, clock: SetClock) -> None:
    inner = tmp_path / "policies"
    inner.mkdir()
    write(inner / "a.yaml", text("one"), clock.at_s - 10)
    folder = PolicyFolder(inner, clock.now_s)
    before = folder.look()
    (inner / "a.yaml").unlink()
    inner.rmdir()
    assert folder.look() == before
    assert "cannot be read" in folder.conditions["PolicyInvalid"]
