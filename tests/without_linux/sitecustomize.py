"""Takes away what Python has on Linux and not on a Mac, with this directory on PYTHONPATH.

    PYTHONPATH=tests/without_linux python -m pytest @tests/without_linux/tests.txt

The processes that tests start have it too. What a Mac has and Linux has not cannot be had here:
F_FULLFSYNC is only a number that the file system refuses, as network disks do on a Mac.
"""

import fcntl
import os
import select
import signal
import socket

# The sources: "Availability" in Python's documentation of these modules.
_OF_OS = (
    *("fdatasync", "posix_fallocate", "posix_fadvise", "preadv", "pwritev", "sendfile", "splice"),
    *("copy_file_range", "eventfd", "memfd_create", "pidfd_open", "pipe2", "sched_getaffinity"),
    *("sched_setaffinity", "getrandom", "getxattr", "setxattr", "listxattr", "removexattr"),
    *("O_TMPFILE", "O_PATH", "O_DIRECT", "O_NOATIME", "posix_openpt"),
)
_OF_OTHERS = (
    (select, ("epoll",)),
    (signal, ("sigtimedwait", "sigwaitinfo")),
    (socket, ("MSG_MORE", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT")),
)

for module, names in ((os, _OF_OS), *_OF_OTHERS):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

vars(fcntl)["F_FULLFSYNC"] = 51
