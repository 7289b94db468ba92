"""Credentials from a file that is read again when it changes, so that a token can be withdrawn at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from autoscaler.api.auth import Authenticator, Principal, Role, TokenTable
from autoscaler.cli.errors import UsageError
from autoscaler.cli.settings import Credential, parse_credentials
from autoscaler.connectors.files.watched import WatchedFile
from autoscaler.policy.nodes import PolicyError


class TokensFile:
    """`Authenticator` over a tokens file. While it is invalid or gone, the last valid one holds.

    Raises:
        UsageError: at first the file must be valid.
    """

    def __init__(self, path: Path, now_s: Callable[[], float]) -> None:
        self._file = WatchedFile(path, lambda content: _table(parse_credentials(content, path)), now_s)
        if self._file.look() is None:
            raise UsageError(f"tokens: {self._file.trouble.removesuffix('; the last valid one stands')}")

    async def identify(self, token: str) -> Principal | None:
        """Whose the token is by the file as it is now."""
        table = self._file.look()
        return None if table is None else await table.identify(token)


class AnyOf:
    """`Authenticator` over several, in order: whoever knows the token first says whose it is."""

    def __init__(self, known: Sequence[Authenticator]) -> None:
        self._known = tuple(known)

    async def identify(self, token: str) -> Principal | None:
        """Whose the token is. Raises what one of them raises."""
        for each in self._known:
            found = await each.identify(token)
            if found is not None:
                return found
        return None


def _table(parsed: tuple[Credential, ...] | tuple[PolicyError, ...]) -> TokenTable | tuple[PolicyError, ...]:
    credentials = [c for c in parsed if isinstance(c, Credential)]
    if len(credentials) < len(parsed):
        return tuple(e for e in parsed if isinstance(e, PolicyError))
    return TokenTable((c.sha256, Principal(c.name, Role[c.role.name], _fleets(c))) for c in credentials)


def _fleets(credential: Credential) -> frozenset[str] | None:
    return None if credential.fleets is None else frozenset(credential.fleets)
