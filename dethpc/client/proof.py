"""How a server shows that it is the owner's master before it is given the owner's token.

Both sides have the token. The client sends a random number and gets back its HMAC under the token, together with the address of
this very connection: a stranger who took the port of a master that died cannot compute it, and cannot fetch it from the real
master either, which only ever signs its own addresses. Loopback is an address on every machine, so there the machine is named, too.
"""

from __future__ import annotations

import re
from typing import Tuple

PATH = "/api/v1/auth/proof"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def proof(token: str, nonce: str, address: Tuple[str, int]) -> str:
    """The answer to ``nonce`` on a connection to ``address``, the server's IP address and port. Raises ValueError.

    Client and server each work it out where they are.
    """
    import hashlib
    import hmac

    if not re.fullmatch(r"[0-9a-f]{64}", nonce):
        raise ValueError("a nonce is 64 hexadecimal digits")
    host, port = address[0].replace("::ffff:", ""), address[1]
    machine = _boot_id() if host == "::1" or host.startswith("127.") else ""
    message = f"dethpc master\n{nonce}\n{host}\n{port}\n{machine}"
    return hmac.new(token.encode(), message.encode(), hashlib.sha256).hexdigest()


def _boot_id() -> str:
    """What tells this machine from all others; "" where the kernel has no such thing."""
    try:
        with open(BOOT_ID) as file:
            return file.read().strip()
    except OSError:
        return ""


def same(one: str, other: object) -> bool:
    """Whether two proofs are equal, in the same time for all that are not."""
    import hmac

    return isinstance(other, str) and hmac.compare_digest(one.encode(), other.encode())
