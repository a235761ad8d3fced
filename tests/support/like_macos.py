"""
Make this process look like one on macOS to our code: what only Linux has is gone.

Libraries are loaded first, because they rightly choose what Linux has. This is no macOS: it shows
that our code asks for nothing else, and that the other way works.
"""

import contextlib
import importlib
import os
import pkgutil
import platform
import select
import selectors
import signal
import socket
import sys
from collections.abc import Iterator

OURS = ("dedup", "dovecote", "outbox", "relay", "spark_jobs")
# Sources of our own in Python that Spark, Django and Alembic load by themselves.
_OTHERS = ("outbox.django", "outbox.alembic")

LINUX = {
    os: (
        *("pipe2", "pidfd_open", "memfd_create", "eventfd", "eventfd_read", "eventfd_write"),
        *("copy_file_range", "splice", "posix_fadvise", "posix_fallocate", "getrandom"),
        *("sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "sched_getscheduler"),
        *("getxattr", "setxattr", "listxattr", "removexattr", "setns", "unshare", "getresuid"),
        *("setresuid", "fdatasync", "preadv2", "O_TMPFILE", "O_PATH", "O_DIRECT", "O_NOATIME"),
        *("O_LARGEFILE", "CLONE_NEWNS", "waitid", "ppoll", "timerfd_create"),
    ),
    socket: (
        *("SOCK_CLOEXEC", "SOCK_NONBLOCK", "TCP_USER_TIMEOUT", "TCP_KEEPIDLE", "TCP_QUICKACK"),
        *("TCP_CORK", "TCP_DEFER_ACCEPT", "TCP_LINGER2", "SO_PEERCRED", "SO_BINDTODEVICE"),
        *("SO_MARK", "SO_PASSCRED", "SO_INCOMING_CPU", "AF_NETLINK", "AF_PACKET", "AF_VSOCK"),
        *("AF_ALG", "MSG_NOSIGNAL", "MSG_CMSG_CLOEXEC", "MSG_ERRQUEUE", "MSG_MORE"),
    ),
    signal: (
        *("pidfd_send_signal", "sigtimedwait", "sigwaitinfo", "SIGRTMIN", "SIGRTMAX", "SIGPWR"),
        *("SIGSTKFLT", "SIGPOLL", "SIGCLD"),
    ),
    # The selectors of libraries that were loaded before name EPOLLIN and EPOLLOUT at each call.
    select: ("epoll", "EPOLL_CLOEXEC", "PIPE_BUF"),
}
"""Names that macOS's Python does not have, by module."""


def modules() -> Iterator[str]:
    """Yield the names of our modules that can be imported by themselves."""
    for package in OURS:
        yield package
        found = importlib.import_module(package)
        for each in pkgutil.walk_packages(found.__path__, f"{package}.", onerror=lambda _: None):
            if not each.name.startswith(_OTHERS) and not each.name.endswith("__main__"):
                yield each.name


SITE = """\
import asyncio, subprocess
import confluent_kafka.admin, psutil, psycopg
from tests.support.like_macos import hide
hide()
"""
"""A `sitecustomize.py` that makes each Python with it look like one on macOS."""


def become() -> None:
    """Load all libraries, forget our modules, and `hide`."""
    for name in list(modules()):
        with contextlib.suppress(ImportError):  # an extra that is not installed
            importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    hide()


def hide() -> None:
    """
    Hide what only Linux has.

    A look at `/proc` or `/dev/shm` from our code fails from now on, as it would on macOS.
    """
    for module, names in LINUX.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    # asyncio would take epoll, which is gone.
    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc, assignment]
    sys.platform = "darwin"
    platform.machine = lambda: "arm64"
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event not in {"open", "os.listdir", "os.scandir"} or not arguments:
        return
    if str(arguments[0]).startswith(("/proc", "/dev/shm", "/sys")) and _is_ours():  # noqa: S108  # no file is made there
        raise FileNotFoundError(2, "No such file or directory", str(arguments[0]))


def _is_ours() -> bool:
    """Return whether our code asked, rather than a library that knows its system."""
    frame = sys._getframe(2)
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in sys.stdlib_module_names:
            return package in OURS
        frame = frame.f_back  # type: ignore[assignment]
    return False
