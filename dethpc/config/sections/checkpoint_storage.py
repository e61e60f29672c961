"""The ``checkpoint_storage`` section: one model per kind of storage, told apart by ``type``."""

from __future__ import annotations

import posixpath
from typing import Annotated, Any, Literal, Optional, Union

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from dethpc.config.sections.section import STORED, Section, Whole, absolute, mistaken, wrong
from dethpc.domain.secrets import without_user

Count = Annotated[Whole, Field(ge=0)]


def _inside(prefix: str) -> str:
    if ".." in prefix.split("/"):
        raise wrong("a prefix without '..'")
    return prefix


def _without_user(address: str, info: ValidationInfo) -> str:
    if "@" in address and info.context is not STORED:
        allowed = "an address without user and password: keys go to access_key and secret_key"
        raise wrong(allowed, value=without_user(address))
    return address


Prefix = Annotated[str, AfterValidator(_inside)]
Endpoint = Annotated[str, AfterValidator(_without_user)]
AbsolutePath = Annotated[str, AfterValidator(absolute)]


class _Common(Section):
    """How many checkpoints are kept when the experiment is over."""

    save_experiment_best: Count = 0
    save_trial_best: Count = 1
    save_trial_latest: Count = 1


class SharedFS(_Common):
    """A directory on the file system that all nodes share: ``host_path``, or ``storage_path`` below it. Checkpoints that are not
    there are read from the directories ``read_from``, in which nothing is written or deleted."""

    omitted = frozenset({"read_from"})

    type: Literal["shared_fs"]
    host_path: AbsolutePath
    storage_path: Optional[str] = None
    container_path: Optional[str] = None
    checkpoint_path: Optional[str] = None
    tensorboard_path: Optional[str] = None
    propagation: str = "rprivate"
    read_from: Optional[list[AbsolutePath]] = None

    @model_validator(mode="after")
    def _below_host_path(self) -> SharedFS:
        if self.storage_path is not None:
            base = posixpath.normpath(self.host_path)
            if posixpath.commonpath([base, posixpath.normpath(posixpath.join(base, self.storage_path))]) != base:
                raise wrong(
                    "a relative path, or one below host_path", field="storage_path", value=repr(self.storage_path)
                )
        return self


class Directory(_Common):
    """A directory that is at the same path wherever a trial runs."""

    type: Literal["directory"]
    container_path: AbsolutePath


class S3(_Common):
    type: Literal["s3"]
    bucket: str = Field(min_length=1)
    access_key: Optional[str] = None
    secret_key: Optional[str] = None
    endpoint_url: Optional[Endpoint] = None
    prefix: Optional[Prefix] = None
    path_style: Optional[bool] = (
        None  # http://host/bucket/... and not http://bucket.host/...; None: as the endpoint suggests
    )


class GCS(_Common):
    type: Literal["gcs"]
    bucket: str = Field(min_length=1)
    prefix: Optional[Prefix] = None


class Azure(_Common):
    type: Literal["azure"]
    container: str = Field(min_length=1)
    connection_string: Optional[str] = None
    account_url: Optional[str] = None
    credential: Optional[str] = None

    @model_validator(mode="after")
    def _one_way_in(self) -> Azure:
        if (self.connection_string is None) == (self.account_url is None):
            which = "neither" if self.account_url is None else "both"
            raise mistaken(f"set either connection_string or account_url, not {which}", field="connection_string")
        if self.connection_string is not None and self.credential is not None:
            raise mistaken("goes with account_url, not with connection_string", field="credential")
        return self


class HDFS(_Common):
    type: Literal["hdfs"]
    hdfs_url: str = Field(min_length=1)
    hdfs_path: AbsolutePath
    user: Optional[str] = None


CheckpointStorage = Annotated[Union[SharedFS, Directory, S3, GCS, Azure, HDFS], Field(discriminator="type")]


def common_fields(storage: dict[str, Any]) -> dict[str, Any]:
    """The part of a section that makes sense whatever its type."""
    return {key: value for key, value in storage.items() if key in _Common.model_fields}
