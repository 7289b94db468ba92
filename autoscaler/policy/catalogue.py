"""The catalogue: from a text, from a policy's own list, or from ids that were seen, to `Catalogue` or what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote

from autoscaler.domain.fleet import EngineLimits, Tier
from autoscaler.domain.observation import Catalogue
from autoscaler.policy.fields import Items, Section
from autoscaler.policy.groups import IDENTIFIER, CatalogueEntry
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.nodes import PolicyError, Report, shown
from autoscaler.policy.reading import read_yaml
from autoscaler.policy.scalars import BAD, Bad

MAX_BYTES = 32 << 20
MAX_ADAPTERS = 200_000
ENTRIES = Items(Section(CatalogueEntry, "id"), MAX_ADAPTERS)


def parse_catalogue(content: str | bytes, file: str, policy: FleetPolicy) -> Catalogue | tuple[PolicyError, ...]:
    """A catalogue file (a YAML list of entries or ids) as a `Catalogue`, or everything that is wrong. Never raises."""
    report = Report(file)
    node = read_yaml(content, report, MAX_BYTES)
    entries = ENTRIES.read(node, "", report) if node is not None else BAD
    if not isinstance(entries, Bad) and not report.errors:
        check_entries(entries, policy, "", report)
        if not report.errors:
            return catalogue_of(entries, policy)
    return report.sorted()


def catalogue_of(entries: Sequence[CatalogueEntry], policy: FleetPolicy) -> Catalogue:
    """Checked entries as a `Catalogue`: tenants default to the id, sources to the path template."""
    return Catalogue.of({e.id: (e.tenant or e.id, _source(e, policy), e.revision, e.rank) for e in entries})


def _source(entry: CatalogueEntry, policy: FleetPolicy) -> str:
    return entry.source or (policy.adapters.path_template or "").replace("{id}", entry.id)


def catalogue_of_seen(sources: Mapping[str, str], policy: FleetPolicy) -> tuple[Catalogue, tuple[PolicyError, ...]]:
    """A catalogue from ids that routers or engines showed, with their sources (empty: the path template).

    Ids that are not fit for it are left out and named in the errors: they may come from anybody. The base model is
    left out silently.
    """
    report = Report("")
    entries = []
    for name, source in sources.items():
        if name == policy.base_model:
            continue
        fault = IDENTIFIER.fault(name) or ("" if source else source_fault(name, policy.adapters.path_template))
        if fault:
            report.add(shown(name), shown(name), IDENTIFIER.allowed(), f"adapter `{shown(name)}` is left out: {fault}")
        else:
            entries.append(CatalogueEntry(id=name, source=source))
    return catalogue_of(entries, policy), report.sorted()


def source_fault(adapter: str, template: str | None) -> str:
    """Why a template cannot give an adapter's source, a clause; empty where it can.

    An id may come from outside, so it must not lead out of the template's folder, nor change a URL's meaning.
    """
    if template is None:
        return "it has no `source`, and `adapters.pathTemplate` is not set; give one of them"
    steps = adapter.split("/")
    if "\\" in adapter or adapter.startswith("~") or any(step in ("", ".", "..") for step in steps):
        return "its id would lead out of the folder of `adapters.pathTemplate`; give it a `source`"
    if "://" in template and any(sign in adapter for sign in "%?#@"):
        return "its id would change the URL of `adapters.pathTemplate`; give it a `source`"
    return ""


def outside(source: str, folders: Sequence[str]) -> bool:
    """Whether a source lies in none of the folders, or may leave one by `..`, encoded or not. No folders: never."""
    if not folders:
        return False
    plain = unquote(source).replace("\\", "/")
    inside = any(plain.startswith(folder.rstrip("/") + "/") for folder in folders)
    return not inside or ".." in plain.split("/")


def check_entries(entries: Sequence[CatalogueEntry], policy: FleetPolicy, path: str, report: Report) -> None:
    """Report duplicates, ids that cannot be served, sources that cannot be had, ranks over every group's limit."""
    first: dict[str, int] = {}
    max_rank = _max_rank(policy)
    for i, entry in enumerate(entries):
        at = f"{path}[{i}]"
        for name, found, allowed, message in _faults(entry, policy, max_rank):
            report.add(
                f"{at}.{name}", shown(found), allowed, f"adapter `{shown(entry.id)}`: {message}", report.lines.get(at)
            )
        j = first.setdefault(entry.id, i)
        if j == i:
            continue
        twice = f"`{shown(entry.id)}` is listed twice, first as {path}[{j}]; keep one"
        if entry.revision != entries[j].revision:
            both = f"`{shown(entries[j].revision)}` and `{shown(entry.revision)}`"
            twice = (
                f"`{shown(entry.id)}` has two revisions, {both}; list the new one only, the old goes when it is loaded"
            )
        report.add(f"{at}.id", shown(entry.id), "each id once", twice, report.lines.get(at))


def _max_rank(policy: FleetPolicy) -> int | None:
    """The highest rank that loads in the warm group, where the policy states one."""
    unstated = EngineLimits(max_lora_rank=0)
    return policy.limits(Tier.WARM, unstated).max_lora_rank or None


def _faults(entry: CatalogueEntry, policy: FleetPolicy, max_rank: int | None) -> Iterator[tuple[str, str, str, str]]:
    if entry.id == policy.base_model:
        yield "id", entry.id, "a name of its own", "it has the base model's name, which engines refuse; rename it"
    if not entry.source and (fault := source_fault(entry.id, policy.adapters.path_template)):
        yield "source", entry.id, "a source", fault
    source = _source(entry, policy)
    if source and outside(source, policy.adapters.allowed_sources):
        folders = ", ".join(policy.adapters.allowed_sources)
        message = f"source `{shown(source)}` is in none of `adapters.allowedSources`, or steps out of it"
        yield "source", source, f"a source in {folders}", message
    if max_rank is not None and entry.rank > max_rank:
        yield (
            "rank", str(entry.rank), f"at most {max_rank}",
            f"rank {entry.rank} is over `maxLoraRank` {max_rank}, and engines answer 500 to it; raise the limit",
        )  # fmt: skip
