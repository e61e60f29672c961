"""The peer of a connection: a user of this machine, or another machine.

All users of a login node connect from the same addresses. The kernel reports the owner of any socket of this machine
(``man 7 sock_diag``), so the owner of the socket at the other end identifies the user.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from typing import Any

from dethpc.master.http.unix_socket import user_of

_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2  # of linux/netlink.h and linux/sock_diag.h
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_UID_AND_INODE = struct.Struct("=II")
_UID_AT = _HEADER.size + 4 + 48 + 12  # in the answer, behind: states, both addresses, timer and queues


class Peers:
    """Names peers. Not for several threads."""

    def __init__(self) -> None:
        self._sequence = 0
        try:
            self._kernel: socket.socket | None = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG)
        except (OSError, AttributeError):
            self._kernel = None

    def name(self, sock: socket.socket) -> str:
        """ "user 1001" on this machine, else an address (of IPv6 the network, where everybody has as many as they like)."""
        if sock.family == socket.AF_UNIX:
            return user_of(sock)
        try:
            theirs = sock.getpeername()
        except OSError:
            return "gone"
        address = ipaddress.ip_address(theirs[0].partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address):
            if address.ipv4_mapped is None and not address.is_loopback:
                return self._user(sock, theirs) or f"{ipaddress.ip_network((address, 64), strict=False)}"
            address = address.ipv4_mapped or address
        return self._user(sock, theirs) or ("loopback" if address.is_loopback else str(address))

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.close()

    def _user(self, sock: socket.socket, theirs: tuple[Any, ...]) -> str:
        """ "" when the other socket is not of this machine, or the kernel does not say."""
        if self._kernel is None:
            return ""
        self._sequence += 1
        try:
            self._kernel.sendto(_question(sock, theirs, self._sequence), (0, 0))
            while True:
                answer = self._kernel.recv(4096, socket.MSG_DONTWAIT)
                _, kind, _, sequence, _ = _HEADER.unpack_from(answer)
                if sequence == self._sequence:
                    break
        except (OSError, struct.error):
            return ""
        if kind != _BY_FAMILY or len(answer) < _UID_AT + _UID_AND_INODE.size:
            return ""
        uid, inode = _UID_AND_INODE.unpack_from(answer, _UID_AT)
        return f"user {uid}" if inode else "gone"  # a socket that its process has closed is nobody's: its uid is 0


def _question(sock: socket.socket, theirs: tuple[Any, ...], sequence: int) -> bytes:
    """For the socket whose address is ``theirs`` and that is connected to ``sock``."""
    ours = sock.getsockname()
    ports = struct.pack("!HH", theirs[1], ours[1])
    ends = b"".join(socket.inet_pton(sock.family, end[0].partition("%")[0]).ljust(16, b"\0") for end in (theirs, ours))
    any_device_and_cookie = struct.pack("=I", 0) + b"\xff" * 8
    all_states = 0xFFFFFFFF
    body = struct.pack("=BBBBI", sock.family, socket.IPPROTO_TCP, 0, 0, all_states)
    body += ports + ends + any_device_and_cookie
    return _HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, sequence, 0) + body


def own(uid: int | None = None) -> str:
    """The name of this process's user as a peer."""
    return f"user {os.geteuid() if uid is None else uid}"
