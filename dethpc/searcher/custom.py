"""A search that the user's own program makes, over the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dethpc.config.sections import searcher as config
from dethpc.config.sections.hyperparameters import Space
from dethpc.config.sections.section import LARGEST
from dethpc.searcher.base import Action, Continue, Create, Exit, Note, Searcher, Stop, Wait

OPERATIONS = ("createTrial", "trialOperation", "closeTrial", "setSearcherProgress", "shutDown")


class CustomSearch(Searcher):
    """Events out, operations in: the user's search method runs elsewhere, and may stop and start again.

    ``events`` is a queue with numbers. The client reads from the last event that it has dealt with and answers each with
    operations; what it has answered is acknowledged in the same transaction, so nothing is dealt with twice. Event and
    operation have Determined's wire form (releases before 0.38). Trials are known by the request id that the client chose.

    The operations of a trial are a queue: each length to validate after counts once those before it are reached, and a close
    once all of them are. A trial whose queue is empty waits.
    """

    def __init__(self, section: config.Custom, space: Space, seed: int) -> None:
        super().__init__(section, space, seed)
        self._request_ids: list[str] = []  # by trial index
        self._index: dict[str, int] = {}
        self._lengths: dict[int, list[int]] = {}  # by trial index: lengths to validate after that it has not reached
        self._closing: set[int] = set()  # trials that are closed once their lengths are reached
        self._gone: set[int] = set()  # trials that have ended
        self._answered = 0.0
        self._events: list[dict[str, Any]] = [{"initialOperations": {"placeholder": 1}}]
        self._acknowledged = 0  # events dealt with: numbers 1 to this one
        self._shut = False
        self.abandoned: Literal["", "cancel", "failure"] = ""  # as what the search method ends the experiment at once

    # --- what the API calls

    def events(self) -> list[dict[str, Any]]:
        """Events not yet dealt with, oldest first, each with its ``id``."""
        after = self._acknowledged
        return [{"id": after + 1 + i, **event} for i, event in enumerate(self._events[after:])]

    def operate(self, operations: Iterable[Mapping[str, Any]], event_id: int) -> list[Action]:
        """What the client wants in answer to all events up to ``event_id``.

        Raises ValueError for an operation that is not understood or names an unknown trial. Operations in answer to an event
        that was answered before are a repetition and change nothing.
        """
        if event_id <= self._acknowledged:
            return []
        if event_id > len(self._events):
            raise ValueError(f"no event {event_id}; the last one is {len(self._events)}")
        answer = _Answer([Note(0, "acknowledged", {"event": event_id})])
        for operation in operations:
            ((kind, body),) = operation.items() if len(operation) == 1 else [("", operation)]
            if kind == "createTrial":
                self._create_trial(body, answer)
            elif kind == "trialOperation":
                after = body["validateAfter"]
                self._validate_after(self._find(str(after["requestId"]), answer), _length(after["length"]), answer)
            elif kind == "closeTrial":
                index = self._find(str(body["requestId"]), answer)
                answer.closing.add(index)
                answer.actions.append(Note(index, "close", {}))
            elif kind == "setSearcherProgress":
                answer.actions.append(Note(0, "progress", {"progress": float(body.get("progress") or 0.0)}))
            elif kind == "shutDown":
                answer.actions.append(Note(0, "shut_down", dict(body or {})))
            else:
                raise ValueError(
                    f"an operation is one of {', '.join(OPERATIONS)}, not {', '.join(map(str, operation))}"
                )
        for index, lengths in answer.lengths.items():
            answer.actions.append(Continue(index, lengths[-1], through=tuple(lengths[:-1])))
        return answer.actions

    def settled(self) -> list[Action]:
        """What follows once the actions of an answer were committed: trials that have nothing left to reach are closed."""
        return [self._close(index) for index in sorted(self._closing - self._gone) if not self._lengths[index]]

    def _close(self, index: int) -> Stop:
        return Stop(index, "closed by the search method")

    def _create_trial(self, body: Mapping[str, Any], answer: _Answer) -> None:
        index = self.created_count + len(answer.created)
        if index >= config.MOST_TRIALS:
            raise ValueError(f"a search has at most {config.MOST_TRIALS:,} trials")
        hparams, request = body.get("hyperparams"), str(body["requestId"])
        if not isinstance(hparams, Mapping):
            raise ValueError("createTrial: hyperparams is a mapping")
        if request in self._index or request in answer.created:
            raise ValueError(f"createTrial: another trial has the request id {request}")
        create = Create(index, dict(hparams), {"request_id": request, "lengths": [], "waits": True})
        answer.created[request] = create
        answer.actions += [create, Note(index, "event", {"trialCreated": {"requestId": request}})]

    def _validate_after(self, index: int, length: int, answer: _Answer) -> None:
        if index in self._gone:
            return  # it ended while the search method made up its mind, which has yet to read of it
        if index in self._closing or index in answer.closing:
            raise ValueError("validateAfter: the trial was closed before")
        create = next((create for create in answer.created.values() if create.index == index), None)
        if create is not None:
            create.search.update(lengths=[*create.search["lengths"], length], waits=False)
            return
        answer.lengths.setdefault(index, []).append(length)
        answer.actions.append(Note(index, "length", {"length": length}))

    def _find(self, request: str, answer: _Answer) -> int:
        if request in answer.created:
            return answer.created[request].index
        try:
            return self._index[request]
        except KeyError:
            raise ValueError(f"no trial has the request id {request}") from None

    # --- decide

    def start(self) -> list[Action]:
        return []

    def validated(self, index: int, length: float, metric: float) -> list[Action]:
        reached = [target for target in self._lengths[index] if target <= length]
        actions: list[Action] = []
        for target in reached:
            event = {
                "requestId": self._request_ids[index],
                "metric": metric if metric == metric else "NaN",
                "validateAfterLength": str(target),
            }
            actions.append(Note(index, "event", {"validationCompleted": event}))
        if reached and len(reached) == len(self._lengths[index]):
            closing = index in self._closing
            actions.append(self._close(index) if closing else Wait(index, "waits for the search method"))
        return actions

    def exited(self, index: int, how: Exit) -> list[Action]:
        request = self._request_ids[index]
        actions: list[Action] = []
        if how in (Exit.ERRORED, Exit.INVALID_HP, Exit.CANCELED):
            reason = {
                Exit.ERRORED: "EXITED_REASON_UNSPECIFIED",
                Exit.INVALID_HP: "EXITED_REASON_INVALID_HP",
                Exit.CANCELED: "EXITED_REASON_USER_REQUESTED_STOP",
            }[how]
            actions.append(Note(index, "event", {"trialExitedEarly": {"requestId": request, "exitedReason": reason}}))
        return [*actions, Note(index, "event", {"trialClosed": {"requestId": request}})]

    @property
    def over(self) -> bool:
        return self._shut

    @property
    def total(self) -> int:
        return self.created_count

    @property
    def progress(self) -> float:
        return self._answered

    # --- remember

    def created(self, index: int, hparams: Mapping[str, Any], search: Mapping[str, Any]) -> None:
        super().created(index, hparams, search)
        request = str(search["request_id"])
        self._request_ids.append(request)
        self._index[request] = index
        self._lengths[index] = [int(length) for length in search.get("lengths", [])]

    def noted(self, index: int, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "event":
            self._events.append(dict(data))
            if completed := data.get("validationCompleted"):
                reached = float(completed["validateAfterLength"])
                self._lengths[index] = [length for length in self._lengths.get(index, ()) if length > reached]
        elif kind == "acknowledged":
            self._acknowledged = int(data["event"])
        elif kind == "length":
            self._lengths.setdefault(index, []).append(int(data["length"]))
        elif kind == "close":
            self._closing.add(index)
        elif kind == "progress":
            self._answered = min(1.0, max(0.0, float(data["progress"])))
        elif kind == "shut_down":
            self._shut = True
            self.abandoned = "failure" if data.get("failure") else "cancel" if data.get("cancel") else ""

    def closed(self, index: int, how: Exit, best: float | None = None) -> None:
        super().closed(index, how, best)
        self._gone.add(index)


@dataclass
class _Answer:
    """What the operations of one answer come to."""

    actions: list[Action]
    created: dict[str, Create] = field(default_factory=dict)  # by request id
    lengths: dict[int, list[int]] = field(default_factory=dict)  # of trials that were there before, by index
    closing: set[int] = field(default_factory=set)


def _length(value: Any) -> int:
    length = float(value)
    if not 0 <= length <= LARGEST or length != int(length):
        raise ValueError(f"validateAfter: a length is a whole number from 0 to 2**63, not {value}")
    return int(value) if isinstance(value, (int, str)) and str(value).isdigit() else int(length)
