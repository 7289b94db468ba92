"""Catalogues from every place, reloaded, and kept when what is new is invalid."""

import os
from pathlib import Path

import pytest

from autoscaler.connectors.files.catalogue import KEPT_S, CatalogueReader
from autoscaler.policy.groups import Adapters, CatalogueEntry
from autoscaler.policy.model import FleetPolicy
from tests.connectors.conftest import SetClock


def policy(adapters: Adapters) -> FleetPolicy:
    return FleetPolicy(name="f", base_model="base", adapters=adapters)


BY_FILE = policy(Adapters(file="adapters.yaml", path_template="/adapters/{id}"))


@pytest.fixture
def reader(tmp_path: Path, clock: SetClock) -> CatalogueReader:
    return CatalogueReader(tmp_path, clock.now_s, clock.now_s)


def write(path: Path, text: str, at_s: float) -> None:
    path.write_text(text)
    os.utime(path, (at_s, at_s))


def test_a_list_is_taken_as_it_is(reader: CatalogueReader) -> None:
    wanted = policy(
        Adapters(list=(CatalogueEntry(id="a", source="/x", tenant="t"), CatalogueEntry(id="b", source="/y")))
    )
    catalogue = reader.look(wanted, {})
    assert catalogue is not None
    assert (catalogue.ids, catalogue.tenant_of, catalogue.sources) == (("a", "b"), ("t", "b"), ("/x", "/y"))
    assert reader.look(wanted, {}) is catalogue


def test_a_changed_file_is_read_at_the_next_look(reader: CatalogueReader, tmp_path: Path, clock: SetClock) -> None:
    file = tmp_path / "adapters.yaml"
    write(file, "[a]", clock.at_s - 10)
    first = reader.look(BY_FILE, {})
    assert first is not None
    assert first.sources == ("/adapters/a",)
    assert reader.look(BY_FILE, {}) is first
    write(file, "[a, b]", clock.at_s)
    clock.at_s += 15
    second = reader.look(BY_FILE, {})
    assert second is not None
    assert second.ids == ("a", "b")


def test_a_touched_file_is_no_change(reader: CatalogueReader, tmp_path: Path, clock: SetClock) -> None:
    write(tmp_path / "adapters.yaml", "[a]", clock.at_s - 10)
    first = reader.look(BY_FILE, {})
    write(tmp_path / "adapters.yaml", "[a]", clock.at_s - 5)
    assert reader.look(BY_FILE, {}) is first


def test_a_file_that_is_being_written_is_left_for_the_next_look(
    reader: CatalogueReader, tmp_path: Path, clock: SetClock
) -> None:
    write(tmp_path / "adapters.yaml", "[a, b]", clock.at_s - 10)
    first = reader.look(BY_FILE, {})
    write(tmp_path / "adapters.yaml", "[a]", clock.at_s - 0.1)
    assert reader.look(BY_FILE, {}) is first
    clock.at_s += 1
    now = reader.look(BY_FILE, {})
    assert now is not None
    assert now.ids == ("a",)


@pytest.mark.parametrize("bad", ["[a, a]", "{", "\x00", "[{id: a, rank: -1}]", "- a: b"])
def test_an_invalid_file_keeps_the_old_and_says_why(
    reader: CatalogueReader, tmp_path: Path, clock: SetClock, bad: str
) -> None:
    file = tmp_path / "adapters.yaml"
    write(file, "[a]", clock.at_s - 10)
    first = reader.look(BY_FILE, {})
    write(file, bad, clock.at_s - 5)
    assert reader.look(BY_FILE, {}) is first
    assert str(file) in reader.conditions["CatalogueInvalid"]
    assert "the last valid one stands" in reader.conditions["CatalogueInvalid"]
    write(file, "[b]", clock.at_s - 1)
    healed = reader.look(BY_FILE, {})
    assert healed is not None
    assert healed.ids == ("b",)
    assert reader.conditions == {}


def test_a_removed_file_keeps_the_old_and_comes_back(reader: CatalogueReader, tmp_path: Path, clock: SetClock) -> None:
    file = tmp_path / "adapters.yaml"
    write(file, "[a]", clock.at_s - 10)
    first = reader.look(BY_FILE, {})
    file.unlink()
    assert reader.look(BY_FILE, {}) is first
    assert "cannot be read: No such file" in reader.conditions["CatalogueInvalid"]
    write(file, "[a]", clock.at_s - 10)
    assert reader.look(BY_FILE, {}) is first
    assert reader.conditions == {}


def test_no_valid_catalogue_ever_is_not_an_empty_one(reader: CatalogueReader) -> None:
    assert reader.look(BY_FILE, {}) is None
    assert "CatalogueInvalid" in reader.conditions


def test_a_new_template_gives_the_same_file_new_sources(
    reader: CatalogueReader, tmp_path: Path, clock: SetClock
) -> None:
    write(tmp_path / "adapters.yaml", "[a]", clock.at_s - 10)
    reader.look(BY_FILE, {})
    other = policy(Adapters(file="adapters.yaml", path_template="/other/{id}"))
    moved = reader.look(other, {})
    assert moved is not None
    assert moved.sources == ("/other/a",)


def test_a_swapped_link_is_a_change(reader: CatalogueReader, tmp_path: Path, clock: SetClock) -> None:
    for name, text in (("one", "[a]"), ("two", "[b]")):
        write(tmp_path / name, text, clock.at_s - 10)
    link = tmp_path / "adapters.yaml"
    link.symlink_to("one")
    reader.look(BY_FILE, {})
    link.unlink()
    link.symlink_to("two")
    swapped = reader.look(BY_FILE, {})
    assert swapped is not None
    assert swapped.ids == ("b",)


def test_a_config_map_is_read_as_text(tmp_path: Path, clock: SetClock) -> None:
    texts: dict[str, bytes | None] = {"cm": b"[a]"}
    reader = CatalogueReader(tmp_path, clock.now_s, clock.now_s, texts.get)
    wanted = policy(Adapters(config_map="cm", path_template="/adapters/{id}"))
    first = reader.look(wanted, {})
    assert first is not None
    assert first.ids == ("a",)
    for bad in (None, b"[a, a]"):
        texts["cm"] = bad
        assert reader.look(wanted, {}) is first
        assert "stands" in reader.conditions["CatalogueInvalid"]
    texts["cm"] = b"[b]"
    second = reader.look(wanted, {})
    assert second is not None
    assert (second.ids, reader.conditions) == (("b",), {})


def test_what_engines_show_is_the_catalogue_where_none_is_stated(reader: CatalogueReader, clock: SetClock) -> None:
    wanted = policy(Adapters())
    first = reader.look(wanted, {"a": "/mnt/a", "base": "/m"})
    assert first is not None
    assert (first.ids, first.sources) == (("a",), ("/mnt/a",))
    clock.at_s += 3600
    assert reader.look(wanted, {}) is first
    clock.at_s += KEPT_S
    gone = reader.look(wanted, {"b": "/mnt/b"})
    assert gone is not None
    assert gone.ids == ("b",)


def test_a_template_alone_takes_seen_ids_but_not_out_of_its_folder(reader: CatalogueReader) -> None:
    wanted = policy(Adapters(path_template="/adapters/{id}"))
    catalogue = reader.look(wanted, {"a": "/somewhere", "../etc": ""})
    assert catalogue is not None
    assert (catalogue.ids, catalogue.sources) == (("a",), ("/adapters/a",))
    assert "lead out of the folder" in reader.conditions["CatalogueIdsUnfit"]
