"""The part of the lock file that an image needs: `pip install --dry-run --report PLAN ...`, then this on PLAN.

Names and versions come from the resolver under the lock's constraints, hashes from the lock, so that what is
installed is what was locked.
"""

import json
import re
import sys
from pathlib import Path


def blocks(lock: str) -> dict[str, str]:
    """Name -> its entry with all hashes."""
    found = re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE)
    return {_normal(re.match(r"[A-Za-z0-9._-]+", entry)[0]): entry for entry in found if "==" in entry}  # type: ignore[index]


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
