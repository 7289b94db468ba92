"""Get every part that is missing; one line a part says what came of it. Where `CI` is set, a missing one fails."""

import os
import sys
import time

from tests.e2e.parts.programs import PROGRAMS, CannotGetError, Program


def _line(program: Program) -> tuple[bool, str]:
    if path := program.path():
        return True, f"found {path}"
    started_s = time.monotonic()
    try:
        how = program.get()
    except CannotGetError as why:
        return False, f"skipped: {why}"
    path = program.path()
    took = f"in {time.monotonic() - started_s:.0f} s"
    return (True, f"{how} {path} {took}") if path else (False, f"skipped: {how} {took}, and still not to be found")


def main() -> int:
    complete = True
    for program in PROGRAMS.values():
        had, said = _line(program)
        complete &= had
        print(f"{program.name:24} {said}", flush=True)
    return 1 if not complete and os.environ.get("CI") else 0


if __name__ == "__main__":
    sys.exit(main())
