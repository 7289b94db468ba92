"""`python -m autoscaler.simulator.http --port N`: one simulated engine in a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from autoscaler.simulator.engine.profile import EngineLimits, ProfileError, load_profile
from autoscaler.simulator.http.adapters import AdapterFiles, AdapterFolder, AdapterTable
from autoscaler.simulator.http.options import DEFAULT_PROFILE, EngineOptions
from autoscaler.simulator.http.pump import Pump
from autoscaler.simulator.http.server import SimulatedEngine


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Exit codes: 0 stopped, 2 wrong options or a port that is taken."""
    given = _parser().parse_args(argv)
    try:
        options = _options(given)
        return asyncio.run(_serve(options, given.host, given.port))
    except (ProfileError, OSError) as error:
        print(f"the engine on {given.host}:{given.port} does not start: {error}", file=sys.stderr)
        return 2


def options_from(arguments: Sequence[str]) -> EngineOptions:
    """What a pod's command line asks of its engine; options of vLLM that mean nothing here are passed over."""
    given, _ = _parser().parse_known_args(arguments)
    return _options(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m autoscaler.simulator.http", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name", default="base")
    parser.add_argument("--profile", default=DEFAULT_PROFILE, help="a shipped profile's name, or a file")
    parser.add_argument("--max-loras", type=int, default=8)
    parser.add_argument("--max-cpu-loras", type=int, default=32)
    parser.add_argument("--max-lora-rank", type=int, default=16)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--max-model-len", type=int, default=16_384)
    parser.add_argument("--adapters", type=Path, help="folder of real PEFT adapters")
    parser.add_argument(
        "--adapter", action="append", default=[], metavar="PATH=RANK", help="an adapter that exists only by name"
    )
    parser.add_argument("--resolver", action="store_true", help="look for unknown names among the adapters")
    parser.add_argument("--no-runtime-updates", action="store_true")
    parser.add_argument("--stream-interval", type=int, default=16)
    parser.add_argument("--enable-force-include-usage", action="store_true")
    parser.add_argument("--max-num-queued-reqs", type=int)
    parser.add_argument("--residency-metrics", action="store_true")
    parser.add_argument("--start-up-s", type=float, default=0.0)
    parser.add_argument("--shutdown-timeout", type=float, default=0.0)
    return parser


def _options(given: argparse.Namespace) -> EngineOptions:
    return EngineOptions(
        profile=load_profile(given.profile),
        limits=EngineLimits(
            max_loras=given.max_loras,
            max_cpu_loras=given.max_cpu_loras,
            max_lora_rank=given.max_lora_rank,
            max_num_seqs=given.max_num_seqs,
        ),
        base_model=given.served_model_name,
        max_model_len=given.max_model_len,
        files=_files(given),
        resolver=given.resolver,
        runtime_updates=not given.no_runtime_updates,
        stream_interval_tokens=given.stream_interval,
        force_usage=given.enable_force_include_usage,
        max_queued_requests=given.max_num_queued_reqs,
        residency_metrics=given.residency_metrics,
        start_up_s=given.start_up_s,
        shutdown_timeout_s=given.shutdown_timeout,
    )


def _files(given: argparse.Namespace) -> AdapterFiles:
    if given.adapters is not None:
        return AdapterFolder(given.adapters)
    ranks: dict[str, int] = {}
    for entry in given.adapter:
        path, _, rank = entry.rpartition("=")
        if not path or not rank.isdigit():
            raise ProfileError(f"--adapter {entry!r}: write PATH=RANK, such as /adapters/a=16")
        ranks[path] = int(rank)
    return AdapterTable(ranks)


async def _serve(options: EngineOptions, host: str, port: int) -> int:
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop.set)
    engine = SimulatedEngine(options, Pump(), host, port)
    starting = asyncio.ensure_future(engine.start())
    stopping = asyncio.ensure_future(told_to_stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        print(f"ready on {engine.url}", file=sys.stderr)
        await stopping
        await engine.stop()
    else:
        starting.cancel()
    return 0


if __name__ == "__main__":
    sys.exit(main())
