"""A seccomp filter for the sandbox: what namespaces do not separate, and what counts towards no limit.

Sockets of other families than those of the sandbox's own network reach past it: `AF_VSOCK`, for one, the host of a
virtual machine. Key rings are inherited. `io_uring` opens sockets without a system call that a filter sees."""

from __future__ import annotations

import errno
import platform
import struct
from typing import Final

from msgspec import Struct

FAMILIES: Final = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
REFUSED: Final = (
    "add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd",
    "io_uring_setup", "io_uring_enter", "io_uring_register",
)  # fmt: skip
UNCOUNTED: Final = ("memfd_create", "memfd_secret", "shmget", "msgget")  # memory that only a cgroup counts
X32: Final = 0x40000000  # system calls of another ABI of x86-64 have numbers from here on

LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
IF_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
IF_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
RETURN: Final = 0x06  # BPF_RET | BPF_K
ALLOW: Final = 0x7FFF0000
FAIL_WITH: Final = 0x00050000  # SECCOMP_RET_ERRNO
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # where they are in struct seccomp_data, little-endian


class Machine(Struct, frozen=True):
    """What an architecture calls itself, and the numbers of its system calls."""

    audit_arch: int
    numbers: dict[str, int]


MACHINES: Final = {
    "x86_64": Machine(0xC000003E, {
        "socket": 41, "add_key": 248, "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298,
        "userfaultfd": 323, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
        "memfd_create": 319, "memfd_secret": 447, "shmget": 29, "msgget": 68,
    }),
    "aarch64": Machine(0xC00000B7, {
        "socket": 198, "add_key": 217, "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241,
        "userfaultfd": 282, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
        "memfd_create": 279, "memfd_secret": 447, "shmget": 194, "msgget": 186,
    }),
}  # fmt: skip


def filter_of(*, is_counted: bool, machine: str = "") -> bytes:
    """The filter as bubblewrap takes it; empty for an architecture that is not known here. `is_counted` says that a
    cgroup counts the memory of a run."""
    found = MACHINES.get(machine or platform.machine())
    if found is None:
        return b""
    refused = REFUSED if is_counted else REFUSED + UNCOUNTED
    rules = [
        (LOAD, 0, 0, ARCHITECTURE),
        (IF_EQUAL, 1, 0, found.audit_arch),  # 32-bit programs would have other numbers
        (RETURN, 0, 0, FAIL_WITH | errno.ENOSYS),
        (LOAD, 0, 0, NUMBER),
        (IF_AT_LEAST, 0, 1, X32),
        (RETURN, 0, 0, FAIL_WITH | errno.ENOSYS),
    ]
    for name in refused:
        rules += [(IF_EQUAL, 0, 1, found.numbers[name]), (RETURN, 0, 0, FAIL_WITH | errno.EPERM)]
    rules += [(IF_EQUAL, 1, 0, found.numbers["socket"]), (RETURN, 0, 0, ALLOW), (LOAD, 0, 0, FIRST_ARGUMENT)]
    for family in FAMILIES:
        rules += [(IF_EQUAL, 0, 1, family), (RETURN, 0, 0, ALLOW)]
    rules.append((RETURN, 0, 0, FAIL_WITH | errno.EAFNOSUPPORT))
    return b"".join(struct.pack("<HBBI", *rule) for rule in rules)
