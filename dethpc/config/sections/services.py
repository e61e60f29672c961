"""Sections for what watches an experiment from outside: ``log_policies``, ``retention_policy``, ``integrations``, ``security``."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Optional

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from dethpc.config.patterns import Pattern
from dethpc.config.sections.section import STORED, Section, Whole, mistaken, wrong
from dethpc.config.wording import show
from dethpc.domain.attempts import log_policies


def _action(value: Any) -> Any:
    name = value.get("type") if isinstance(value, dict) and set(value) == {"type"} else value
    if name not in log_policies.ACTIONS:
        raise wrong("one of " + ", ".join(log_policies.ACTIONS), value=show(name))
    return name


def _pattern(value: str, info: ValidationInfo) -> str:
    if info.context is STORED:  # earlier releases took what Python takes
        return value
    try:
        Pattern(value)
        log_policies.compiled(value)  # what nodes judge by
    except ValueError as error:
        raise mistaken(f"is no regular expression of RE2: {error}") from None
    return value


class LogPolicy(Section):
    """What to do when a trial logs a line that matches ``pattern``. A name alone takes the default policy of that name away."""

    omitted: ClassVar[frozenset[str]] = frozenset({"name", "pattern", "action"})

    name: Optional[str] = None
    pattern: Optional[Annotated[str, AfterValidator(_pattern)]] = None
    action: Optional[Annotated[str, BeforeValidator(_action)]] = None

    @model_validator(mode="after")
    def _named(self) -> LogPolicy:
        if self.name is None and (self.pattern is None or self.action is None):
            raise mistaken("must have a name (or, as in older configurations, a pattern together with an action)")
        return self


# Not checked, which would load RE2 in whatever reads a configuration.
USUAL_LOG_POLICIES = (
    LogPolicy.model_construct(name="CUDA OOM", pattern=".*CUDA out of memory.*"),
    LogPolicy.model_construct(name="ECC Error", pattern=".*uncorrectable ECC error encountered.*"),
)


def _with_usual(policies: list[LogPolicy], info: ValidationInfo) -> list[LogPolicy]:
    if info.context is STORED:
        return policies
    named = {policy.name for policy in policies}
    return [*policies, *(policy for policy in USUAL_LOG_POLICIES if policy.name not in named)]


LogPolicies = Annotated[list[LogPolicy], AfterValidator(_with_usual)]


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
