"""A search that the user's own program makes, over the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dethpc.config import searcher as config
from dethpc.config.hyperparameters import Space
from dethpc.config.section import LARGEST
from dethpc.searcher.base import Action, Continue, Create, Exit, Note, Searcher, Stop, Wait

OPERATIONS = ("createTrial", "trialOperation", "closeTrial", "setSearcherProgress", "shutDown")


class CustomSearch(Searcher):
    """Events out, operations in: the user's search method runs elsewhere, and may stop and start again.

    ``events`` is a queue with numbers. The client reads from the last event that it has dealt with and answers each with
    operations; what it has answered is acknowledged in the same transaction, so nothing is dealt with twice. Event and
    operation have Determined's wire form (releases before 0.38). Trials are known by the request id that the client chose.

    A trial trains while it has a length to validate after, and waits otherwise.
    """

    def __init__(self, section: config.Custom, space: Space, seed: int) -> None:
        super().__init__(section, space, seed)
        self._request_ids: list[str] = []  # by trial index
        self._index: dict[str, int] = {}
        self._length: dict[int, float] = {}  # what each open trial was last told to train
        self._answered = 0.0
        self._events: list[dict[str, Any]] = [{"initialOperations": {"placeholder": 1}}]
        self._acknowledged = 0  # events dealt with: numbers 1 to this one
        self._shut = False

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
        actions: list[Action] = [Note(0, "acknowledged", {"event": event_id})]
        made: dict[str, Create] = {}
        for operation in operations:
            ((kind, body),) = operation.items() if len(operation) == 1 else [("", operation)]
            if kind == "createTrial":
                index = self.created_count + len(made)
                if index >= config.MOST_TRIALS:
                    raise ValueError(f"a search has at most {config.MOST_TRIALS:,} trials")
                create = self._create_trial(body, index)
                made[str(body["requestId"])] = create
                created = {"trialCreated": {"requestId": str(body["requestId"])}}
                actions += [create, Note(create.index, "event", created)]
            elif kind == "trialOperation":
                after = body["validateAfter"]
                length = float(after["length"])
                if not 0 <= length <= LARGEST:
                    raise ValueError(f"validateAfter: a length is a number from 0 to 2**63, not {length}")
                self._validate_after(str(after["requestId"]), length, made, actions)
            elif kind == "closeTrial":
                actions.append(Stop(self._find(str(body["requestId"])), "closed by the search method"))
            elif kind == "setSearcherProgress":
                actions.append(Note(0, "progress", {"progress": float(body.get("progress") or 0.0)}))
            elif kind == "shutDown":
                actions.append(Note(0, "shut_down", dict(body or {})))
            else:
                raise ValueError(
                    f"an operation is one of {', '.join(OPERATIONS)}, not {', '.join(map(str, operation))}"
                )
        return actions

    def _create_trial(self, body: Mapping[str, Any], index: int) -> Create:
        hparams = body.get("hyperparams")
        if not isinstance(hparams, Mapping):
            raise ValueError("createTrial: hyperparams is a mapping")
        return Create(index, dict(hparams), {"request_id": str(body["requestId"]), "lengths": [], "waits": True})

    def _validate_after(self, request: str, length: float, made: Mapping[str, Create], actions: list[Action]) -> None:
        if request in made:
            made[request].search.update(lengths=[length], waits=False)
        else:
            index = self._find(request)
            actions += [Note(index, "length", {"length": length}), Continue(index, length)]

    def _find(self, request: str) -> int:
        try:
            return self._index[request]
        except KeyError:
            raise ValueError(f"no trial has the request id {request}") from None

    # --- decide

    def start(self) -> list[Action]:
        return []

    def validated(self, index: int, length: float, metric: float) -> list[Action]:
        if length < self._length.get(index, 0.0):
            return []
        event = {
            "requestId": self._request_ids[index],
            "metric": metric if metric == metric else "NaN",
            "validateAfterLength": str(int(length)),
        }
        return [Note(index, "event", {"validationCompleted": event}), Wait(index, "waits for the search method")]

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
        self._length[index] = max([0.0, *search.get("lengths", [])])

    def noted(self, index: int, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "event":
            self._events.append(dict(data))
        elif kind == "acknowledged":
            self._acknowledged = int(data["event"])
        elif kind == "length":
            self._length[index] = float(data["length"])
        elif kind == "progress":
            self._answered = min(1.0, max(0.0, float(data["progress"])))
        elif kind == "shut_down":
            self._shut = True
