"""The site configuration: what an administrator (or a user, for their own installation) says about the cluster."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from dethpc.config.problems import problems_of
from dethpc.config.sections.checkpoint_storage import CheckpointStorage
from dethpc.config.sections.container import NAMES, Containers
from dethpc.config.sections.image_cache import ImageCache
from dethpc.config.sections.resources import GpuType
from dethpc.config.sections.section import Section, Whole, absolute, mistaken, wrong
from dethpc.config.sections.training import DataLayer
from dethpc.config.source import MAX_BYTES, read
from dethpc.config.wording import did_you_mean, show
from dethpc.domain.slurm import gres, memory, walltime
from dethpc.errors import ConfigError, GresError, Problem

EVERYWHERE = "/etc/dethpc/site.yaml"


def _time(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return str(value)
    if not isinstance(value, str) or walltime.seconds(value) is None:
        raise wrong(
            "minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS, as sbatch has it", hint="put a time in quotes"
        )
    return value


def _memory(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return f"{value}M"
    if not isinstance(value, str) or not memory.is_size(value):
        raise wrong("a size such as 8G or 8000M")
    return value


def _lines(value: Any) -> Any:
    return value.splitlines() if isinstance(value, str) else value


NO_GRES = "none"


_DATABASE = re.compile(r"(sqlite|postgres(ql)?(\+psycopg)?)://")


def _database(value: str) -> str:
    if _DATABASE.match(value) is None:
        raise wrong("postgresql://USER@HOST/DATABASE or sqlite:///PATH", value="another text")  # it may hold a password
    return value


Word = Annotated[str, Field(pattern=r"^[^\s\x00]+$")]
AbsolutePath = Annotated[str, AfterValidator(absolute)]


class PoolConfig(Section):
    """A named slice of the cluster, in Slurm's words. What is left out is left to Slurm."""

    description: str = ""
    partition: Optional[Word] = None  # None: the one with the pool's name
    qos: Optional[Word] = None
    account: Optional[Word] = None
    reservation: Optional[Word] = None
    constraint: Optional[Word] = None
    slot_type: Optional[Literal["cuda", "rocm", "cpu"]] = None  # None: as the partition's nodes are
    gpu_type: Optional[GpuType] = None  # the type in gres, such as a100
    gres: Optional[Word] = (
        None  # in place of gpu:TYPE:N; {slots} stands for the number, {type} for the type; none: no GRES
    )
    slots_per_node: Optional[Annotated[Whole, Field(ge=1)]] = None
    cpus_per_slot: Optional[Annotated[Whole, Field(ge=1)]] = None
    mem_per_slot: Optional[Annotated[str, BeforeValidator(_memory)]] = None
    time_limit: Optional[Annotated[str, BeforeValidator(_time)]] = None
    time_min: Optional[Annotated[str, BeforeValidator(_time)]] = None  # the least that will do, to start sooner
    min_job_time: Optional[Annotated[str, BeforeValidator(_time)]] = None  # shorter trials share jobs
    container: Containers = []  # empty: runs start without a container
    scheduler: Literal["priority", "fair_share", "fifo"] = "priority"
    window: Optional[Annotated[Whole, Field(ge=1)]] = None  # jobs kept pending in Slurm at most
    sbatch_args: list[str] = []
    prologue: Annotated[list[str], BeforeValidator(_lines)] = []  # shell, such as: module load cuda
    python: Word = "python3"  # on the compute nodes

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        """``container_runtime: NAME`` is short for a ``container`` of that runtime."""
        if not isinstance(data, dict) or data.get("container_runtime") is None:
            return data
        if data.get("container") is not None:
            raise mistaken("set container or container_runtime, not both", field="container_runtime")
        name, rest = data["container_runtime"], {k: v for k, v in data.items() if k != "container_runtime"}
        if name not in NAMES:
            raise wrong("one of " + ", ".join(NAMES), field="container_runtime", value=show(name))
        return rest if name == "none" else {**rest, "container": {"runtime": name}}

    @model_validator(mode="after")
    def _one_kind_of_slot(self) -> PoolConfig:
        if self.gres not in (None, NO_GRES) and "{slots}" not in str(self.gres):
            allowed = f"text with {{slots}} where the number of slots goes, or {NO_GRES}"
            raise wrong(allowed, field="gres", value=repr(self.gres))
        if not self.whole_nodes:
            try:
                gres.requested(self.gres_of(1))
            except GresError as error:
                raise mistaken(f"sbatch would not take {self.gres!r}: {error}", field="gres") from None
        if self.gres == NO_GRES and (self.slots_per_node is None or self.slot_type is None):
            missing = "slots_per_node" if self.slots_per_node is None else "slot_type"
            raise mistaken("must be set: with gres: none only the site can say what a node has", field=missing)
        if self.time_min_seconds is not None and self.time_min_seconds > (self.time_limit_seconds or 0):
            raise wrong("at most time_limit, which must be set, too", field="time_min", value=repr(self.time_min))
        if (self.min_job_seconds or 0) > (self.time_limit_seconds or math.inf) / 2:
            raise wrong("at most half of time_limit", field="min_job_time", value=repr(self.min_job_time))
        if self.slot_type == "cpu" and (self.gpu_type is not None or self.gres is not None):
            field = "gpu_type" if self.gpu_type is not None else "gres"
            raise mistaken("a pool of slot_type cpu has no GPUs; leave it out", field=field)
        return self

    @property
    def min_job_seconds(self) -> float | None:
        return None if self.min_job_time is None else walltime.seconds(self.min_job_time)

    @property
    def time_limit_seconds(self) -> float | None:
        return None if self.time_limit is None else walltime.seconds(self.time_limit)

    @property
    def time_min_seconds(self) -> float | None:
        return None if self.time_min is None else walltime.seconds(self.time_min)

    def gres_of(self, slots: int, gpu_type: str | None = None) -> str:
        """What to ask for of each node. ``gpu_type``: another one than the pool's."""
        kind = gpu_type or self.gpu_type
        form = self.gres or ("gpu:{type}:{slots}" if kind else "gpu:{slots}")
        return form.replace("{type}", str(kind)).replace("{slots}", str(slots))

    @property
    def whole_nodes(self) -> bool:
        """Slurm does not know the GPUs, so that a node is shared with nobody."""
        return self.gres == NO_GRES


def _switch(value: Any) -> Any:
    return (
        {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value
    )  # as YAML reads on and off


def _pages_host(value: str) -> str:
    if not re.fullmatch(r"(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?", value):
        raise wrong(
            "a host name in small letters without a port, or *. and one, such as *.det.example.org", value=show(value)
        )
    return value


PagesHost = Annotated[str, AfterValidator(_pages_host)]


def _origins(value: str) -> str:
    if value != "shared" and not re.fullmatch(r"\*\.[a-z0-9]([a-z0-9.-]*[a-z0-9])?", value):
        raise wrong("*. and a host name in small letters, such as *.det.example.org, or shared", value=show(value))
    return value


class Proxy(Section):
    """How browsers reach what tasks serve."""

    origins: Annotated[str, AfterValidator(_origins)] = "*.localhost"  # host names; shared: the master's own origin


class Master(Section):
    """Where the master runs and listens, and how. Without a host: where its jobs reach it (``master.listening``)."""

    host: Optional[Word] = None
    port: Annotated[Whole, Field(ge=0, le=65535)] = 0  # 0: any free one
    tls: Annotated[Literal["auto", "on", "off"], BeforeValidator(_switch)] = "auto"  # auto: on beyond loopback
    certificate: Optional[AbsolutePath] = None  # in PEM, with its chain; None: the master makes one
    key: Optional[AbsolutePath] = None  # None: the certificate's file holds it, too
    auth: Optional[str] = None  # of releases that could prove themselves by munge; without effect
    munge_socket: Optional[str] = None  # likewise
    socket: Optional[Word] = None  # below DETHPC_HOME or absolute, for a reverse proxy; None: there is none
    where: Literal["login", "slurm"] = "login"  # on the node where det is typed, or as a Slurm job
    sbatch_args: list[Word] = []  # for that job
    end_after_idle_hours: Optional[Annotated[float, Field(gt=0)]] = None  # without work or requests; None: never
    pages_host: Optional[PagesHost] = None  # the host name of the pages; its * is a label that each master draws
    proxy: Proxy = Proxy()

    @model_validator(mode="after")
    def _one_of_the_two(self) -> Master:
        if self.key is not None and self.certificate is None:
            raise mistaken("certificate is missing, whose key this is", field="key")
        if self.certificate is not None and self.tls == "off":
            raise wrong("auto or on where there is a certificate", field="tls", value="off")
        return self


class Limits(Section):
    """How hard the master may press the scheduler, and how much one experiment may want of the cluster."""

    trials_per_experiment: Optional[Annotated[Whole, Field(ge=1)]] = None
    slots_per_experiment: Optional[Annotated[Whole, Field(ge=1)]] = None  # that its trials hold at once
    submit_per_second: Optional[Annotated[float, Field(gt=0)]] = None
    submit_burst: Annotated[Whole, Field(ge=1)] = 10
    submit_at_once: Annotated[Whole, Field(ge=1, le=8)] = 2  # sbatch commands under way at the same time
    smallest_array: Annotated[Whole, Field(ge=0)] = 3  # so many trials that are alike go as one job array; 0: never
    fastest_poll: Annotated[float, Field(gt=0)] = 10  # seconds between two questions to Slurm when much happens
    slowest_poll: Annotated[float, Field(gt=0)] = 60  # and when nothing does
    restart_delay: Annotated[float, Field(ge=0)] = (
        5  # seconds of rest after a trial's first failure; then twice as long
    )


class BadNodes(Section):
    """When a node on which trials fail is left out."""

    failures: Annotated[Whole, Field(ge=0)] = 3  # of at least two trials; 0: never
    within_hours: Annotated[float, Field(gt=0)] = 24
    exclude_hours: Annotated[float, Field(gt=0)] = 24


def _network(value: str) -> str:
    try:
        ip_network(value, strict=False)
    except ValueError:
        raise wrong("an address or a network, such as 127.0.0.1 or 10.0.0.0/8", value=show(value)) from None
    return value


class Webhooks(Section):
    """How events are sent to the receivers of webhooks, and where to."""

    signing_key: Optional[Annotated[str, Field(min_length=1)]] = None  # None: the master makes one
    base_url: Annotated[str, Field(pattern=r"^(https?://[^\s/]+(/[^\s]*)?)?$")] = ""  # of the pages; "": no links
    allow: list[Annotated[str, AfterValidator(_network)]] = []  # such as loopback, which is refused otherwise
    proxy: Annotated[str, Field(pattern=r"^(http://[^\s/@]+/?)?$")] = ""  # that connects to receivers outside; "": none
    sendmail: Word = "sendmail"  # the program that takes mails


class SiteConfig(Section):
    """Every field has a default: without pools, each Slurm partition is a pool; without Slurm, this machine is one."""

    cluster_name: Annotated[str, Field(min_length=1)] = "cluster"
    scheduler: Literal["auto", "slurm", "local"] = "auto"
    pools: dict[Word, PoolConfig] = {}
    default_pool: Optional[str] = None
    storage: Optional[CheckpointStorage] = Field(default=None, alias="checkpoint_storage")
    datasets: Optional[DataLayer] = Field(default=None, alias="data_layer")
    database: Optional[Annotated[str, AfterValidator(_database)]] = None  # None: SQLite in DETHPC_HOME
    fold_after_hours: Optional[Annotated[float, Field(ge=0)]] = (
        6  # after its end a trial's runs become one file; null: never
    )
    remove_tasks_after_days: Optional[Annotated[float, Field(ge=0)]] = (
        None  # files of commands and the like; None: never
    )
    templates: Optional[AbsolutePath] = None  # a folder whose files take the place of the sbatch templates
    master: Master = Master()
    limits: Limits = Limits()
    images: ImageCache = ImageCache()
    bad_nodes: BadNodes = BadNodes()
    webhooks: Webhooks = Webhooks()

    @model_validator(mode="after")
    def _default_exists(self) -> SiteConfig:
        if self.default_pool is not None and self.default_pool not in self.pools:
            names = ", ".join(self.pools)
            hint = did_you_mean(self.default_pool, self.pools) or ""
            allowed = f"one of {names}" if names else "a pool (there are none under pools)"
            raise wrong(allowed, field="default_pool", value=show(self.default_pool), hint=hint)
        return self

    @property
    def ignored(self) -> list[str]:
        """Fields of earlier releases that have no effect any more, each with why."""
        fields = [name for name in ("auth", "munge_socket") if name in self.master.model_fields_set]
        return [
            f"master.{name} has no effect any more: the token file proves the owner (docs/site-config.md)"
            for name in fields
        ]

    @property
    def checkpoint_storage(self) -> dict[str, Any] | None:
        """The section as it was written, to be laid under the experiments' own."""
        return None if self.storage is None else self.storage.model_dump(mode="json", exclude_unset=True)

    @property
    def data_layer(self) -> dict[str, Any] | None:
        """As ``checkpoint_storage``."""
        return None if self.datasets is None else self.datasets.model_dump(mode="json", exclude_unset=True)

    @property
    def pool(self) -> str:
        """The pool for experiments that name none; empty without pools."""
        return self.default_pool or next(iter(self.pools), "")


def parse_site(text: str, file: str = "site.yaml") -> SiteConfig:
    """Read and check a site configuration. Raises ConfigError with all problems at once."""
    source, problems = read(text, file)
    try:
        config = SiteConfig.model_validate(source.data)
    except ValidationError as error:
        problems += [source.placed(problem) for problem in problems_of(error, SiteConfig, source, elsewhere={})]
    if problems:
        raise ConfigError(sorted(problems, key=lambda problem: problem.line or 0))
    return config


def find_site(env: Mapping[str, str], home: str | Path, exists: Callable[[str], bool] = os.path.isfile) -> str | None:
    """The path of the site configuration: $DETHPC_SITE_CONFIG, else site.yaml in DETHPC_HOME, else the machine's; or None.

    Raises ConfigError when $DETHPC_SITE_CONFIG names no file.
    """
    named = env.get("DETHPC_SITE_CONFIG")
    if named:
        if not exists(named):
            raise ConfigError([Problem("DETHPC_SITE_CONFIG", f"there is no file {show(named)}").at("environment")])
        return named
    return next((path for path in (os.path.join(home, "site.yaml"), EVERYWHERE) if exists(path)), None)


def load_site(path: str | Path | None) -> SiteConfig:
    """The site configuration in the file; None: all defaults. Raises ConfigError."""
    if path is None:
        return SiteConfig()
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_BYTES + 1)  # what is larger is refused by its size
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "bytes that are not UTF-8"
        raise ConfigError([Problem("config", f"the file cannot be read: {reason}").at(str(path))]) from None
    return parse_site(text, str(path))
