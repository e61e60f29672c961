"""A receiver of webhooks on loopback, and a site that allows it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dethpc.client.nouns import experiments, webhooks
from dethpc.config.site import SiteConfig
from dethpc.domain.records import DeliveryState, WebhookDelivery
from dethpc.state.queries import records as stored
from tests.master.conftest import Served
from tests.master.http.test_control import YAML

KEY = "a key of the site"
SITE = SiteConfig.model_validate(
    {
        "cluster_name": "testbed",
        "webhooks": {"allow": ["127.0.0.1"], "signing_key": KEY, "base_url": "https://det.example"},
    }
)


@dataclass
class Post:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        return json.loads(self.body)  # type: ignore[no-any-return]


@dataclass
class Receiver:
    """``statuses``: of the next answers; then 200."""

    url: str = ""
    posts: list[Post] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.posts.append(Post(self.path, dict(self.headers), body))
            status = receiver.statuses.pop(0) if receiver.statuses else 200
            self.send_response(status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"noted" if status == 200 else b"not now")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def created(served: Served, text: str = YAML, **options: Any) -> int:
    return int(experiments.create(served.session, text, [], activate=False, **options)["experiment"]["id"])


def kill(served: Served, experiment_id: int) -> None:
    served.session.post(f"/api/v1/experiments/{experiment_id}/kill")


def deliveries(served: Served, webhook_id: int = 1) -> list[dict[str, Any]]:
    return webhooks.deliveries(served.session, webhook_id)


def waiting(served: Served) -> list[WebhookDelivery]:
    with served.daemon.store.read() as connection:
        return stored.find(connection, WebhookDelivery, state=DeliveryState.WAITING)
