"""Which certificate a master may show."""

from __future__ import annotations

import os
from typing import Optional, Union

from dethpc.rundir.scratch import make_until_exit


class Cert:
    """``cert_pem``: certificates to trust beside the system's, as text. ``noverify``: trust any. ``name``: the name that the
    master's is for, where that is not its host."""

    def __init__(self, cert_pem: Optional[str] = None, noverify: bool = False, name: Optional[str] = None) -> None:
        if cert_pem is not None and noverify:
            raise AssertionError("noverify trusts any certificate: give cert_pem or noverify, not both")
        self.name = name or None
        self.bundle: Union[None, str, bool] = False if noverify else None
        if cert_pem is not None:
            file = make_until_exit("certificate") / "master.pem"
            file.write_text(cert_pem)
            self.bundle = str(file)

    @property
    def _file(self) -> Optional[str]:
        """As the client's session takes it."""
        return self.bundle if isinstance(self.bundle, str) else "noverify" if self.bundle is False else None


def default_load(
    master_url: str,
    explicit_path: Optional[str] = None,
    explicit_cert_name: Optional[str] = None,
    explicit_noverify: bool = False,
) -> Cert:
    """The certificate of the arguments, else of ``DET_MASTER_CERT_FILE`` and ``DET_MASTER_CERT_NAME``. Raises OSError.

    That of your own master is known from its home, whatever is said here.
    """
    if explicit_path or explicit_cert_name or explicit_noverify:
        return Cert(explicit_path and _text(explicit_path), explicit_noverify, explicit_cert_name)
    path = os.environ.get("DET_MASTER_CERT_FILE") or None
    noverify = path is not None and path.lower() == "noverify"
    return Cert(None if path is None or noverify else _text(path), noverify, os.environ.get("DET_MASTER_CERT_NAME"))


def _text(path: str) -> str:
    with open(path) as file:
        return file.read()
