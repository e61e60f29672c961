"""What a session raises: the client's own exceptions, by Determined's names."""

from __future__ import annotations

from dethpc.errors import (
    APIException,
    BadRequestException,
    DethpcError,
    ForbiddenException,
    MasterNotFoundException,
    NotFoundException,
    UnauthenticatedException,
)

__all__ = [
    "APIException",
    "BadRequestException",
    "BadResponseException",
    "CorruptCertificateCacheException",
    "CorruptTokenCacheException",
    "DeleteFailedException",
    "EmptyResultException",
    "ForbiddenException",
    "InvalidCredentialsException",
    "MasterNotFoundException",
    "NotFoundException",
    "UnauthenticatedException",
]


class BadResponseException(DethpcError):
    """The master's answer makes no sense."""

    @property
    def message(self) -> str:
        return str(self)


class EmptyResultException(BadResponseException):
    """The master's answer has nothing in it."""


class DeleteFailedException(APIException):
    """The master could not delete it."""

    status_code = 200


class InvalidCredentialsException(UnauthenticatedException):
    """Name or password is wrong."""


class CorruptTokenCacheException(DethpcError):
    """The file of tokens that logins left is damaged."""


class CorruptCertificateCacheException(DethpcError):
    """The file of certificates is damaged."""
