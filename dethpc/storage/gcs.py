"""Google Cloud Storage: ``checkpoint_storage.type: gcs``, by gcsfs."""

from __future__ import annotations

import errno
import os
from typing import Any, Callable, Mapping, TypeVar

from dethpc.storage.driver import Driver

T = TypeVar("T")


def driver(section: Mapping[str, Any]) -> Driver:
    """With Google's application default credentials: ``GOOGLE_APPLICATION_CREDENTIALS``, gcloud's, or the machine's."""
    prefix = str(section.get("prefix") or "").strip("/")
    root = f"{section['bucket']}/{prefix}".rstrip("/")
    return GCSDriver(f"gs://{root}", root, {"endpoint_url": os.environ.get("STORAGE_EMULATOR_HOST")})


class GCSDriver(Driver):
    protocol, module, extra = "gcs", "gcsfs", "gcs"

    def again(self, call: Callable[[], T], patience: float) -> T:
        def call_with_errno() -> T:
            try:
                return call()
            except OSError as error:
                if str(error).startswith("Forbidden:"):  # gcsfs keeps no status of it, and says why on further lines
                    raise PermissionError(errno.EACCES, " ".join(str(error).split())) from error
                raise

        return super().again(call_with_errno, patience)

    def _file_system(self) -> Any:
        """Not the one that fsspec takes: that asks another service for each bucket's type first."""
        from gcsfs.core import GCSFileSystem

        fs = GCSFileSystem(requests_timeout=self.timeouts[1], use_listings_cache=False, **self._options)
        once = getattr(type(fs)._request, "__wrapped__", None)
        if once is not None:
            fs._request = once.__get__(fs)  # trying again is done here, and within the bound that is asked for
        return fs
