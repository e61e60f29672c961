"""Routes of access tokens."""

from __future__ import annotations

import re
import time as clock
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import Depends, Query

from dethpc.domain.records import Token, TokenKind, User
from dethpc.domain.text import names
from dethpc.errors import NotFound, Refused
from dethpc.master.http.access import AnyUser, TheAuth, TheOrder, ThePage, TheRecords
from dethpc.master.http.models import Given, Pagination, Wire, time, time_or_none
from dethpc.master.http.nouns.users import is_theirs, may_change
from dethpc.master.http.router import new_router


class TokenInfo(Wire):
    id: int
    user_id: int
    token_type: str
    created_at: str
    expiry: str | None
    description: str
    revoked: bool

    @classmethod
    def of(cls, token: Token) -> TokenInfo:
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


router = new_router(prefix="/api/v1/tokens", tags=["tokens"])

LIFESPAN = 30 * 24 * 3600.0
"""Seconds for which a token is good when nobody says otherwise."""

LONGEST_LIFESPAN = 100 * 365 * 24 * 3600.0

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}


@dataclass(frozen=True, slots=True)
class TokenQuery:
    token_ids: Annotated[list[int] | None, Query(alias="tokenIds")] = None
    username: str | None = None
    show_inactive: Annotated[bool, Query(alias="showInactive")] = False


@router.get("")
def tokens(
    records: TheRecords, who: AnyUser, sorting: TheOrder, paging: ThePage, query: Annotated[TokenQuery, Depends()]
) -> Tokens:
    """The user's access tokens that are good, an admin's list has everybody's; with ``showInactive``, or by id, those that are
    revoked or have expired, too."""
    now = clock.time()
    owners = {user.id for user in records.find(User, username=query.username)} if query.username else None
    matches = [
        token
        for token in records.find(Token, kind=TokenKind.ACCESS)
        if (token.id in query.token_ids if query.token_ids else query.show_inactive or token.good(now))
        and (owners is None or token.user_id in owners)
        and is_theirs(who, token.user_id)
    ]
    key = _SORTED_BY.get(sorting.sort_by.removeprefix("SORT_BY_").lower(), "id")
    matches.sort(key=lambda token: (getattr(token, key) is None, getattr(token, key), token.id))
    if sorting.descending:
        matches.reverse()
    page, pagination = paging.of([TokenInfo.of(token) for token in matches])
    return Tokens(token_info=page, pagination=pagination)


_SORTED_BY = {
    "user_id": "user_id",
    "expiry": "expires_at",
    "created_at": "created_at",
    "token_type": "kind",
    "revoked": "revoked",
    "description": "description",
}


@router.post("")
def create(request: NewToken, records: TheRecords, auth: TheAuth, who: AnyUser) -> MadeToken:
    """For oneself; an admin can make one for another user. Nobody can see the token again: only its digest is kept."""
    user = records.get(User, request.user_id or who.user_id)
    may_change(who, user.id)
    names.check_fields("token", {"description": request.description or ""})
    token, record = auth.make_token(TokenKind.ACCESS, _lifespan(request.lifespan), request.description or "", user.id)
    return MadeToken(token=token, token_id=record.id)


@router.patch("/{token_id}")
def change(token_id: int, request: TokenPatch, records: TheRecords, who: AnyUser) -> TokenAnswer:
    """A token that was revoked stays so. Logins and the token file are none of these, although they have numbers among them."""
    row = records.get(Token, token_id)
    if row.kind is not TokenKind.ACCESS or not is_theirs(who, row.user_id):
        raise NotFound(f"access token {token_id} not found")

    def changed(token: Token) -> Token:
        description = token.description if request.description is None else request.description
        names.check_fields("token", {"description": description}, token)
        return replace(token, description=description, revoked=token.revoked or bool(request.set_revoked))

    return TokenAnswer(token_info=TokenInfo.of(records.change(Token, token_id, to=changed)))


def _lifespan(text: str | None) -> float | None:
    """Seconds; None: for ever. Raises: Refused."""
    if not text:
        return LIFESPAN
    if text == "-1":
        return None
    parts = re.findall(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)([hms])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text or not any(float(n) for n, _ in parts):
        raise Refused(
            f'the lifespan {text!r} is invalid: give hours, such as "48h", or "-1" for a token that never expires'
        )
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > LONGEST_LIFESPAN:
        raise Refused(
            f'a token is good for {LONGEST_LIFESPAN / 3600:.0f}h at most, or for ever ("-1"), not {text[:40]}'
        )
    return seconds
