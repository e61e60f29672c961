"""Secrets in a configuration: hidden in whatever is shown, and put back into what comes home."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dethpc.config.source import dump, read
from dethpc.config.wording import MASK, SECRET, hide_passwords
from dethpc.errors import Path, Problem

_VARIABLE = re.compile(  # NAME=VALUE whose name promises a secret: by a part of it, or by one of its words
    r"(\w*(?:token|secret|passw(?:or)?d|passphrase|credentials?|(?:api|access|private|auth)_?key)\w*="
    r"|(?:\w+_)?(?:keys?|pass|pat|creds?|auth|dsn|webhook)(?:_\w+)?=|\w+_pwd(?:_\w+)?=)(.+)",
    re.IGNORECASE | re.DOTALL,
)
_SUSPICIOUS = re.compile(
    "|".join(
        [*SECRET, "token", "secret", "pass", "cred", "key", "auth", "dsn", "webhook", "pwd", r"pat[_=]", r"://[^\s/]*@"]
    ),
    re.IGNORECASE,
)


def masked(config: Any) -> Any:
    """A copy of ``config`` with ``MASK`` in place of each secret: the values of fields such as ``secret_key`` and of environment
    variables such as ``WANDB_API_KEY``, and passwords in addresses. Hyperparameters are shown: a ``token`` there is no secret.
    """
    return _masked(config, ())


def masked_text(text: str) -> str:
    """A YAML configuration with its secrets hidden; as it was written, if it has none."""
    if not _SUSPICIOUS.search(text):
        return text
    data = read(text, "config")[0].data
    hidden = masked(data)
    return text if hidden == data else dump(hidden)


def revealed(config: Any, known: Sequence[Any]) -> tuple[Any, list[Problem]]:
    """A copy of ``config`` in which each ``MASK`` is again the secret that the first of the ``known`` configurations has there, and
    one problem for each that none of them has.
    """
    problems: list[Problem] = []
    return _revealed(config, list(known), (), problems), problems


def _masked(value: Any, path: Path) -> Any:
    if path == ("hyperparameters",):
        return value
    if isinstance(value, Mapping):
        return {key: _masked(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_masked(item, (*path, i)) for i, item in enumerate(value)]
    if isinstance(value, str):
        return _hide(value, path)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return MASK if number and _is_secret(path) else value


def _hide(text: str, path: Path) -> str:
    if _is_secret(path):
        return MASK if text else text
    if "environment_variables" in path:
        text = _VARIABLE.sub(rf"\g<1>{MASK}", text) if _VARIABLE.fullmatch(text) else text
    return hide_passwords(text)


def _is_secret(path: Path) -> bool:
    return any(part in SECRET for part in path)


def _is_hidden(text: str, path: Path) -> bool:
    """Whether ``MASK`` in it stands for a secret and is not simply what was written."""
    return MASK in text and _hide(text.replace(MASK, "x"), path) == text


def _revealed(value: Any, known: Sequence[Any], path: Path, problems: list[Problem]) -> Any:
    if path == ("hyperparameters",):
        return value
    if isinstance(value, Mapping):
        return {
            key: _revealed(item, [k[key] for k in known if isinstance(k, Mapping) and key in k], (*path, key), problems)
            for key, item in value.items()
        }
    if isinstance(value, list):
        lists = [k for k in known if isinstance(k, (list, tuple))]
        return [
            _revealed(item, [one for k in lists for one in (*k[i : i + 1], *k)], (*path, i), problems)
            for i, item in enumerate(value)
        ]
    if not isinstance(value, str) or not _is_hidden(value, path):
        return value
    for secret in known:
        if isinstance(secret, (str, int, float)) and secret != value and _masked(secret, path) == value:
            return secret
    hint = "a fork of an experiment has its secrets, if it is sent with the parent's id"
    problems.append(Problem(path, f"{MASK}, which stands for a secret that was not shown", "the secret itself", hint))
    return value
