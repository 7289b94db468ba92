"""Policies and catalogues reload when they change; what is invalid keeps what was, and says so."""

import os
from pathlib import Path

import pytest

from autoscaler.cli.errors import UsageError
from autoscaler.cli.policy_folder import PolicyFolder
from autoscaler.policy.words import Mode

NOW_S = 2_000_000_000.0


class Desk:
    """A folder in which each write is older than an editor's pause, and newer than the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.writes = folder, 0
        self.read = PolicyFolder(folder, lambda: NOW_S)

    def write(self, name: str, text: str) -> None:
        self.writes += 1
        (self.folder / name).write_text(text)
        os.utime(self.folder / name, (NOW_S - 1000 + self.writes,) * 2)

    def policy(self, fleet: str, spec: str = "") -> str:
        return (
            f"apiVersion: lora-autoscaler.io/v1alpha1\nkind: FleetPolicy\nmetadata: {{name: {fleet}}}\n"
            f"spec:\n  baseModel: base\n  mode: enforce\n  adapters: {{list: [{{id: a, source: /a}}]}}\n{spec}"
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    found = Desk(tmp_path)
    found.write("chat.yaml", found.policy("chat"))
    assert found.read.look() == ("chat",)
    return found


def test_a_change_is_taken_at_the_next_look(desk: Desk):
    assert desk.read.wanted("chat", {}).policy.tick_interval_s == 15
    desk.write("chat.yaml", desk.policy("chat", "  tickInterval: 5s\n"))
    assert desk.read.wanted("chat", {}).policy.tick_interval_s == 5


def test_an_invalid_file_keeps_the_old_and_raises_a_condition_until_it_is_mended(desk: Desk):
    desk.write("chat.yaml", desk.policy("chat", "  tickInterval: 5\n  modee: x\n"))
    wanted = desk.read.wanted("chat", {})
    assert wanted.policy.tick_interval_s == 15
    assert "a unit is missing" in wanted.conditions["PolicyInvalid"]
    assert wanted.conditions["PolicyInvalid"].endswith("(and 1 more); the last valid policy stands")
    desk.write("chat.yaml", desk.policy("chat", "  tickInterval: 7s\n"))
    wanted = desk.read.wanted("chat", {})
    assert (wanted.policy.tick_interval_s, dict(wanted.conditions)) == (7, {})


def test_a_file_that_is_gone_keeps_its_policy_and_names_the_way_out(desk: Desk):
    desk.write("mail.yaml", desk.policy("mail", "  groups: {warm: {target: {name: mail}}}\n"))
    (desk.folder / "chat.yaml").unlink()
    assert desk.read.look() == ("chat", "mail")
    assert "detach" in desk.read.wanted("chat", {}).conditions["PolicyInvalid"]


def test_a_new_file_is_a_new_fleet_and_a_second_of_the_same_name_is_refused(desk: Desk):
    desk.write("mail.yaml", desk.policy("mail"))
    assert desk.read.look() == ("chat", "mail")
    desk.write("zz-copy.yaml", desk.policy("chat", "  tickInterval: 5s\n"))
    assert desk.read.wanted("chat", {}).policy.tick_interval_s == 15
    refused = desk.read.wanted("mail", {}).conditions["PolicyRefused/zz-copy.yaml"]
    assert "fleet chat is already claimed by" in refused
    assert refused.endswith("nothing of this file is in force")
    (desk.folder / "zz-copy.yaml").unlink()
    assert dict(desk.read.wanted("chat", {}).conditions) == {}


@pytest.mark.parametrize("copy", ["a-copy.yaml", "zz-copy.yaml"])
def test_a_second_file_does_not_take_the_place_of_one_that_is_mended(desk: Desk, copy: str):
    desk.write(copy, desk.policy("chat", "  tickInterval: 5s\n"))
    desk.write("chat.yaml", desk.policy("chat", "  modee: x\n"))
    wanted = desk.read.wanted("chat", {})
    assert wanted.policy.tick_interval_s == 15
    assert set(wanted.conditions) == {"PolicyInvalid", f"PolicyRefused/{copy}"}
    (desk.folder / "chat.yaml").unlink()
    wanted = desk.read.wanted("chat", {})
    assert (wanted.policy.tick_interval_s, dict(wanted.conditions)) == (5, {})


def test_a_file_that_was_never_valid_is_a_warning_and_a_condition_of_every_fleet(
    desk: Desk, caplog: pytest.LogCaptureFixture
):
    desk.write("mail.yaml", desk.policy("mail", "  modee: x\n"))
    assert desk.read.look() == ("chat",)
    told = desk.read.wanted("chat", {}).conditions["PolicyRefused/mail.yaml"]
    assert "modee" in told
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [f"PolicyRefused/mail.yaml: {told}"]
    desk.write("mail.yaml", desk.policy("mail", "  groups: {warm: {target: {name: mail}}}\n"))
    assert desk.read.look() == ("chat", "mail")
    assert dict(desk.read.wanted("chat", {}).conditions) == {}


def test_a_fleet_whose_own_file_is_invalid_says_so_alone(desk: Desk):
    desk.write("mail.yaml", desk.policy("mail", "  groups: {warm: {target: {name: mail}}}\n"))
    desk.write("chat.yaml", desk.policy("chat", "  modee: x\n"))
    assert list(desk.read.wanted("chat", {}).conditions) == ["PolicyInvalid"]
    assert dict(desk.read.wanted("mail", {}).conditions) == {}


def test_a_renamed_file_is_its_fleets_file_from_then_on(desk: Desk):
    (desk.folder / "chat.yaml").rename(desk.folder / "new.yaml")
    assert desk.read.look() == ("chat",)
    desk.write("new.yaml", desk.policy("chat", "  modee: x\n"))
    assert list(desk.read.wanted("chat", {}).conditions) == ["PolicyInvalid"]


def test_a_catalogue_file_reloads_and_an_invalid_one_keeps_the_old(desk: Desk):
    text = desk.policy("chat").replace("list: [{id: a, source: /a}]", "file: adapters.yaml, pathTemplate: '/x/{id}'")
    desk.write("adapters.yaml", "[a, b]")
    desk.write("chat.yaml", text)
    assert desk.read.wanted("chat", {}).catalogue.ids == ("a", "b")
    desk.write("adapters.yaml", "[a, b, c]")
    assert desk.read.wanted("chat", {}).catalogue.ids == ("a", "b", "c")
    desk.write("adapters.yaml", "[{idd: a}]")
    wanted = desk.read.wanted("chat", {})
    assert wanted.catalogue.ids == ("a", "b", "c")
    assert "CatalogueInvalid" in wanted.conditions
    assert desk.read.errors == {}, "a catalogue is not read as a policy"


def test_without_any_valid_catalogue_a_fleet_is_only_advised(tmp_path: Path):
    desk = Desk(tmp_path)
    text = desk.policy("chat").replace("list: [{id: a, source: /a}]", "file: nowhere.yaml")
    desk.write("chat.yaml", text)
    desk.read.look()
    wanted = desk.read.wanted("chat", {})
    assert wanted.policy.mode is Mode.ADVISE
    assert "CatalogueInvalid" in wanted.conditions


def test_adapters_that_engines_list_are_the_catalogue_where_the_policy_has_none(tmp_path: Path):
    desk = Desk(tmp_path)
    text = desk.policy("chat").replace("list: [{id: a, source: /a}]", "pathTemplate: '/x/{id}'")
    desk.write("chat.yaml", text)
    desk.read.look()
    assert desk.read.wanted("chat", {}).catalogue.ids == ()
    found = desk.read.wanted("chat", {"acme": "", "base": ""}).catalogue
    assert (found.ids, found.sources) == (("acme",), ("/x/acme",))


def test_a_folder_that_is_not_there_is_told_at_first_and_survived_later(desk: Desk, tmp_path: Path):
    with pytest.raises(UsageError, match="expected a folder of policies"):
        PolicyFolder(tmp_path / "nowhere", lambda: NOW_S).look()
    for path in list(desk.folder.iterdir()):
        path.unlink()
    desk.folder.rmdir()
    assert desk.read.wanted("chat", {}).policy.name == "chat"
