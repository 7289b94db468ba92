"""What the locked environment consists of, as a CycloneDX bill of materials: `python -m tests.security.sbom > FILE`.

It is read from requirements.lock, so it needs no network and says the same on every machine.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parents[2]
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def bill(lock: str, project: str) -> Bom:
    """The project with every pinned package and the hashes of its files."""
    about = tomllib.loads(project)["project"]
    bom = Bom()
    bom.metadata.component = Component(name=about["name"], version=about["version"], type=ComponentType.APPLICATION)
    for block in re.split(r"\n(?=[A-Za-z0-9])", lock):
        pin = _PIN.match(block)
        if pin:
            name, version = pin[1].lower(), pin[2]
            hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in _HASH.findall(block)]
            purl = PackageURL("pypi", None, name, version)
            bom.components.add(
                Component(name=name, version=version, purl=purl, bom_ref=purl.to_string(), hashes=hashes)
            )
    return bom


if __name__ == "__main__":
    found = bill((ROOT / "requirements.lock").read_text(), (ROOT / "pyproject.toml").read_text())
    sys.stdout.write(JsonV1Dot6(found).output_as_string(indent=2) + "\n")
