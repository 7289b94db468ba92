"""The catalogue: defaults, templates, and what is refused in it."""

import pytest

from autoscaler.domain.observation import Catalogue
from autoscaler.policy.catalogue import catalogue_of, catalogue_of_seen, parse_catalogue
from autoscaler.policy.groups import Adapters, Engine, StatedLimits
from autoscaler.policy.model import FleetPolicy

PLAIN = FleetPolicy(name="x", base_model="base", engine=Engine(limits=StatedLimits(max_lora_rank=16)))
FOLDER = FleetPolicy(name="x", base_model="base", adapters=Adapters(file="a.yaml", path_template="/adapters/{id}"))
BUCKET = FleetPolicy(name="x", base_model="base", adapters=Adapters(path_template="https://models/{id}"))


def test_entries_have_tenants_sources_ranks_and_revisions() -> None:
    text = "- {id: b, tenant: acme, source: /b, rank: 8, revision: r2}\n- a\n"
    found = parse_catalogue(text, "a.yaml", FOLDER)
    assert isinstance(found, Catalogue)
    assert found.ids == ("a", "b")
    assert found.tenant_of == ("a", "acme")
    assert found.sources == ("/adapters/a", "/b")
    assert found.revisions == ("", "r2")
    assert found.ranks.tolist() == [0, 8]


def test_an_empty_list_is_a_catalogue_without_adapters() -> None:
    found = parse_catalogue("[]", "a.yaml", PLAIN)
    assert isinstance(found, Catalogue)
    assert found.ids == ()


WRONG = {
    "duplicate": ("[{id: a, source: /a}, {id: a, source: /b}]", "[1].id", "`a` is listed twice, first as [0]"),
    "two revisions": (
        "[{id: a, source: /a, revision: r1}, {id: a, source: /a, revision: r2}]",
        "[1].id",
        "`a` has two revisions, `r1` and `r2`; list the new one only",
    ),
    "no source": ("[a]", "[0].source", "it has no `source`, and `adapters.pathTemplate` is not set"),
    "rank over the limit": ("[{id: a, source: /a, rank: 32}]", "[0].rank", "rank 32 is over `maxLoraRank` 16"),
    "the base model's name": ("[{id: base, source: /a}]", "[0].id", "it has the base model's name"),
    "control character": ('[{id: "a\\u0000b", source: /a}]', "[0].id", "the character U+0000"),
    "newline": ('[{id: "a\\nb", source: /a}]', "[0].id", "the character U+000A"),
    "too long": (f"[{{id: {'é' * 127}, source: /a}}]", "[0].id", "it has 254 bytes; 1 to 253"),
    "no id": ("[{source: /a}]", "[0].id", "`id` is required"),
    "unknown key": ("[{id: a, source: /a, path: /b}]", "[0].path", "`path` is no key of [0]"),
    "a mapping": ("{adapters: [a]}", "", "a list of at most 200,000"),
    "corrupt": ("- {id: a", "", "no valid YAML"),
    "empty": ("", "", "the file is empty"),
    "binary": (b"\x80\x81", "", "no UTF-8 text"),
    "too large": (b"#" * (33 << 20), "", "the file is too large"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_catalogue_is_named_with_its_place(name: str) -> None:
    content, path, message = WRONG[name]
    found = parse_catalogue(content, "a.yaml", PLAIN)
    assert isinstance(found, tuple)
    assert [(e.path, e.file) for e in found] == [(path, "a.yaml")], [str(e) for e in found]
    assert message in found[0].message


@pytest.mark.parametrize("name", ["..", "../etc", "a/../../b", "/etc/passwd", "a//b", "~root", "a\\b", "./a"])
def test_an_id_may_not_lead_out_of_the_templates_folder(name: str) -> None:
    entry = f"[{{id: '{name}'}}]"
    found = parse_catalogue(entry, "a.yaml", FOLDER)
    assert isinstance(found, tuple)
    assert "its id would lead out of the folder" in found[0].message
    assert isinstance(parse_catalogue(f"[{{id: '{name}', source: /safe}}]", "a.yaml", FOLDER), Catalogue)


def test_ids_below_the_folder_are_fine() -> None:
    found = parse_catalogue("[org/adapter, ..a, 'a..b']", "a.yaml", FOLDER)
    assert isinstance(found, Catalogue)
    assert found.sources == ("/adapters/..a", "/adapters/a..b", "/adapters/org/adapter")


GUARDED = FleetPolicy(
    name="x", base_model="base", adapters=Adapters(file="a.yaml", allowed_sources=("/adapters/", "s3://models"))
)


@pytest.mark.parametrize("source", ["/adapters/a", "/adapters/a/b", "s3://models/a", "/adapters/a..b"])
def test_sources_inside_the_allowed_folders_are_taken(source: str) -> None:
    assert isinstance(parse_catalogue(f"[{{id: a, source: '{source}'}}]", "a.yaml", GUARDED), Catalogue)


@pytest.mark.parametrize(
    "source",
    [
        "/adapters",
        "/adapters-of-others/a",
        "/adapters/../etc/passwd",
        "/adapters/%2e%2e/etc",
        "/adapters/..\\\\etc",
        "s3://models.evil/a",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
    ],
)
def test_a_source_outside_the_allowed_folders_is_refused(source: str) -> None:
    found = parse_catalogue(f'[{{id: a, source: "{source}"}}]', "a.yaml", GUARDED)
    assert isinstance(found, tuple)
    assert [(e.path, e.allowed) for e in found] == [("[0].source", "a source in /adapters/, s3://models")]
    assert "is in none of `adapters.allowedSources`" in found[0].message


def test_what_was_seen_is_taken_where_it_is_fit_and_named_where_it_is_not() -> None:
    seen = {"ok": "", "base": "", "a\x1b[0m": "", "": "", "a?x=1": "", "own": "/own", "x" * 300: "/x"}
    found, errors = catalogue_of_seen(seen, BUCKET)
    assert found.ids == ("ok", "own")
    assert found.sources == ("https://models/ok", "/own")
    assert len(errors) == 4
    assert all(e.message.isprintable() and "is left out: " in e.message for e in errors)
    assert "would change the URL" in next(e for e in errors if e.path == "a?x=1").message


def test_a_policys_own_list_is_a_catalogue() -> None:
    listed = parse_catalogue("[b, a]", "a.yaml", FOLDER)
    assert isinstance(listed, Catalogue)
    assert catalogue_of((), FOLDER).ids == ()
    assert listed.tenant_row == {"a": 0, "b": 1}
