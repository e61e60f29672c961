"""Environment variables that configure keys, certificates and servers of the object stores' drivers."""

from __future__ import annotations

import contextlib
import os
from typing import Dict, Iterator, Mapping

_PREFIXES = ("AWS_", "AZURE_", "BOTO_", "CLOUDSDK_", "GCLOUD_", "GOOGLE_", "HADOOP_")
_NAMES = frozenset(
    "CURL_CA_BUNDLE REQUESTS_CA_BUNDLE SSL_CERT_DIR SSL_CERT_FILE STORAGE_EMULATOR_HOST "
    "HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy".split()
)


def of_stores(environment: Mapping[str, str]) -> Dict[str, str]:
    """Those of them in an environment."""
    return {name: text for name, text in environment.items() if name in _NAMES or name.startswith(_PREFIXES)}


@contextlib.contextmanager
def given(variables: Mapping[str, str]) -> Iterator[None]:
    """This process has the variables as well, for as long as the block runs."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text
