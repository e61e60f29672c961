"""The master's side of the login by munge (``dethpc.client.munge``): the owner's clients get the owner's token."""

from __future__ import annotations

import hmac
import os
import secrets
import threading
import time

from dethpc.client.munge import SECONDS, Munge, Untrusted, answer, question
from dethpc.config.site import Master
from dethpc.errors import Refused, Unauthorized
from dethpc.master.http.passwords import TooManyLogins

_AT_ONCE = 2  # unmunge processes; strangers may ask, too


def munge_of(master: Master) -> Munge | None:
    """What the site wants logins to be proved by; None: the token file. Raises Refused when munge does not work here."""
    if master.munge is None:
        return None
    munge = Munge(master.munge)
    try:
        munge.decode(munge.encode("", os.geteuid()))
    except Untrusted as error:
        raise Refused(
            f"the site configuration says master.auth: munge, and munge does not work here: {error}"
        ) from None
    return munge


class MungeLogin:
    """Any thread may use it. ``key``: the owner's. ``owner``: their user id, by default this process's."""

    def __init__(self, key: str, munge: Munge, owner: int | None = None) -> None:
        self._key, self._munge = key, munge
        self._owner = os.geteuid() if owner is None else owner
        self._secret = secrets.token_bytes(32)
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        self._used: dict[str, float] = {}  # the owner's alone get here
        self._lock = threading.Lock()

    def nonce(self) -> str:
        """It tells when it was made, and that it was made here: so that nothing is kept for strangers who ask."""
        stamp = f"{int(time.time()):x}-{secrets.token_hex(16)}"
        return f"{stamp}-{self._sign(stamp)}"

    def answer(self, credential: str, where: str) -> str:
        """The credential for the client, with the owner's key. ``where``: as the connection that it came by has it.

        Raises Unauthorized, TooManyLogins.
        """
        if not self._places.acquire(blocking=False):  # who waits would keep a thread that answers requests
            raise TooManyLogins("others log in just now", 1.0)
        try:
            vouched = self._munge.decode(credential)
            if vouched.uid != self._owner:
                raise Unauthorized(
                    f"this master is that of user {self._owner}, and munge says that you are {vouched.uid}"
                )
            _, _, rest = vouched.payload.partition("\n")
            mine, _, rest = rest.partition("\n")
            theirs, _, _ = rest.partition("\n")
            if vouched.payload != question(mine, theirs, where) or not self._is_fresh(mine):
                raise Unauthorized("the credential was made for another server, or another login")
            return self._munge.encode(answer(mine, theirs, where) + self._key, vouched.uid)
        except Untrusted as error:
            raise Unauthorized(str(error)) from None
        finally:
            self._places.release()

    def _is_fresh(self, nonce: str) -> bool:
        """Whether it was made here, a moment ago, and is used for the first time."""
        stamp, _, signature = nonce.rpartition("-")
        if not hmac.compare_digest(self._sign(stamp).encode(), signature.encode()):
            return False
        now = time.time()
        if not -1 <= now - int(stamp.partition("-")[0], 16) <= SECONDS:
            return False
        with self._lock:
            self._used = {used: at for used, at in self._used.items() if now - at <= SECONDS}
            first = nonce not in self._used
            self._used[nonce] = now
        return first

    def _sign(self, stamp: str) -> str:
        return hmac.new(self._secret, stamp.encode("utf-8", "replace"), "sha256").hexdigest()
