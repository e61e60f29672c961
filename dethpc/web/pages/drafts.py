"""Forks and continuations of experiments and trials, in an editor that checks the configuration as it is typed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dethpc.client.nouns import experiments, trials
from dethpc.client.nouns.experiments import SearchCost
from dethpc.client.session import Json, Session
from dethpc.config import ExperimentConfig, dump
from dethpc.config.continued import continued
from dethpc.config.forked import forked, of_trial
from dethpc.errors import ConfigError, DethpcError, MasterUnreachable, Problem, Unauthorized
from dethpc.web import show
from dethpc.web.asked import Answer, Goto, Page, PageRequest
from dethpc.web.pages import experiment

_SEARCH = ("name", "entrypoint", "searcher", "hyperparameters", "reproducibility")
"""Sections that a search's preview needs; none of them holds a secret, which would not come back as it was."""


@dataclass
class Look:
    """What is known of a text before anything is created: what is wrong with it, or what it would do."""

    problems: list[Problem] = field(default_factory=list)
    refused: str = ""
    messages: list[str] = field(default_factory=list)
    cost: SearchCost | None = None
    lengths: list[Json] = field(default_factory=list)
    slot_hours: float | None = None

    @property
    def good(self) -> bool:
        return not self.problems and not self.refused


@dataclass(frozen=True)
class _Draft:
    """``look`` says what a text would do, ``make`` does it and says where to go."""

    title: str
    explanation: str
    text: str
    parent: int
    back: str
    look: Callable[[str], Look]
    make: Callable[[str], Goto]
    can_pause: bool = True
    may_be_empty: bool = False


def fork(request: PageRequest) -> Answer:
    """As ``det experiment fork`` without files of its own."""
    number = request.number("experiment")
    parent = experiments.get(request.session, number)
    config, written = parent["config"], parent["experiment"].get("originalConfig") or ""
    # What it started from is in its configuration alone, and not in what was written, where that names a trial.
    every = bool(request.query.get("all")) or not written or "source_" in written
    draft = _Draft(
        f"Fork experiment {number}",
        "A new experiment with the files and the environment of this one, and this configuration.",
        dump(forked(config)) if every else written,
        number,
        f"experiments/{number}",
        lambda text: _look(request.session, text, parent),
        lambda text: _create(request, text, number),
    )
    return _page(request, draft, every)


def continue_trial(request: PageRequest) -> Answer:
    """As ``det trial continue`` without files of its own."""
    trial = trials.get(request.session, request.number("trial"))
    number = int(trial["experimentId"])
    parent = experiments.get(request.session, number)
    starts = (
        "which starts from its latest checkpoint"
        if trial["checkpointCount"]
        else (
            "which would start from a checkpoint of it: it has none, so this cannot be created. Fork the experiment instead"
        )
    )
    draft = _Draft(
        f"Continue trial {trial['id']}",
        f"A new experiment of one trial with its hyperparameters, {starts}.",
        dump(of_trial(parent["config"], trial.get("hparams") or {}, trial["id"], None)),
        number,
        f"trials/{trial['id']}",
        lambda text: _look(request.session, text, parent),
        lambda text: _create(request, text, number),
    )
    return _page(request, draft, every=True)


def go_on(request: PageRequest) -> Answer:
    """As ``det experiment continue``."""
    number = request.number("experiment")
    answer = experiments.get(request.session, number)
    config, row = answer["config"], answer["experiment"]
    completed = show.plain_state(row["state"]) == "COMPLETED"

    def look(text: str) -> Look:
        def fits() -> Look:
            if not experiment.goes_on(row):
                return Look(refused=_explanation(False, completed))
            continued(number, ExperimentConfig.from_json(config), text)
            return Look()

        return _checked(fits)

    def make(text: str) -> Goto:
        answer = experiments.go_on(request.session, number, text)
        return Goto(f"experiments/{number}", _message(f"Continued experiment {number}.", answer))

    draft = _Draft(
        f"Continue experiment {number}",
        _explanation(experiment.goes_on(row), completed),
        "",
        number,
        f"experiments/{number}",
        look,
        make,
        can_pause=False,
        may_be_empty=True,
    )
    return _page(request, draft, every=True)


def _explanation(goes_on: bool, completed: bool) -> str:
    if not goes_on:
        why = (
            "it has completed, and nothing of it is left to do"
            if completed
            else "what its search decided stays decided"
        )
        return f"This experiment cannot go on: {why}. Fork it instead."
    if completed:
        return "Its one trial has completed, and goes on from its latest checkpoint when it gets a longer searcher.max_length here."
    return (
        "The same experiment and its trials that did not complete go on, each from its latest checkpoint. Leave this empty to"
        " change nothing; a search of one trial may get other fields here, such as a longer searcher.max_length."
    )


def _page(request: PageRequest, draft: _Draft, every: bool) -> Answer:
    text = request.form["config"].replace("\r\n", "\n") if "config" in request.form else draft.text
    look = draft.look(text)
    if request.form.get("action") == "create" and look.good:
        try:
            return draft.make(text)
        except ConfigError as error:
            look = Look(problems=error.problems)
        except (Unauthorized, MasterUnreachable):
            raise
        except DethpcError as error:
            look = Look(refused=str(error))
    shown = {
        "draft": draft,
        "text": text,
        "look": look,
        "paused": bool(request.form.get("paused")),
        "every": every,
        "full": bool(request.query.get("all")),
    }
    failed = request.form.get("action") == "create"
    return Page("draft.html", shown, status=422 if failed else 200)


def _create(request: PageRequest, text: str, parent: int) -> Goto:
    paused = bool(request.form.get("paused"))
    answer = experiments.create(request.session, text, [], activate=not paused, parent=parent, with_environment=False)
    number = answer["experiment"]["id"]
    return Goto(f"experiments/{number}", _message(f"Created experiment {number}.", answer))


def _message(text: str, answer: Json) -> str:
    return " ".join([text, *(answer.get("warnings") or []), *(answer.get("notes") or [])])[:1500]


def _look(session: Session, text: str, parent: Json) -> Look:
    def look() -> Look:
        number = parent["experiment"]["id"]
        answer = experiments.create(session, text, [], parent=number, validate_only=True, with_environment=False)
        preview = experiments.preview(session, _search(answer["config"]))
        cost = SearchCost.of(preview)
        messages = [*(answer.get("warnings") or []), *(answer.get("notes") or [])]
        hours = _slot_hours(session, parent, cost)
        return Look(messages=messages, cost=cost, lengths=preview["summary"]["trials"], slot_hours=hours)

    return _checked(look)


def _slot_hours(session: Session, parent: Json, cost: SearchCost) -> float | None:
    """At the pace of the parent, where that has trained all that its search wanted."""
    if show.plain_state(parent["experiment"]["state"]) != "COMPLETED":
        return None
    number = parent["experiment"]["id"]
    spent = experiments.goodput(session, number, trials=False)["total"]["allocated"]
    before = SearchCost.of(experiments.preview(session, _search(parent["config"])))
    seconds = cost.slot_seconds(before, spent) if spent else None
    return None if seconds is None else seconds / 3600


def _search(config: Json) -> Json:
    return {name: config[name] for name in _SEARCH if config.get(name) is not None}


def _checked(look: Callable[[], Look]) -> Look:
    try:
        return look()
    except ConfigError as error:
        return Look(problems=error.problems)
    except (Unauthorized, MasterUnreachable):
        raise
    except DethpcError as error:
        return Look(refused=str(error))
