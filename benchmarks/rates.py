"""Read request rates of many clients: the CSV columns `client_id,window_start_s,rate_rps` (more are ignored)."""

import csv
import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt


def read_rates(path: Path) -> tuple[tuple[str, ...], npt.NDArray[np.float64]]:
    """Client ids (n,) and their rates in requests/s by window (n, windows); plain or gzip.

    A window that a client has no line for is 0. Raises SystemExit with one sentence where the file cannot be read so.
    """
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            rows = [
                (row["client_id"], float(row["window_start_s"]), float(row["rate_rps"]))
                for row in csv.DictReader(lines)
            ]
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise SystemExit(f"{path}: not a file of client_id,window_start_s,rate_rps: {error!r}") from None
    if not rows:
        raise SystemExit(f"{path}: no line with a rate")
    clients, starts, rates = zip(*rows, strict=True)
    names, client = np.unique(np.array(clients), return_inverse=True)
    windows, window = np.unique(np.array(starts), return_inverse=True)
    table = np.zeros((len(names), len(windows)))
    table[client, window] = rates
    return tuple(f"client-{name}" for name in names.tolist()), table
