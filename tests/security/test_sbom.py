"""The bill of materials names every package that the lock file pins, each with its hashes."""

import json
import re

from cyclonedx.output.json import JsonV1Dot6

from tests.security.sbom import ROOT, bill


def test_every_pinned_package_is_in_the_bill_with_its_hashes():
    lock = (ROOT / "requirements.lock").read_text()
    pinned = {name.lower() for name in re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE)}
    written = json.loads(JsonV1Dot6(bill(lock, (ROOT / "pyproject.toml").read_text())).output_as_string())
    assert written["metadata"]["component"]["name"] == "lora-autoscaler"
    assert {c["name"] for c in written["components"]} == pinned
    assert len(pinned) > 100
    assert all(c["hashes"] for c in written["components"])
