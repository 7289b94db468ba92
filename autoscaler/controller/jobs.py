"""Heavy fits in a process of their own: nice, one thread, bounded in memory and time. Bytes in, JSON out.

`python -m autoscaler.controller.jobs` is that process: it reads one job from standard input and prints its result. The
loop's process gives it nothing but numbers, so that nothing it does can delay a tick or be executed here.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import resource
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from autoscaler.forecasting import ForecastSettings, NotEnoughHistoryError, outlook, train

MOST_BYTES = 3 << 30
"""Address space of a job. Measured: 1.1 GiB of it reserved and 0.3 GiB used for a week of 4,096 tenants."""
TIMEOUT_S = 1800.0
NICE = 10
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

Arrays = Mapping[str, npt.NDArray[Any]]


class JobError(Exception):
    """The job gave no result; the sentence says why. `expected`: nothing is broken, there is too little history."""

    def __init__(self, message: str, *, expected: bool = False) -> None:
        super().__init__(message)
        self.expected = expected


async def run_job(kind: str, arrays: Arrays, settings: ForecastSettings, **options: float) -> dict[str, Any]:
    """Do a job (`train` or `outlook`) in a child process. Raises JobError. Cancelled, it ends the child."""
    job = await asyncio.to_thread(packed, kind, arrays, settings, options)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__), stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, **_ONE_THREAD}
    )
    try:
        said, wrong = await asyncio.wait_for(process.communicate(job), TIMEOUT_S)
    except TimeoutError:
        raise JobError(f"it was ended after {TIMEOUT_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        last = wrong.decode(errors="replace").strip().rpartition("\n")[2]
        raise JobError(f"its process ended with {process.returncode}: {last[:300] or 'no word'}")
    result: dict[str, Any] = json.loads(said)
    if "refused" in result:
        raise JobError(result["refused"], expected=True)
    return result


def packed(kind: str, arrays: Arrays, settings: ForecastSettings, options: Mapping[str, float]) -> bytes:
    """A job as bytes."""
    told = json.dumps({"kind": kind, "settings": asdict(settings), "options": dict(options)})
    file = io.BytesIO()
    np.savez(file, told=np.frombuffer(told.encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def done(job: bytes) -> dict[str, Any]:
    """Do a packed job here. Raises KeyError for one of another kind."""
    with np.load(io.BytesIO(job)) as given:
        told = json.loads(given["told"].tobytes())
        arrays = {name: given[name] for name in given.files if name != "told"}
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in told["settings"].items()}
    result: dict[str, Any] = _KINDS[told["kind"]](arrays, ForecastSettings(**values), told["options"])
    return result


def _train(arrays: Arrays, settings: ForecastSettings, options: Mapping[str, float]) -> dict[str, Any]:
    try:
        return {"model": train(arrays["rates"], settings).to_json()}
    except NotEnoughHistoryError as error:
        return {"refused": str(error)}


def _outlook(arrays: Arrays, settings: ForecastSettings, options: Mapping[str, float]) -> dict[str, Any]:
    """The outlook of each column of `totals` [T, G]; None where the column holds nothing."""
    made: list[dict[str, Any] | None] = []
    for column in arrays["totals"].T:
        try:
            found = outlook(column, int(options["hours"]), settings)
        except ValueError:
            made.append(None)
            continue
        upper = [float(v) for v in found.p90]
        proven = bool(found.season and not found.shifted and np.isfinite(upper).all())
        made.append({"p90": upper, "proven": proven, "reason": found.reason, "hour_s": settings.day_s / 24})
    return {"outlooks": made}


_KINDS = {"train": _train, "outlook": _outlook}


def main() -> None:
    """The child: lower itself, take one job, print its result."""
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    print(json.dumps(done(sys.stdin.buffer.read())))


if __name__ == "__main__":
    main()
