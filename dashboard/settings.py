"""How the dashboard is wired: the API's address, its tokens, and who may change something."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """Read once, when the server starts.

    Attributes:
        url: of the API.
        token: may read; empty where none was given.
        operator_token: may change; it stays in this process. Empty = nothing can be changed here.
        operators: who may use it: names, or `*@example.com`; lower case.
        user_header: the request header in which an authenticating proxy names the viewer; empty = no such proxy.
        price: money per replica-hour; None = not told.
        currency: its sign.
        refresh_s: seconds between two looks.
        reports: folder of the simulator's reports; None = none.
    """

    url: str = "http://127.0.0.1:8080"
    token: str = field(default="", repr=False)
    operator_token: str = field(default="", repr=False)
    operators: frozenset[str] = frozenset()
    user_header: str = ""
    price: float | None = None
    currency: str = "$"
    refresh_s: float = 4.0
    reports: Path | None = None


class SettingsError(ValueError):
    """A variable of the environment that cannot be used; the sentence names it and what it should be."""


def read_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Settings from `LORA_AUTOSCALER_*`. Raises SettingsError."""

    def said(name: str, default: str = "") -> str:
        return environment.get(f"LORA_AUTOSCALER_{name}", default).strip()

    price = said("PRICE_PER_REPLICA_HOUR")
    return Settings(
        url=said("URL", "http://127.0.0.1:8080").rstrip("/"),
        token=_secret(said("TOKEN"), said("TOKEN_FILE")),
        operator_token=_secret(said("OPERATOR_TOKEN"), said("OPERATOR_TOKEN_FILE")),
        operators=frozenset(name.strip().lower() for name in said("OPERATORS").split(",") if name.strip()),
        user_header=said("USER_HEADER"),
        price=_positive("PRICE_PER_REPLICA_HOUR", price) if price else None,
        currency=said("CURRENCY", "$"),
        refresh_s=max(_positive("REFRESH_S", said("REFRESH_S", "4")), 1.0),
        reports=Path(said("REPORTS")) if said("REPORTS") else None,
    )


def _secret(value: str, file: str) -> str:
    if value or not file:
        return value
    try:
        return Path(file).read_text("utf-8").strip()
    except OSError as error:
        raise SettingsError(f"the token file {file} cannot be read: {error.strerror}") from error


def _positive(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise SettingsError(f"LORA_AUTOSCALER_{name} is {text!r}; it must be a number above 0")
    return value
