"""Access tokens: what a user gives to a script in the place of a password."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Annotated

from fastapi import Query

from dethpc.domain.records import Token, TokenKind, User
from dethpc.errors import NotFound, Refused
from dethpc.master.http.access import Limit, Offset, OrderBy, Owner, SortBy, TheAuth, TheRecords
from dethpc.master.http.models import paged
from dethpc.master.http.router import new_router
from dethpc.master.http.wire.token import MadeToken, NewToken, TokenAnswer, TokenInfo, TokenPatch, Tokens

router = new_router(prefix="/api/v1/tokens", tags=["tokens"])

LIFESPAN = 30 * 24 * 3600.0
"""Seconds for which a token is good when nobody says otherwise."""

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}


@router.get("")
def tokens(
    records: TheRecords,
    who: Owner,
    token_ids: Annotated[list[int] | None, Query(alias="tokenIds")] = None,
    username: str | None = None,
    show_inactive: Annotated[bool, Query(alias="showInactive")] = False,
    sort_by: SortBy = "",
    order_by: OrderBy = "",
    limit: Limit = 0,
    offset: Offset = 0,
) -> Tokens:
    """Access tokens that are good; with ``showInactive``, or by id, those that are revoked or have expired, too."""
    now = time.time()
    owners = None if not username else {user.id for user in records.find(User, username=username)}
    found = [
        token
        for token in records.find(Token, kind=TokenKind.ACCESS)
        if (token.id in token_ids if token_ids else show_inactive or token.good(now))
        and (owners is None or token.user_id in owners)
    ]
    key = _SORTED_BY.get(sort_by.removeprefix("SORT_BY_").lower(), "id")
    found.sort(key=lambda token: (getattr(token, key) is None, getattr(token, key), token.id))
    if order_by == "ORDER_BY_DESC":
        found.reverse()
    page, pagination = paged([TokenInfo.of(token) for token in found], offset, limit)
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
def create(request: NewToken, records: TheRecords, auth: TheAuth, who: Owner) -> MadeToken:
    """Nobody can see the token again: only its digest is kept."""
    if request.user_id is not None:
        records.get(User, request.user_id)
    token, kept = auth.make_token(TokenKind.ACCESS, _lifespan(request.lifespan), request.description or "")
    return MadeToken(token=token, token_id=kept.id)


@router.patch("/{token_id}")
def change(token_id: int, request: TokenPatch, records: TheRecords, who: Owner) -> TokenAnswer:
    """A token that was revoked stays so. Logins and the token file are none of these, although they have numbers among them."""
    if records.get(Token, token_id).kind is not TokenKind.ACCESS:
        raise NotFound(f"access token {token_id} not found")

    def changed(token: Token) -> Token:
        description = token.description if request.description is None else request.description
        return replace(token, description=description, revoked=token.revoked or bool(request.set_revoked))

    return TokenAnswer(token_info=TokenInfo.of(records.change(Token, token_id, to=changed)))


def _lifespan(text: str | None) -> float | None:
    """Seconds; None: for ever. Raises: Refused."""
    if not text:
        return LIFESPAN
    if text == "-1":
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?)([hms])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text or not any(float(n) for n, _ in parts):
        raise Refused(
            f'the lifespan {text!r} is invalid: give hours, such as "48h", or "-1" for a token that never expires'
        )
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
