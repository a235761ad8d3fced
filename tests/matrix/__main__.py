"""
Run the matrix, print its table, and note what ran: `make matrix`.

`--quick` runs the corners of CI, and notes nothing. `--page` only writes the page from the notes.
"""

import argparse
import sys

from tests.matrix import corners, page
from tests.matrix.running import Ran, run


def main() -> int:
    """Return the exit status: 1, if a test failed or no corner could run."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("names", nargs="*", help="corners to run; by default all")
    parser.add_argument("--quick", action="store_true", help="the corners of CI")
    parser.add_argument("--short", action="store_true", help="a few tests in each corner")
    parser.add_argument("--page", action="store_true", help="write docs/compatibility.md, no more")
    parser.add_argument("--workers", type=int, default=2, help="files at a time")
    given = parser.parse_args()
    if given.page:
        page.write()
        return 0
    known = {each.name: each for each in (corners.QUICK if given.quick else corners.CORNERS)}
    if unknown := set(given.names) - set(known):
        parser.error(f"no corner {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    ran: list[Ran] = []
    for corner in known.values():
        if not given.names or corner.name in given.names:
            ran.append(run(corner, given.workers, short=given.short or given.quick))
            sys.stdout.write(f"{page.table(ran)}\n")
            sys.stdout.flush()
            if not given.quick:
                page.note(ran)
    for each in ran:
        sys.stdout.writelines(f"FAILED {each.corner}: {name}\n" for name in each.failures)
    return 0 if all(each.is_good for each in ran) and any(each.passed for each in ran) else 1


if __name__ == "__main__":
    sys.exit(main())
