"""What TLS costs: a connection with its proof, requests and reports on a kept connection, a command; over plain HTTP, in turns.

Two masters on this machine, each with a home of its own, are asked alternately. A handshake costs 2 to 4 ms of processor time, of
which a job pays a few in its life and a command one or two. Processor time is that of client and master together, the mean over all
rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

from benchmarks.frame import Figure, Row, Spent, alternate, cpu_of_children, median, ratio, run, timed
from benchmarks.setting import Local, local

CONFIG = "name: outside\nsearcher: {name: custom, metric: loss}\n"


class Master:
    def __init__(self, at: Local) -> None:
        self.at, self.session, self.steps = at, at.session(), 0
        made = self.session.put("/api/v1/experiments/by-external-id/1", {"config": CONFIG, "unmanaged": True})
        new = {"experimentId": made["experiment"]["id"], "hparams": {}, "unmanaged": True}
        trial = self.session.put("/api/v1/trials", {"createTrialRequest": new, "externalTrialId": "1"})["trial"]
        self.trial = trial["id"]
        begun = self.session.post(f"/api/v1/trials/{self.trial}/start", {"trialId": self.trial, "resume": False})
        self.run = begun["trialRunId"]

    def connection(self) -> None:
        """A new one, with the master's proof and the smallest answer there is."""
        session = self.at.session()
        session.get("/api/v1/me")
        session.close()

    def kept(self) -> None:
        self.session.get("/api/v1/me")

    def report(self) -> None:
        self.steps += 1
        metrics = {"avgMetrics": {f"metric{i}": self.steps / (i + 1) for i in range(10)}}
        body = {"metrics": metrics, "stepsCompleted": self.steps, "trialRunId": self.run, "trialId": self.trial}
        self.session.post(f"/api/v1/trials/{self.trial}/metrics", {"metrics": body, "group": "training"})

    def listing(self) -> None:
        self.at.det("experiment", "list")

    def cpu(self) -> float:
        """Seconds of processor time that this process, the commands that it ran and the master have had."""
        return time.process_time() + cpu_of_children() + self.at.cpu()


WHAT: dict[str, tuple[Callable[[Master], None], int, int]] = {
    "a connection, its proof and one request": (Master.connection, 100, 30),
    "a request on a kept connection": (Master.kept, 300, 100),
    "a report of 10 metrics on a kept connection": (Master.report, 200, 60),
    "det experiment list": (Master.listing, 9, 4),
}
"""With the rounds, and those of a quick run."""


def rows(options: argparse.Namespace) -> Iterator[Row]:
    with local(master={"tls": "off"}) as plain, local(master={"tls": "on"}) as secured:
        masters = {"plain": Master(plain), "tls": Master(secured)}

        def spent(master: Master, act: Callable[[Master], None]) -> Spent:
            return timed(lambda: act(master), master.cpu)

        for name, (act, *rounds) in WHAT.items():
            ways = {which: lambda m=master, act=act: spent(m, act) for which, master in masters.items()}
            found = alternate(ways, rounds[options.quick], warm=2)
            clock, cpu = ({which: [1e3 * s[part] for s in found[which]] for which in found} for part in (0, 1))
            peers = {"plain HTTP": median(clock["plain"])}
            yield Row(f"{name}, clock", "ms", median(clock["tls"]), peers, ratio=ratio(clock["tls"], clock["plain"]))
            mean = {which: statistics.mean(values) for which, values in cpu.items()}
            peers = {"plain HTTP": Figure(mean["plain"])}
            times = Figure(mean["tls"] / mean["plain"])
            yield Row(f"{name}, processor time", "ms", Figure(mean["tls"]), peers, ratio=times)
        for master in masters.values():
            master.session.close()


if __name__ == "__main__":
    run(__doc__, rows)
