"""
Run a command that dies with the process that asked for it.

`python -m dovecote.demo.tether PID COMMAND …`

It replaces itself by the command, so that its process id is the command's own.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent if the system can do that, then become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606  # no shell is intended


if __name__ == "__main__":
    main()
