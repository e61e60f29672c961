"""What befalls the world, by kind, and what its users want."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulator.world.story import Story


class Trouble:
    def __init__(self, story: Story) -> None:
        self._story = story

    def strike(self) -> None: ...

    def wish(self) -> None: ...

    def heal(self) -> None: ...

    def refused(self, why: str) -> None: ...

    def explains(self, reason: str) -> bool:
        return False

    def was_taken(self, name: str) -> bool:
        return False


Kind = Callable[[Trouble], None]
