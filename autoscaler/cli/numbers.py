"""Numbers of the command line, refused at the door with what is allowed."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def number(*, above: float = -math.inf, least: float = -math.inf) -> Callable[[str], float]:
    """A type for argparse: a finite number, above `above` and at least `least`."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value) and value > above and value >= least:
            return value
        bound = f" above {above:g}" if above > -math.inf else f", at least {least:g}" if least > -math.inf else ""
        raise argparse.ArgumentTypeError(f"{text!r} must be a number{bound}")

    return read


def whole(least: int, most: int) -> Callable[[str], int]:
    """A type for argparse: a whole number from `least` to `most`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if least <= value <= most:
            return value
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from {least} to {most}")

    return read


POSITIVE = number(above=0)
NOT_NEGATIVE = number(least=0)
SEED = whole(0, 2**32 - 1)
"""What numpy takes."""
