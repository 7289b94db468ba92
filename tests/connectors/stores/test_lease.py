"""The lease of one machine: one leader, fenced by time, succeeded at once when its process is gone."""

import subprocess
import sys
from pathlib import Path

import pytest

from autoscaler.connectors.stores.lease import FileLease
from autoscaler.ports import PermanentError

HOLDER = """
import sys, time
from pathlib import Path
from autoscaler.connectors.stores.lease import FileLease
lease = FileLease(Path(sys.argv[1]), "other", 15.0)
print(lease.renew(1000.0), flush=True)
time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leader"


def test_one_leads_and_the_other_does_not(path: Path) -> None:
    one, two = FileLease(path, "one"), FileLease(path, "two")
    assert not one.held(1000.0)
    assert one.renew(1000.0)
    assert not two.renew(1001.0)
    assert one.held(1001.0)
    assert not two.held(1001.0)
    assert two.leader() == "one"


def test_a_leader_that_did_not_renew_stops_before_the_other_may_begin(path: Path) -> None:
    one, two = FileLease(path, "one", 15.0), FileLease(path, "two", 15.0)
    one.renew(1000.0)
    assert one.held(1009.9)
    assert not one.held(1010.0)
    assert not two.renew(1014.9)
    assert two.renew(1015.0)
    assert not one.renew(1016.0)
    assert not one.held(1016.0)


def test_renewal_goes_on(path: Path) -> None:
    one = FileLease(path, "one", 15.0)
    for at_s in (1000.0, 1005.0, 1010.0):
        assert one.renew(at_s)
    assert one.held(1019.0)


def test_a_clock_that_was_set_back_holds_nothing_until_renewed(path: Path) -> None:
    one = FileLease(path, "one", 15.0)
    one.renew(1000.0)
    assert not one.held(900.0)
    assert one.renew(900.0)
    assert one.held(901.0)


def test_a_release_needs_no_waiting(path: Path) -> None:
    one, two = FileLease(path, "one"), FileLease(path, "two")
    one.renew(1000.0)
    one.release()
    assert not one.held(1000.0)
    assert two.renew(1000.1)
    one.release()
    assert two.leader() == "two"


def test_a_killed_leader_is_succeeded_at_once(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        two = FileLease(path, "two", 15.0)
        assert not two.renew(1001.0)
        process.kill()
        process.wait()
    assert two.renew(1002.0)


def test_a_damaged_lease_is_nobodys(path: Path) -> None:
    path.write_text("{")
    assert FileLease(path, "one").renew(1000.0)


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="name a folder to write in"):
        FileLease(tmp_path / "gone" / "leader", "one").renew(1000.0)
