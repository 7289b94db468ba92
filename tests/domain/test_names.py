"""Who is told `did you mean` is told of the name that a person would have guessed."""

import pytest

from autoscaler.domain.names import did_you_mean, nearest_name

TENANTS = [f"tenant-{n:02}" for n in range(50)]


@pytest.mark.parametrize(
    ("meant", "found"),
    [
        ("tenant-1", "tenant-01"),
        ("tenant-041", "tenant-41"),
        ("Tenant_07", "tenant-07"),
        ("tenant7", "tenant-07"),
        ("tenant-0", "tenant-00"),
        ("tennant-12", "tenant-12"),
        ("tenat-3", "tenant-03"),
    ],
)
def test_leading_zeros_case_and_punctuation_come_first_and_numbers_before_letters(meant: str, found: str):
    assert nearest_name(meant, TENANTS) == found


def test_the_plain_misspelling_is_found_among_more_names_than_are_compared():
    assert nearest_name("TENANT-99999", [f"tenant-{n:06}" for n in range(100_000)]) == "tenant-099999"


def test_two_numbers_are_not_one():
    assert nearest_name("v1-2", ["v12", "v1.2"]) == "v1.2"


@pytest.mark.parametrize("name", ["zzzz", "", "---", "0", "a" * 500, "(["])
def test_nothing_near_is_no_hint(name: str):
    assert nearest_name(name, TENANTS) is None
    assert did_you_mean(name, TENANTS) == ""


def test_a_hint_names_it():
    assert did_you_mean("mial", ["mail", "chat"]) == "; did you mean 'mail'?"
