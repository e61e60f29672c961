"""Routers of which each is imported, and its routes made, when somebody first asks for a path of its nouns.

All models and routes together take a third of a start's time, and memory for as long as the master runs; many are never asked for.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute

from dethpc.master.http.routes.reads import Reads

T = TypeVar("T")

_ONE_AT_A_TIME = threading.RLock()
"""To make a route, FastAPI suppresses warnings, for the whole process and not for its thread alone: of two threads, one would leave
the other's filters behind."""


class LazyRouter:
    """One of this package's routers, once it is asked for."""

    def __init__(self, name: str, *nouns: str) -> None:
        """``name``: MODULE.VARIABLE in this package; ``nouns``: of all its paths, as ``noun_of`` has them."""
        self._module, _, self._variable = name.partition(".")
        self.nouns = frozenset(nouns)

    @cached_property
    def router(self) -> APIRouter:
        with _ONE_AT_A_TIME:
            router: APIRouter = getattr(importlib.import_module(f"{__package__}.{self._module}"), self._variable)
        return router

    @property
    def routes(self) -> Sequence[Any]:
        return self.router.routes


def noun_of(path: str) -> str:
    """The part of a path that no parameter stands for: ``trials`` of ``/api/v1/trials/7``, ``info`` of ``/info``."""
    return path.removeprefix("/api/v1").partition("/")[2].partition("/")[0]


class Nouns:
    """What of ``routers`` is part of ``app`` by now. Its routes stand behind those that ``app`` has already, and among themselves
    in the order of ``routers``, whichever came first: of two that a path fits the first one counts."""

    def __init__(self, app: FastAPI, routers: Sequence[LazyRouter]) -> None:
        self._app, self._routers = app, routers
        self._first = list(app.router.routes)
        self._brought: dict[LazyRouter, Sequence[BaseRoute]] = {}
        self._of_noun: dict[str, Reads] = {}
        self._asking, self._coming = threading.Lock(), dict[str, Future[None]]()
        self._thread = ThreadPoolExecutor(1, "routes")
        self._known = frozenset[str]().union(*(each.nouns for each in routers))

    def lacks(self, path: str) -> bool:
        """Whether there are routes for such paths that have to be brought first."""
        noun = noun_of(path)
        return noun in self._known and noun not in self._of_noun

    def reads(self, path: str) -> Reads | None:
        """What is only read at such paths; None: nothing, or ``lacks``."""
        return self._of_noun.get(noun_of(path))

    def bring(self, path: str) -> Future[None]:
        """Make the routes of such a path part of the application. Who waits for the same goes on in the order of coming."""
        noun = noun_of(path)
        with self._asking:
            coming = self._coming.get(noun)
            if coming is None or (coming.done() and coming.exception() is not None):
                coming = self._coming[noun] = self._thread.submit(self._bring, noun)
        return coming

    def _bring(self, noun: str) -> None:
        with _ONE_AT_A_TIME:
            wanted = [each for each in self._routers if noun in each.nouns]
            self._make(wanted)
            self._of_noun[noun] = Reads(wanted)

    def whole(self, seen: Callable[[], T]) -> T:
        """What is ``seen`` of an application that lacks nothing."""
        with _ONE_AT_A_TIME:
            self._make(self._routers)
            return seen()

    def _make(self, wanted: Sequence[LazyRouter]) -> None:
        for each in wanted:
            self._brought.setdefault(each, each.routes)
        made = (route for each in self._routers for route in self._brought.get(each, ()))
        self._app.router.routes = [*self._first, *made]  # a new list: others may be going through that one
