"""The secret of a run, which is never sent: nodes and workers of an attempt authenticate each other by it.

Both ends of a connection prove that they know it, by HMAC-SHA256 over a fresh random number of each. The same numbers give a key
for that connection alone, with which each side seals all that it sends: a message that was altered, left out, repeated, moved, or
taken from another connection does not open.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from typing import Union

NONCE = 32
"""Bytes of the random number that each side gives."""
MARK = 32
"""Bytes of a proof, and of a seal."""

Bytes = Union[bytes, bytearray]


def nonce() -> bytes:
    return os.urandom(NONCE)


class Secret:
    """What proves that one belongs here. ``use`` says where: proofs for one use are worth nothing in another."""

    def __init__(self, secret: str, use: str) -> None:
        self._key = hmac.new(secret.encode(), f"dethpc {use}".encode(), hashlib.sha256).digest()

    def proof(self, role: str, *transcript: Bytes) -> bytes:
        """That of the side in ``role``, over ``transcript``, which must hold a fresh number of each side's."""
        return self._mac(f"proof {role}", transcript)

    def accepts(self, proof: Bytes, role: str, *transcript: Bytes) -> bool:
        return hmac.compare_digest(bytes(proof), self.proof(role, *transcript))

    def seal(self, chief: bool, *transcript: Bytes) -> Seal:
        """For the connection whose proofs were over ``transcript``. ``chief``: this is the side that was connected to."""
        return Seal(self._mac("seal", transcript), chief)

    def _mac(self, what: str, parts: tuple[Bytes, ...]) -> bytes:
        text = b"".join(struct.pack("!Q", len(word)) + word for word in (what.encode(), *parts))
        return hmac.new(self._key, text, hashlib.sha256).digest()


class Seal:
    """Marks what goes over one connection, by direction and position."""

    def __init__(self, key: bytes, chief: bool) -> None:
        self._key = key
        self._ours, self._theirs = (b"C", b"W") if chief else (b"W", b"C")
        self._sent = self._received = 0

    def mark(self, data: Bytes) -> bytes:
        """Of what this side sends next."""
        self._sent += 1
        return self._hash(self._ours, self._sent, data)

    def fits(self, mark: Bytes, data: Bytes) -> bool:
        """Whether ``data`` is what the other side sent next."""
        self._received += 1
        return hmac.compare_digest(bytes(mark), self._hash(self._theirs, self._received, data))

    def _hash(self, direction: bytes, n: int, data: Bytes) -> bytes:
        digest = hashlib.blake2b(direction + struct.pack("!Q", n), key=self._key, digest_size=MARK)
        digest.update(data)
        return digest.digest()
