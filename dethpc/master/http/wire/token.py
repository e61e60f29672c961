"""Access tokens on the wire."""

from __future__ import annotations

from dethpc.domain import records
from dethpc.master.http.models import Given, Pagination, Wire, time, time_or_none


class TokenInfo(Wire):
    id: int
    user_id: int
    token_type: str
    created_at: str
    expiry: str | None
    description: str
    revoked: bool

    @classmethod
    def of(cls, token: records.Token) -> TokenInfo:
        return cls(
            id=token.id,
            user_id=token.user_id,
            token_type=f"TOKEN_TYPE_{token.kind.value}",
            created_at=time(token.created_at),
            expiry=time_or_none(token.expires_at),
            description=token.description,
            revoked=token.revoked,
        )


class Tokens(Wire):
    token_info: list[TokenInfo]
    pagination: Pagination


class TokenAnswer(Wire):
    token_info: TokenInfo


class NewToken(Wire):
    """``lifespan``: such as "48h"; "-1" for ever, none: 30 days."""

    user_id: int | None = None
    lifespan: str | None = None
    description: Given | None = None


class MadeToken(Wire):
    """The only answer that holds the token itself."""

    token: str
    token_id: int


class TokenPatch(Wire):
    description: Given | None = None
    set_revoked: bool | None = None
