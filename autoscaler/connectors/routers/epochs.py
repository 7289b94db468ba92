"""One rule for every place: a higher epoch is published, the same one again is no news, a lower one is refused."""

from __future__ import annotations

from autoscaler.domain.decisions import Applied, Failed, Outcome


def judged(last: tuple[int, bytes] | None, epoch: int, body: bytes) -> Outcome | None:
    """What becomes of a snapshot where `last` is published already; None: publish it."""
    if last is None or epoch > last[0]:
        return None
    if epoch == last[0] and body == last[1]:
        return Applied("published already")
    return Failed(f"epoch {epoch} is refused: epoch {last[0]} is published, and an epoch never goes back")
