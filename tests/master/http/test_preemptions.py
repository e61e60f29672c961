"""Long-polls for preemption, without HTTP."""

from __future__ import annotations

import asyncio

from dethpc.domain.ids import AttemptId
from dethpc.master.http.preemptions import Preemptions
from tests.waiting import LONG_ENOUGH

ATTEMPT = AttemptId("1.1.1", 0)


def test_who_waits_is_answered_when_the_master_ends_and_nobody_waits_after_that() -> None:
    async def poll() -> list[bool]:
        preemptions = Preemptions(lambda attempt: None)
        waiting = [asyncio.create_task(preemptions.wait(ATTEMPT, 3600)) for _ in range(3)]
        while len(preemptions._waiting.get(ATTEMPT, [])) < 3:
            await asyncio.sleep(0)
        preemptions.end()
        return [*await asyncio.gather(*waiting), await preemptions.wait(ATTEMPT, 3600)]

    assert asyncio.run(asyncio.wait_for(poll(), LONG_ENOUGH)) == [False] * 4
