"""Compile once, keep the machine code on disk, wherever the package is installed.

numba writes its cache beside the source, which fails in a read-only install, and it does not notice that a function
*called* from another file has changed. Both are cured here: the cache lies in the user's cache folder (or the temporary
one where that cannot be written), in a sub-folder named by a digest of the engine's sources and of the caller's folder.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

_NUMBA: Any = numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """`numba.njit(cache=True)` with a cache that is always writable and never stale across files."""
    return _compile(function)


def internal(function: F) -> F:
    """`compiled` for what only compiled code calls: no wrapper for Python, which halves the compile time."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _compile(function: F, **options: bool) -> F:
    before = _NUMBA.config.CACHE_DIR
    _NUMBA.config.CACHE_DIR = str(_cache_root() / _digest(Path(function.__code__.co_filename).parent))
    try:
        return cast(F, _NUMBA.njit(cache=True, **options)(function))
    finally:
        _NUMBA.config.CACHE_DIR = before


@cache
def _digest(folder: Path) -> str:
    sources = {*Path(__file__).parent.glob("*.py"), *folder.glob("*.py")}
    joined = b"".join(path.read_bytes() for path in sorted(sources))
    return hashlib.sha256(numba.__version__.encode() + joined).hexdigest()[:16]


@cache
def _cache_root() -> Path:
    wanted = [Path(named)] if (named := os.environ.get("NUMBA_CACHE_DIR")) else []
    wanted.append(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lora-autoscaler" / "compiled")
    for root in wanted:
        try:
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=root):
                return root
        except OSError:
            continue
    return Path(tempfile.gettempdir()) / f"lora-autoscaler-compiled-{os.getuid()}"
