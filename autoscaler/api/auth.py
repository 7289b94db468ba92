"""Who asks, and what they may: bearer tokens with the roles reader and operator, scoped to fleets."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Protocol

from fastapi import Depends, Request

from autoscaler.api.limits import Budget, RateLimits, retry_after
from autoscaler.api.problems import ProblemError

_OF_ROUTERS = ("/ring", "/ring/acks", "/ring/events")


class Role(IntEnum):
    """Ordered: an operator may all that a reader may."""

    READER = 1
    OPERATOR = 2


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a credential belongs to. `fleets`: those it reaches; None = all."""

    name: str
    role: Role
    fleets: frozenset[str] | None = None

    def reaches(self, fleet: str) -> bool:
        """Whether the credential is good for a fleet."""
        return self.fleets is None or fleet in self.fleets


class Authenticator(Protocol):
    """Turns a bearer token into who it belongs to."""

    async def identify(self, token: str) -> Principal | None:
        """The principal, None where the token is nobody's. Raises TemporaryError where it cannot be checked now."""
        ...


class TokenTable:
    """Tokens known by their SHA-256 only, so that neither memory nor a file of digests gives them away."""

    def __init__(self, entries: Iterable[tuple[str, Principal]]) -> None:
        """`entries`: (lower-case hex SHA-256 of the token, whose it is)."""
        self._entries = tuple((bytes.fromhex(digest), principal) for digest, principal in entries)

    async def identify(self, token: str) -> Principal | None:
        """Compare with every entry in constant time."""
        presented = hashlib.sha256(token.encode()).digest()
        found = None
        for digest, principal in self._entries:
            if hmac.compare_digest(digest, presented):
                found = principal
        return found


async def principal_of(request: Request) -> Principal:
    """The caller of a request. Raises ProblemError 401 with what is expected."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise ProblemError(
            401, "a bearer token is needed: `Authorization: Bearer TOKEN`", {"WWW-Authenticate": "Bearer"}
        )
    authenticator: Authenticator = request.app.state.parts.authenticator
    limits: RateLimits = request.app.state.limits
    address = request.client.host if request.client else ""
    # Before the token is looked at: whoever guesses must not make others' checks slow, nor learn from their speed.
    if wait_s := limits.exhausted(Budget.REFUSED, address):
        raise ProblemError(429, "too many unknown tokens came from this address", retry_after(wait_s))
    found = await authenticator.identify(token.strip())
    if found is None:
        limits.take(Budget.REFUSED, address)
        raise ProblemError(
            401, "this token is not known, or it has expired", {"WWW-Authenticate": 'Bearer error="invalid_token"'}
        )
    return found


Caller = Annotated[Principal, Depends(principal_of)]


async def admitted(request: Request, caller: Caller) -> Principal:
    """A caller that the fleet of the path is shown to. Raises ProblemError 401 or 403."""
    fleet = request.path_params.get("fleet")
    if fleet is not None and not caller.reaches(fleet):
        raise ProblemError(403, f"{caller.name} has no access to the fleet {fleet!r}")
    return caller


Admitted = Annotated[Principal, Depends(admitted)]


async def reader(request: Request, caller: Admitted) -> Principal:
    """A caller that may read the fleet of the path. Raises ProblemError 401, 403 or 429."""
    return _allowed(request, caller, Role.READER)


async def operator(request: Request, caller: Admitted) -> Principal:
    """A caller that may change the fleet of the path. Raises ProblemError 401, 403 or 429."""
    return _allowed(request, caller, Role.OPERATOR)


def _allowed(request: Request, caller: Principal, needed: Role) -> Principal:
    if caller.role < needed:
        raise ProblemError(403, f"{caller.name} is a {caller.role.name.lower()}; this needs an {needed.name.lower()}")
    limits: RateLimits = request.app.state.limits
    budget = _budget(request, needed)
    if wait_s := limits.take(budget, caller.name):
        text = f"{caller.name} asks more often than {budget.value.per_s:g} times a second; ask again later"
        raise ProblemError(429, text, retry_after(wait_s))
    return caller


def _budget(request: Request, needed: Role) -> Budget:
    if needed is Role.OPERATOR:
        return Budget.COMMAND
    return Budget.RING if request.url.path.endswith(_OF_ROUTERS) else Budget.READ
