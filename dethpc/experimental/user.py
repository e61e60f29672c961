"""Users of a master."""

from __future__ import annotations

from typing import Any, Dict, Optional

from dethpc.client.session import Session


class User:
    """A user. Its attributes are as of when it was fetched; ``reload`` fetches it again."""

    def __init__(self, user_id: int, session: Session) -> None:
        self.user_id = user_id
        self._session = session
        self.username: Optional[str] = None
        self.admin: Optional[bool] = None
        self.active: Optional[bool] = None
        self.display_name: Optional[str] = None

    @classmethod
    def _from_wire(cls, session: Session, wire: Dict[str, Any]) -> User:
        user = cls(wire["id"], session)
        user._take(wire)
        return user

    def _take(self, wire: Dict[str, Any]) -> None:
        self.username = wire.get("username")
        self.admin = wire.get("admin")
        self.active = wire.get("active", True)
        self.display_name = wire.get("displayName")

    def reload(self) -> None:
        self._take(self._session.get(f"/api/v1/users/{self.user_id}")["user"])

    def _change(self, **changes: Any) -> None:
        """Raises Forbidden for another user than oneself, unless one is an admin."""
        self._take(self._session.patch(f"/api/v1/users/{self.user_id}", changes)["user"])

    def change_password(self, new_password: str) -> None:
        self._change(password=new_password, isHashed=False)

    def change_display_name(self, display_name: str) -> None:
        self._change(displayName=display_name)

    def rename(self, new_username: str) -> None:
        self._change(username=new_username)

    def activate(self) -> None:
        self._change(active=True)

    def deactivate(self) -> None:
        """Their logins and access tokens end."""
        self._change(active=False)
