"""Sections for what watches an experiment from outside: ``log_policies``, ``retention_policy``, ``integrations``, ``security``."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Optional

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from dethpc.config.patterns import Pattern
from dethpc.config.section import STORED, Section, Whole, wrong
from dethpc.config.wording import show

LOG_ACTIONS = ("cancel_retries", "exclude_node")


def _action(value: Any) -> Any:
    name = value.get("type") if isinstance(value, dict) and set(value) == {"type"} else value
    if name not in LOG_ACTIONS:
        raise wrong("one of " + ", ".join(LOG_ACTIONS), found=show(name))
    return name


def _pattern(value: str, info: ValidationInfo) -> str:
    if info.context is STORED:  # earlier releases took what Python takes
        return value
    try:
        Pattern(value)
    except ValueError as error:
        raise wrong("a regular expression of RE2", found=f"a pattern that is {error}") from None
    return value


class LogPolicy(Section):
    """What to do when a trial logs a line that matches ``pattern``."""

    omitted: ClassVar[frozenset[str]] = frozenset({"name", "pattern", "action"})

    name: Optional[str] = None
    pattern: Optional[Annotated[str, AfterValidator(_pattern)]] = None
    action: Optional[Annotated[str, BeforeValidator(_action)]] = None

    @model_validator(mode="after")
    def _named(self) -> LogPolicy:
        if self.name is None and (self.pattern is None or self.action is None):
            raise wrong("a name (or, as in older configurations, a pattern together with an action)", found="no name")
        return self


class RetentionPolicy(Section):
    log_retention_days: Annotated[Whole, Field(ge=-1, le=32767)]


class Webhooks(Section):
    webhook_id: Optional[list[Whole]] = None
    webhook_name: Optional[list[str]] = None
    exclude: bool = False


class Pachyderm(Section):
    class Daemon(Section):
        host: str
        port: Whole

    class Proxy(Section):
        scheme: str
        host: str
        port: Whole

    class Dataset(Section):
        project: str
        repo: str
        commit: str
        branch: str
        token: str

    pachd: Daemon
    proxy: Proxy
    dataset: Dataset


class Integrations(Section):
    pachyderm: Optional[Pachyderm] = None
    webhooks: Optional[Webhooks] = None


class Security(Section):
    class Kerberos(Section):
        config_file: str

    kerberos: Optional[Kerberos] = None
