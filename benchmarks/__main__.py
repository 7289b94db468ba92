"""Every benchmark, one table: each figure beside its peer's or its target.

    python -m benchmarks [--data DIR] [--only NAME ...]

Benchmarks that need recordings are left out, with the reason, where DIR does not hold them.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_RECORDINGS = {
    "forecast": ("servegen/m-large.rates.csv.gz", "--rates"),
    "calibration": ("vllm_lora_measurements/real_server_runs.csv", "--runs"),
}
_COMMANDS: dict[str, tuple[str, ...]] = {
    "tick": ("tick",),
    "ring": ("ring",),
    "churn zipf-poisson": ("churn", "--workload", "zipf-poisson"),
    "churn alternating": ("churn", "--workload", "alternating"),
    "engines": ("engines",),
    "fleet": ("fleet", "--quick", "--adapters", "300"),
    "dashboard": ("dashboard",),
    "forecast": ("forecast",),
    "calibration": ("calibration",),
}


def main() -> int:
    arguments = _arguments()
    failed = []
    for title, command in _COMMANDS.items():
        if arguments.only and command[0] not in arguments.only:
            continue
        extra = _recording(command[0], arguments.data)
        if extra is None:
            print(f"{title}: left out, {arguments.data / _RECORDINGS[command[0]][0]} is not there", flush=True)
            continue
        result = _run((*command, *extra))
        if result is None:
            failed.append(title)
        else:
            for key, value in _figures(result):
                print(f"{title:<20} {key:<60} {value}", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _recording(name: str, data: Path) -> tuple[str, ...] | None:
    if name not in _RECORDINGS:
        return ()
    path, flag = _RECORDINGS[name]
    return (flag, str(data / path)) if (data / path).exists() else None


def _run(command: tuple[str, ...]) -> dict[str, Any] | None:
    """The benchmark's JSON, None where it failed; what it says on the way is shown."""
    name, *rest = command
    finished = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *rest, "--json"], stdout=subprocess.PIPE, text=True, check=False
    )
    try:
        found: dict[str, Any] = json.loads(finished.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return None
    return found if finished.returncode == 0 else None


def _figures(result: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Numbers of the nested result by their path; lists (rows of a run) are left to --json."""
    rows = []
    for key, value in result.items():
        if isinstance(value, dict):
            rows += _figures(value, f"{prefix}{key}.")
        elif isinstance(value, int | float | str | bool):
            rows.append((prefix + key, f"{value:.4g}" if isinstance(value, float) else str(value)))
    return rows


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = Path(__file__).resolve().parent.parent
    parser.add_argument("--data", type=Path, default=root.parent / "shared" / "data", help="folder of recordings")
    parser.add_argument("--only", nargs="*", default=[], help="names of benchmarks")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
