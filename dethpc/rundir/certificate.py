"""SHA-256 fingerprint of a certificate, as ``master.json`` has it and clients compare it."""

from __future__ import annotations

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def sha256(pem: str) -> str:
    """Of the first certificate in ``pem``, in hexadecimal digits. Raises ValueError when there is none."""
    import base64
    import hashlib

    content, end, _ = pem.partition(_BEGIN)[2].partition(_END)
    if not end:
        raise ValueError("it holds no certificate in PEM")
    return hashlib.sha256(base64.b64decode(content)).hexdigest()
