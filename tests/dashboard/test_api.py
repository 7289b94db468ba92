"""One server asks the API once for all who look, and keeps what it knew when the API fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from dashboard.api import MOST_ANSWERS, Answer, Api, Problem, Trouble, segment
from tests.dashboard.recorded_api import RecordedApi


def test_twenty_viewers_are_one_question(managed: RecordedApi):
    api = Api(managed.url, "reader")
    with ThreadPoolExecutor(20) as viewers:
        answers = list(viewers.map(lambda _: api.get("fleets", max_age_s=60.0), range(20)))
    assert len({id(a.value) for a in answers}) == 1
    assert len(managed.asked) == 1


def test_an_answer_is_asked_for_again_once_it_is_old(managed: RecordedApi):
    api = Api(managed.url, "reader")
    api.get("fleets")
    api.get("fleets", max_age_s=0.0)
    assert len(managed.asked) == 2


def test_what_has_not_changed_is_not_sent_again_and_counts_as_fresh(managed: RecordedApi):
    managed.tag = '"tick-1"'
    api = Api(managed.url, "reader")
    first = api.get("fleets")
    assert first.tag == '"tick-1"'
    managed.answers["fleets"] = {"items": [managed.fleet | {"epoch": 999}]}
    same = api.get("fleets", max_age_s=0.0)
    assert same.value is first.value
    assert same.at_s > first.at_s
    managed.tag = '"tick-2"'
    newer = api.get("fleets", max_age_s=0.0)
    assert (newer.items[0]["epoch"], newer.tag) == (999, '"tick-2"')


def test_the_last_good_answer_stays_while_the_api_fails_and_goes_when_it_says_no(managed: RecordedApi):
    api = Api(managed.url, "reader")
    good = api.get("fleets/local/costs")
    managed.answers["fleets/local/costs"] = 500
    failed = api.get("fleets/local/costs", max_age_s=0.0)
    assert failed.value == good.value
    assert failed.problem is not None
    assert failed.problem.trouble is Trouble.BROKEN
    managed.token = "another"
    refused = api.get("fleets/local/costs", max_age_s=0.0)
    assert refused.value is None, "who may not read any more sees nothing any more"
    assert refused.problem is not None
    assert refused.problem.trouble is Trouble.UNAUTHORISED


@pytest.mark.parametrize(
    ("status", "trouble"),
    [(404, Trouble.NOT_FOUND), (403, Trouble.FORBIDDEN), (503, Trouble.NOT_READY), (412, Trouble.CONFLICT),
     (422, Trouble.REFUSED), (500, Trouble.BROKEN)],
)  # fmt: skip
def test_each_status_has_its_trouble_and_the_api_s_own_words(managed: RecordedApi, status: int, trouble: Trouble):
    managed.answers["fleets/x"] = status
    problem = Api(managed.url, "reader").get("fleets/x").problem
    assert problem is not None
    assert problem.trouble is trouble
    assert "'fleets/x'" in problem.detail


def test_an_answer_that_is_no_object_is_broken(managed: RecordedApi):
    managed.answers["fleets/x"] = [1, 2]
    problem = Api(managed.url, "reader").get("fleets/x").problem
    assert problem is not None
    assert problem.trouble is Trouble.BROKEN


def test_commands_carry_the_token_and_raise_where_nobody_hears(managed: RecordedApi):
    api = Api(managed.url, "operator")
    api.change("PUT", "fleets/local/tenants/a/override", {"tier": "hot"}, {"If-Match": '"3"'})
    ((method, path, body, headers),) = managed.told
    assert (method, path, body) == ("PUT", "/v1/fleets/local/tenants/a/override", {"tier": "hot"})
    assert (headers["Authorization"], headers["If-Match"]) == ("Bearer operator", '"3"')
    with pytest.raises(Problem, match="cannot be reached"):
        Api("http://127.0.0.1:9", "operator").change("DELETE", "fleets/local/tenants/a/override")


@pytest.mark.slow
def test_memory_is_bounded(managed: RecordedApi):
    api = Api(managed.url, "reader")
    for number in range(MOST_ANSWERS + 20):
        api.get("fleets", {"page": number})
    assert len(api._answers) == MOST_ANSWERS
    assert len(api._locks) <= MOST_ANSWERS + 1


def test_names_are_one_segment_and_an_empty_answer_has_no_items():
    assert segment("a b?c#d") == "a%20b%3Fc%23d"
    assert Answer(None).items == []
