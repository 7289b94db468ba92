"""Each page says the right thing about recorded fleets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.dashboard.conftest import Look, said
from tests.dashboard.recorded_api import RecordedApi

pytestmark = pytest.mark.slow  # each page starts a Streamlit script: half a second and more

PAGES = ("fleet", "tenants", "neighbours", "thrash", "ring", "decisions", "overrides", "cost")


def test_the_fleet_page_says_first_what_hurts_and_whether_replicas_would_help(look: Look, thrash: RecordedApi):
    app = look(thrash, "fleet")
    first = app.get("html")[0].proto.body
    assert "Adapter thrash" in first
    assert thrash.fleet["health"]["sentence"].split(". ")[0] in first
    assert "Would more replicas help? No" in first
    figures = {m.label: m.value for m in app.metric}
    assert figures["Waiting requests"] == "522"
    assert figures["TTFT p99, worst adapter"] == "20 s"
    assert "nothing is changed" in first, "advise mode is said"


@pytest.mark.parametrize(("page", "first"), [("tenants", "Promise"), ("decisions", "Subject")])
def test_the_first_rows_as_text_give_way_to_the_table_to_choose_from(
    look: Look, thrash: RecordedApi, monkeypatch: pytest.MonkeyPatch, page: str, first: str
):
    monkeypatch.setattr("dashboard.scene.PAINTS_S", 0.0)
    app = look(thrash, page, painted=False)
    assert app.session_state["painted"], "once a tab"
    assert len(app.dataframe) == 1
    assert f">{first}</th>" not in said(app)


def test_a_signal_that_is_missing_reads_unknown_and_never_zero(look: Look, thrash: RecordedApi):
    thrash.fleet["ttft_p99_s"] = thrash.fleet["requests_per_s"] = None
    for replica in thrash.fleet["groups"][0]["replicas"]:
        replica["waiting"] = {"value": None, "missing": "no series of this replica"}
    thrash.fleet["signals"]["traffic"] = {"value": None, "missing": "no router answers"}
    app = look(thrash, "fleet")
    figures = {m.label: m.value for m in app.metric}
    assert {figures[n] for n in ("TTFT p99, worst adapter", "Waiting requests", "Requests")} == {"unknown"}
    assert "no router answers" in said(app)


def test_tenants_are_sorted_searched_and_paged_by_the_api(look: Look, managed: RecordedApi):
    app = look(managed, "tenants", q="ten", tier="Warm", sort="TTFT")
    (asked,) = [a for a in managed.asked if "/tenants?" in a]
    assert {"search=ten", "tier=warm", "sort=-ttft", "limit=50"} <= set(asked.split("?")[1].split("&"))
    table = app.dataframe[0].value
    items = managed.answers["fleets/local/tenants"]["items"]
    assert list(table["Tenant"]) == [t["tenant"] for t in items]
    assert [list(o) for o in table["Owners"]] == [t["owners"] for t in items]
    assert "of 50 tenants" in said(app)
    app.button(key="tenants_next").click().run()
    cursor = managed.answers["fleets/local/tenants"]["next_cursor"]
    assert f"cursor={cursor}" in managed.asked[-1]
    app.button(key="tenants_back").click().run()
    assert not app.exception
    assert app.button(key="tenants_back").disabled, "back on the first page"


def test_a_tenant_in_the_address_is_explained(look: Look, managed: RecordedApi):
    name = managed.answers["fleets/local/tenants"]["items"][0]["tenant"]
    tenant = managed.answers[f"fleets/local/tenants/{name}"]
    text = said(look(managed, "tenants", tenant=name))
    assert tenant["trail"][-1]["message"].split(";")[0].lower() in text.lower()
    assert all(o["replica"] in text for o in tenant["adapters"][0]["owners"])


def test_a_tenant_that_is_gone_is_said_to_be_gone(look: Look, managed: RecordedApi):
    assert "This is not there" in said(look(managed, "tenants", tenant="nobody"))


def test_an_aggressor_is_named_with_its_victims_and_the_cure(look: Look, managed: RecordedApi):
    managed.answers["fleets/local/noisy-neighbours"] = {
        "items": [
            {
                "tenant": "loud", "aggressor_score": 0.9, "victim_score": 0.0, "share_ratio": 0.57, "effect_s": 1.84,
                "effect_low_s": 1.2, "effect_high_s": 2.5, "samples": 14, "missing": None,
                "others": ["quiet-1", "quiet-2"], "added_s": [2.0, None], "harm": 12.0,
                "evidence": ["it takes 57% of the tokens of warm-0000"],
            }
        ]
    }  # fmt: skip
    text = said(look(managed, "neighbours"))
    assert "loud hurts quiet-1, quiet-2" in text
    assert "1.8 s (95 % sure: 1.2 s to 2.5 s)" in text
    assert "A group of its own (tier HOT)".lower() in text.lower()


def test_without_evidence_nobody_is_accused(look: Look, managed: RecordedApi):
    text = said(look(managed, "neighbours"))
    assert "No tenant is known to hurt another" in text
    assert "no verdict" in text


def test_thrash_names_its_replicas_and_what_cures_it(look: Look, thrash: RecordedApi):
    app = look(thrash, "thrash")
    text = said(app)
    assert "8 replicas of 8 thrash" in text
    assert thrash.fleet["groups"][0]["cure"].split(",")[0] in text
    assert "More replicas alone do not help" in text
    assert len(app.get("vega_lite_chart")) == 1, "the map of replicas and adapters"


def test_thrash_says_who_is_pushed_out_by_whom_and_what_each_cure_would_do(look: Look, thrash: RecordedApi):
    found = thrash.answers["fleets/local/adapter-thrash"]
    worst = found["pushed_out"][0]
    found["pushed_out"][1] |= {"place": "memory", "basis": "seen", "loads_per_hour": None, "requests_per_hour": None,
                               "by": [{"adapter": None, "share_ratio": 1.0}]}  # fmt: skip
    found["cures"][2] |= {"loads_per_hour_after": found["cures"][2]["loads_per_hour"]}
    text = said(look(thrash, "thrash"))
    for cure in found["cures"]:
        assert cure["message"].replace("`groups.cold`", "<code>groups.cold</code>") in text
    assert "28k → 2.5k" in text
    assert "28k, no fewer" in text
    assert f'{worst["adapter"]} </td><td class="num">1.3k/h</td>' in text
    assert f"{worst['by'][0]['adapter']} 6.0 %" in text
    assert "loads on its replicas 15k → 11k an hour" in text
    assert "from memory" in text
    assert "several at once 100 %" in text
    assert "estimated" in text


def test_a_controller_of_an_older_release_shows_thrash_without_who_pushes_whom(look: Look, thrash: RecordedApi):
    for name in ("cures", "pushed_out"):
        del thrash.answers["fleets/local/adapter-thrash"][name]
    text = said(look(thrash, "thrash"))
    assert "8 replicas of 8 thrash" in text
    assert "pushed out" not in text


def test_a_cured_fleet_has_no_thrash(look: Look, managed: RecordedApi):
    assert "No adapter thrash" in said(look(managed, "thrash"))


def test_the_ring_says_what_the_last_epochs_moved_and_why(look: Look, managed: RecordedApi):
    app = look(managed, "ring")
    text = said(app)
    last = managed.answers["fleets/local/ring/moves"]["items"][0]
    assert app.expander[0].label.startswith(f"Epoch {last['epoch']} · {last['moves']} moves")
    assert last["items"][0]["adapter"] in text
    assert "Rebalanced" in text, "the reason comes from the decisions"
    assert managed.answers["fleets/local/adapters"]["items"][0]["owners"][0] in text


def test_a_ring_that_is_not_there_yet_is_said(look: Look, managed: RecordedApi):
    managed.fleet["epoch"] = 0
    assert "No ring yet" in said(look(managed, "ring"))


def test_decisions_are_listed_newest_first_and_filtered_by_step(look: Look, managed: RecordedApi):
    items = managed.answers["fleets/local/decisions"]["items"]
    everything = look(managed, "decisions").dataframe[0].value
    assert len(everything) == len(items)
    only = look(managed, "decisions", step="Scale").dataframe[0].value
    assert set(only["Step"]) == {"scale"}
    assert len(only) == sum(d["step"] == "scale" for d in items)


def test_any_subject_is_explained_with_what_would_change_it(look: Look, managed: RecordedApi):
    found = managed.answers["fleets/local/explain"]
    text = said(look(managed, "decisions", subject=found["subject"]))
    assert found["summary"] in text
    assert "What would change it" in text
    assert "<code>lora-autoscaler override set" in text


def test_half_a_subject_is_not_sent(look: Look, managed: RecordedApi):
    assert "Not a subject yet" in said(look(managed, "decisions", subject="tenant"))
    assert not any("/explain" in a for a in managed.asked)


def test_costs_have_no_price_until_one_is_told(look: Look, managed: RecordedApi):
    costs = managed.answers["fleets/local/costs"]
    hours = sum(costs["replica_hours_per_hour"].values())
    silent = {m.label: m.value for m in look(managed, "cost").metric}
    assert silent["Cost per hour"] == "unknown"
    told = {m.label: m.value for m in look(managed, "cost", price="2.5").metric}
    assert told["Cost per hour"] == f"${hours * 2.5:.2f}"


@pytest.mark.parametrize("page", PAGES)
def test_an_expired_token_is_said_on_every_page(look: Look, managed: RecordedApi, page: str):
    text = said(look(managed, page, token="expired"))
    assert "The dashboard's token is not accepted" in text, "what is wrong"
    assert "LORA_AUTOSCALER_TOKEN" in text, "what to do"


@pytest.mark.parametrize("page", PAGES)
def test_a_dead_api_is_said_on_every_page(look: Look, managed: RecordedApi, page: str):
    managed.url = "http://127.0.0.1:9"
    text = said(look(managed, page))
    assert "The controller's API does not answer" in text
    assert "routers keep the last ring" in text


def test_what_is_old_is_shown_as_old(look: Look, managed: RecordedApi):
    app = look(managed, "fleet")
    for path in list(managed.answers):
        managed.answers[path] = 503
    import time

    time.sleep(1.6)
    app.run()
    text = said(app)
    assert "What is shown is" in text
    assert "Something needs attention" in text, "the last good answer stays"


def test_a_controller_that_stands_still_is_said(look: Look, managed: RecordedApi):
    managed.answers["fleets/local"] = managed.answers["fleets/local"] | {"at": "2026-11-29T20:00:00.000Z"}
    assert "The controller's last tick was" in said(look(managed, "fleet"))


REPORT = {
    "strategies": {
        "ours": {"gpu_hours": 118.2, "slo_attainment": 0.991, "ttft_p99_s": 0.8, "adapter_loads_per_1000": 2.1},
        "round-robin-hpa": {"gpu_hours": 171.0, "slo_attainment": 0.94, "ttft_p99_s": 4.2},
    }
}


def test_without_a_folder_of_reports_the_command_that_writes_one_is_said(look: Look, managed: RecordedApi):
    text = said(look(managed, "reports"))
    assert "LORA_AUTOSCALER_REPORTS=FOLDER" in text
    assert "lora-autoscaler simulate --policy" in text


def test_reports_are_listed_newest_first_with_their_strategies_side_by_side(
    look: Look, managed: RecordedApi, tmp_path: Path
):
    assert "No report yet" in said(look(managed, "reports", reports=str(tmp_path)))
    (tmp_path / "old.json").write_text("{}")
    os.utime(tmp_path / "old.json", (1e9, 1e9))
    (tmp_path / "week.json").write_text(json.dumps(REPORT))
    (tmp_path / "week.html").write_text("<h1>A week</h1>")
    app = look(managed, "reports", reports=str(tmp_path))
    text = said(app)
    assert app.selectbox[0].value == "week.json"
    assert "Fewest GPU-hours: ours, 118.2." in text
    assert "Most requests within the SLO: ours, 99.1 %." in text
    assert text.index(">ours<") < text.index(">round-robin-hpa<"), "fewest GPU-hours first"
    assert "unknown" in text, "a figure that a report lacks is unknown, not zero"
    assert "The full report" in str(app.get("download_button")[0].proto)


@pytest.mark.parametrize(
    ("content", "why"), [("{", "is not valid JSON"), ("[]", "holds no"), ('{"strategies": {"a": 3}}', "holds no")]
)
def test_a_file_that_is_no_report_is_said_to_be_none(
    look: Look, managed: RecordedApi, tmp_path: Path, content: str, why: str
):
    (tmp_path / "x.json").write_text(content)
    assert why in said(look(managed, "reports", reports=str(tmp_path)))


def test_a_report_in_the_address_that_is_not_in_the_folder_is_not_read(
    look: Look, managed: RecordedApi, tmp_path: Path
):
    (tmp_path / "in").mkdir()
    (tmp_path / "out.json").write_text(json.dumps(REPORT))
    (tmp_path / "in" / "x.json").write_text("{")
    app = look(managed, "reports", reports=str(tmp_path / "in"), report="../out.json")
    assert "is not valid JSON" in said(app)
