"""The part of the lock file that an image needs: `pip install --dry-run --report PLAN ...`, then this on PLAN.

Names and versions come from the resolver under the lock's constraints, hashes from the lock, so that what is
installed is what was locked.
"""

import json
import re
import sys
from pathlib import Path


def blocks(lock: str) -> dict[str, str]:
    """Name -> its entries with all hashes: a name may have one for each range of Python versions."""
    found: dict[str, str] = {}
    for entry in re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE):
        name = re.match(r"[A-Za-z0-9._-]+(?===)", entry)
        if name:
            found[_normal(name[0])] = found.get(_normal(name[0]), "") + entry
    return found


def planned(plan: str) -> set[str]:
    """Names that the resolver would install, our own left out."""
    names = {_normal(each["metadata"]["name"]) for each in json.loads(plan)["install"]}
    return names - {"lora-autoscaler"}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    known, wanted = blocks(Path(sys.argv[2]).read_text()), planned(Path(sys.argv[1]).read_text())
    if missing := wanted - known.keys():
        sys.exit(f"not in the lock file: {', '.join(sorted(missing))}; run `make lock`")
    print("".join(known[name] for name in sorted(wanted)), end="")
