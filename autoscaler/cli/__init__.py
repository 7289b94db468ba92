"""The command line, and the composition root: the only place that knows connectors, controller and simulator alike.

Every command is a light module here with `register(commands)`, which names the module whose `run(arguments)` does the
work. That one is imported when it runs, so that a router team's install of the ring alone has a working
`lora-autoscaler ring`, and a missing extra is told by its name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

from autoscaler.cli.errors import RefusedError, UsageError

_COMMANDS = (
    "demo_options", "run_options", "policy_options", "explain_options", "override_options", "detach_options",
    "ring_options", "doctor_options", "backtest_options", "simulate_options",
    "calibrate_options",
)  # fmt: skip
_EXTRA_OF = {
    "fastapi": "controller", "uvicorn": "controller", "aiohttp": "controller", "httpx": "controller",
    "yaml": "controller", "pydantic": "controller", "prometheus_api_client": "controller",
    "prometheus_client": "controller", "rich": "controller", "sklearn": "controller", "statsmodels": "controller",
    "kubernetes": "kubernetes", "grpc": "kubernetes", "numba": "simulate", "joblib": "simulate",
    "streamlit": "dashboard",
}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The whole command line, for `main` and for the documentation's check."""
    top = argparse.ArgumentParser(
        prog="lora-autoscaler",
        description="Autoscaling and tiering for fleets of LLM replicas that serve many LoRA adapters.",
        epilog="Start with `lora-autoscaler demo`. Exit codes: 0 fine, 1 the answer is no, 2 wrong usage or input.",
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {version('lora-autoscaler')}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in _COMMANDS:
        import_module(f"autoscaler.cli.{name}").register(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0 fine, 1 the answer is no, 2 wrong usage or input."""
    arguments = parser().parse_args(argv)
    try:
        return int(import_module(f"autoscaler.cli.{arguments.module}").run(arguments))
    except (UsageError, RefusedError) as error:
        print(f"lora-autoscaler: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except ModuleNotFoundError as error:
        extra = _EXTRA_OF.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        remedy = f"pip install 'lora-autoscaler[{extra}]'"
        print(f"lora-autoscaler: this needs {error.name}, of the extra `{extra}`: {remedy}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
