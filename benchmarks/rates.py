"""Read request rates of many clients: the CSV columns `client_id,window_start_s,rate_rps` (more are ignored)."""

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class RateWindows:
    """Rates of S clients over T equal windows.

    Attributes:
        clients: client ids, as text.
        window_s: length of a window.
        rps: mean rates in requests/s (T, S); NaN where the file has no line.
    """

    clients: tuple[str, ...]
    window_s: float
    rps: npt.NDArray[np.float64]


def read_windows(path: Path) -> RateWindows:
    """Rates on a regular grid of windows, plain or gzip; a window without a line is unknown, not zero.

    Raises SystemExit with one sentence where the file cannot be read so.
    """
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            rows = [
                (row["client_id"], float(row["window_start_s"]), float(row["rate_rps"] or "nan"))
                for row in csv.DictReader(lines)
            ]
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise SystemExit(f"{path}: not a file of client_id,window_start_s,rate_rps: {error!r}") from None
    if not rows:
        raise SystemExit(f"{path}: no line with a rate")
    clients, starts, rates = zip(*rows, strict=True)
    names, client = np.unique(np.array(clients), return_inverse=True)
    start = np.array(starts)
    distinct = np.unique(start)
    window_s = float(np.diff(distinct).min()) if len(distinct) > 1 else 600.0
    window = np.round((start - distinct[0]) / window_s).astype(np.int64)
    rps = np.full((int(window.max()) + 1, len(names)), np.nan)
    rps[window, client] = rates
    return RateWindows(tuple(f"client-{name}" for name in names.tolist()), window_s, rps)


def read_rates(path: Path) -> tuple[tuple[str, ...], npt.NDArray[np.float64]]:
    """Client ids (n,) and their rates in requests/s by window (n, windows); a window without a line is 0."""
    read = read_windows(path)
    return read.clients, np.nan_to_num(read.rps).T.copy()
