"""The application that serves the pages: authorization, security headers, rendering and error pages."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread
from jinja2 import DictLoader, Environment, StrictUndefined
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from dethpc import errors
from dethpc.client.in_process import App, InProcess
from dethpc.client.session import Session
from dethpc.domain.roles import Role
from dethpc.web import following, show
from dethpc.web.access import PROOF, Caller, May, Sessions, home, proof_of, where
from dethpc.web.asked import Answer, Download, Goto, Handler, Page, PageRequest, pairs, up
from dethpc.web.following import BEAT
from dethpc.web.pages import ROUTES, confirm, entry, logs, needed
from dethpc.web.sharing import Rounds, Shared

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Pages that are made at a time. Each asks the master, whose own threads are other ones: they can never wait for each other."""

LINES = 1000
"""Of a download that are sent at a time."""

MOST_FORM = 1 << 20  # bytes
_HERE = Path(__file__).parent
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Commits(Rounds, Protocol):
    """Tells what was committed, on the event loop that serves the pages."""

    @property
    def at(self) -> str:
        """What was committed so far."""

    def changes(self, of: str, since: str = "") -> AsyncIterator[None]:
        """Yields soon after each time that something concerning ``of`` was committed, and at once when that was after ``since``."""


class Pages:
    """``master``: the application whose pages these are, asked in this process. ``cookie``: the name of that of a session.
    ``notice``: what every page is to say: the message to all users, that the master does not get on, or of which runs it cannot
    tell what became."""

    def __init__(
        self, master: App, commits: Commits, sessions: Sessions, version: str, cookie: str, notice: Callable[[], str]
    ) -> None:
        self._notice = notice
        self._master, self._commits, self._version, self._cookie = master, commits, version, cookie
        self._sessions = sessions
        self._files = {path.relative_to(_STATIC).as_posix(): path for path in _STATIC.rglob("*") if path.is_file()}
        self._stamp = _stamp(self._files)
        self._shared = Shared(commits)
        self._limiter: anyio.CapacityLimiter | None = None
        self._looks = Environment(
            loader=DictLoader(_texts(_HERE / "templates")),  # an upgrade replaces the files of a master that runs
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._looks.filters.update(show.FILTERS)

    def application(self) -> Starlette:
        routes = [Route(path, self._endpoint(handler), methods=[method]) for method, path, handler in ROUTES]
        return Starlette(
            routes=[
                Route("/static/{stamp}/{name:path}", self._static),
                Route("/events", self._events),
                Route("/trials/{trial:int}/logs/follow", self._follow),
                Route("/tasks/{task}/logs/follow", self._follow),
                Route("/renewal", self._renewal, methods=["POST"]),
                Route("/successor", self._successor, methods=["POST"]),
                *routes,
            ],
            exception_handlers={404: self._nowhere, 405: self._nowhere},
        )

    # --- pages

    def _endpoint(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            if request.method == "POST" and not same_origin(request):
                return self._error(request, 403, "This request came from another page than ours. Nothing was done.")
            try:
                page_request = await self._page_request(request)
            except ValueError as error:
                return self._error(request, 400, str(error))
            if handler is entry.enter and request.method == "HEAD":
                return Response(headers=_HEADERS)  # who only looks at what a link leads to has not used it
            if handler not in entry.OPEN and request.state.login is None:
                return self._to_login(request)
            if self._limiter is None:
                self._limiter = anyio.CapacityLimiter(AT_ONCE)
            make = partial(
                anyio.to_thread.run_sync, partial(self._handle, handler, page_request, request), limiter=self._limiter
            )
            if (
                request.method == "GET" and handler not in entry.OPEN and "hx-request" in request.headers
            ):  # a page that was told of a change
                return await self._shared.answer(
                    (request.state.login.user, page_request.path, page_request.pairs), make
                )
            return await make()

        return endpoint

    async def _page_request(self, request: Request) -> PageRequest:
        form = pairs((await self._form(request)).decode("utf-8", "replace")) if request.method == "POST" else ()
        caller = self._caller(request, proof_of(request, dict(form)))
        return PageRequest(
            session=caller.open(caller.may),
            path=request.scope["path"].removeprefix(request.scope.get("root_path", "")),
            parts=request.path_params,
            pairs=pairs(request.url.query),
            form_pairs=tuple((name, value) for name, value in form if name != PROOF),
            since=self._commits.at,
            who=caller,
        )

    async def _form(self, request: Request) -> bytes:
        form = b""
        async for piece in request.stream():
            form += piece
            if len(form) > MOST_FORM:
                raise ValueError(f"the form is larger than {MOST_FORM >> 10} KiB")
        return form

    def _caller(self, request: Request, proof: str) -> Caller:
        login, program = request.state.login, request.headers.get("user-agent", "")[:300]
        client = getattr(request.state, "client", None)
        loop, (scheme, name, port) = asyncio.get_running_loop(), where(request)

        def opened(may: May) -> Session:
            state = {"grant": self._sessions.grant(login, may)} if login is not None else {}
            # Links into other origins lead to where the browser has found this one.
            headers = {"User-Agent": program, "Host": name + port, "X-Forwarded-Proto": scheme}
            return Session(InProcess(self._master, loop, headers, state), None, retries=0)

        return Caller(
            sessions=self._sessions,
            login=login,
            may=self._sessions.may(login, proof) if login is not None else May.READ,
            here=(scheme, name, port),
            home=home(request, self._sessions),
            mount=request.scope.get("root_path", ""),
            peer=client.peer if client is not None else "",
            program=program,
            open=opened,
        )

    def _handle(self, handler: Handler, page_request: PageRequest, request: Request) -> Response:
        try:
            asking = None
            if request.method == "POST":
                asking = confirm.question(page_request)
                if asking is None:
                    need = needed(handler, page_request.form.get("action", ""))
                    page_request, asking = confirm.allowed(page_request, need)
            return self._answer(asking or handler(page_request), page_request, request)
        except errors.DethpcError as error:
            if isinstance(error, errors.Unauthorized) and not isinstance(error, errors.ForbiddenException):
                return self._to_login(request)
            if request.method == "POST" and isinstance(error, _SAID_THERE):
                back = page_request.form.get("back") or page_request.path.removesuffix("/act").removesuffix("/edit")
                return self._answer(Goto(back, f"Refused: {error}"), page_request, request)
            return self._error(request, _status(error), str(error))
        except Exception as error:
            log.exception("%s %s failed", request.method, request.url.path)
            return self._error(request, 500, f"{type(error).__name__}; see the master's log")

    def _answer(self, answer: Answer, page_request: PageRequest, request: Request) -> Response:
        if isinstance(answer, Goto):
            response: Response = RedirectResponse(answer.relative_to(page_request.path), 303)
        elif isinstance(answer, Page):
            response = self._html(answer, page_request, request)
        elif isinstance(answer, Download):
            response = self._download(answer)
        else:
            response = answer
        if page_request.who is not None and page_request.who.begun is not None:
            response.set_cookie(
                self._cookie,
                page_request.who.begun.cookie,
                path=None,  # the folder of the page that sets it, whatever prefix a proxy puts before it
                httponly=True,
                samesite="strict",
                secure=page_request.who.here[0] == "https",
            )
        elif page_request.who is not None and page_request.who.ended:
            response.delete_cookie(self._cookie, path="")
        response.headers.update(_HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    def _html(self, page: Page, page_request: PageRequest, request: Request) -> HTMLResponse:
        root, login = up(page_request.path), request.state.login
        frame = {
            "root": root,
            "static": f"{root}static/{self._stamp}/",
            "asked": page_request,
            "live": page.live,
            "since": page_request.since,
            "version": self._version,
            "inside": login is not None,
            "without_role": login is not None and login.role is Role.NONE,
            "looks_only": login is not None and login.role < Role.EDITOR,
            "administers": login is not None and login.role_in_all is Role.ADMIN,
            "administers_some": login is not None and login.role is Role.ADMIN,
            "login": self._cookie,
            "notice": self._notice() if login is not None else "",
            "said": ""
            if _from_elsewhere(request)
            else page_request.query.get("said", ""),  # nobody else puts words into our mouth
        }
        text = self._looks.get_template(page.template).render({**frame, **page.shown})
        return HTMLResponse(text, page.status)

    def _download(self, answer: Download) -> Response:
        """Its pieces are made by threads of ours: the master's own may all be needed to answer what the pieces ask."""

        async def pieces() -> AsyncIterator[bytes]:
            more = True
            while more:
                piece = await anyio.to_thread.run_sync(_joined, answer.pieces, limiter=self._limiter)
                if more := bool(piece):
                    yield piece

        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{show.quoted(answer.name)}"}
        return StreamingResponse(pieces(), media_type=answer.kind, headers=headers)

    def _error(self, request: Request, status: int, message: str) -> Response:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        page_request = PageRequest(Session("http://nowhere"), path, {})
        page = Page("error.html", {"status": status, "message": message}, status=status)
        return self._answer(page, page_request, request)

    def _to_login(self, request: Request) -> Response:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        target = path.strip("/") + (f"?{request.url.query}" if request.url.query else "")
        page_request = PageRequest(Session("http://nowhere"), path, {})
        if request.method != "GET" or request.headers.get("sec-fetch-dest") == "empty":
            return self._error(request, 401, "Your login has ended. Log in again.")
        if _from_elsewhere(request) and entry.FOLLOWED not in request.query_params:
            # Browsers keep the cookie back when a link on another site was followed, and show it when this page leads on.
            query = PageRequest(page_request.session, path, {}, pairs(request.url.query)).changed(
                said=None, **{entry.FOLLOWED: 1}
            )
            again = (path.strip("/") or "experiments") + query
            return self._answer(Page("followed.html", {"again": up(path) + again}), page_request, request)
        return self._answer(Goto(f"login?next={show.quoted(target)}"), page_request, request)

    async def _nowhere(self, request: Request, error: Exception) -> Response:
        request.state.__dict__.setdefault("_state", {}).setdefault("login", None)
        return self._error(request, 404, "There is no such page.")

    # --- what is no page

    async def _static(self, request: Request) -> Response:
        """Files that never change: their folder's name is made of what they hold."""
        path = self._files.get(request.path_params["name"])
        if path is None or request.path_params["stamp"] != self._stamp:
            return Response(status_code=404)
        response = FileResponse(path, headers=_HEADERS)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response

    async def _events(self, request: Request) -> Response:
        """Server-sent events: one each time that something committed concerns what the page shows."""
        if request.state.login is None:
            return Response(status_code=401)

        async def events() -> AsyncIterator[bytes]:
            yield b"retry: 3000\n\n"
            query = request.query_params
            changes = self._commits.changes(query.get("of", ""), query.get("since", "")).__aiter__()
            waiting = asyncio.ensure_future(anext(changes))
            try:
                while True:
                    done, _ = await asyncio.wait([waiting], timeout=BEAT)
                    if not done:
                        yield b": here\n\n"
                        continue
                    waiting.result()
                    yield b"event: changed\ndata:\n\n"
                    waiting = asyncio.ensure_future(anext(changes))
            except StopAsyncIteration:
                return
            finally:
                waiting.cancel()

        return _stream(events())

    async def _follow(self, request: Request) -> Response:
        """The log of a trial or a task as it is written, from the lines on that the page or the connection before had last."""
        if request.state.login is None:
            return Response(status_code=401)
        try:
            target = logs.followed(await self._page_request(request), request.headers.get("last-event-id", ""))
        except ValueError as error:
            return Response(str(error), status_code=400)
        state = {"grant": self._sessions.grant(request.state.login, May.READ)}
        return _stream(following.events(self._master, target, state))

    # --- how a page knows its master again

    async def _renewal(self, request: Request) -> Response:
        """What a page that is open needs to go on with the next master: for who shows more than a cookie."""
        login = request.state.login
        if login is None or not same_origin(request) or self._sessions.may(login, proof_of(request, {})) < May.ACT:
            return Response(status_code=401, headers=_HEADERS)
        return _json_response(self._sessions.renewal(login, request.scope["server"]))

    async def _successor(self, request: Request) -> Response:
        """Whether this is the master of an open page, or the next one. PageRequest for without a cookie, by anybody."""
        try:
            form = dict(pairs((await self._form(request)).decode("utf-8", "replace"), 10))
            args = form.get("name", ""), form.get("nonce", ""), request.scope["server"], home(request, self._sessions)
            return _json_response(await anyio.to_thread.run_sync(self._sessions.successor, *args))
        except ValueError as error:
            return Response(str(error), status_code=400, headers=_HEADERS)
        except errors.Unauthorized:
            return Response(status_code=401, headers=_HEADERS)


_STATIC = _HERE / "static"

_SAID_THERE = (
    errors.Refused,
    errors.ConfigError,
    errors.NotSupportedYet,
    errors.SchedulerUnavailable,
    errors.ForbiddenException,
)
"""What kept a form from being followed: said on the page that it came from, which has everything else to show."""


def _stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    headers = {**_HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def _json_response(content: Mapping[str, str]) -> Response:
    return JSONResponse(content, headers={**_HEADERS, "Cache-Control": "no-store"})


def _from_elsewhere(request: Request) -> bool:
    return request.headers.get("sec-fetch-site") == "cross-site"


def same_origin(request: Request) -> bool:
    """Whether a form was sent from a page of ours. Browsers say where a request comes from, and no page can make them lie."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin", "")
    return bool(origin) and origin.partition("://")[2] in (
        request.headers.get("host"),
        request.headers.get("x-forwarded-host"),
    )


def _joined(pieces: Iterator[str] | Iterator[bytes]) -> bytes:
    """The next ``LINES`` pieces of text, or the next that is not; nothing when there are no more."""
    first = next(pieces, "")
    if isinstance(first, bytes):
        return first or _joined(pieces)
    return "".join([first, *islice(pieces, LINES - 1)]).encode("utf-8", "replace")  # type: ignore[list-item]


def _texts(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.html")}


def _stamp(files: dict[str, Path]) -> str:
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + files[name].read_bytes())
    return digest.hexdigest()[:12]


def _status(error: errors.DethpcError) -> int:
    table: tuple[tuple[type[Exception], int], ...] = (
        (errors.NotFound, 404),
        (errors.ForbiddenException, 403),
        (errors.Refused, 400),
        (errors.ConfigError, 400),
        (errors.NotSupportedYet, 501),
        (errors.MasterUnreachable, 503),
    )
    return next((status for kind, status in table if isinstance(error, kind)), 500)
