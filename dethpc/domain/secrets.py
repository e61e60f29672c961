"""Which parts of a configuration are secrets, and how it looks without them."""

from __future__ import annotations

import re
from typing import Any, Mapping

from dethpc.errors import Path

SECRET = frozenset(
    {
        "access_key",
        "account_url",
        "auth",
        "connection_string",
        "credential",
        "identitytoken",
        "password",
        "registrytoken",
        "secret_key",
        "token",
    }
)


MASK = "********"
"""What stands for a secret; Determined shows the same."""

_USER_IN_URL = re.compile(r"(https?|)://([^\s/]+)@", re.IGNORECASE)  # a password may hold an "@"
_NO_PASSWORDS = ("", "x-oauth-basic")  # what stands where a password would, when the name is a token
_IN_QUERY = re.compile(r"""([?&])([\w.-]{1,100})=([^\s&#"'<>]+)""")  # of an address
_SIGNATURES = frozenset({"sig", "signature"})
_SIGNED = r"(?i)\b(sig|signature|accountkey|x-(?:amz|goog)-[a-z-]+)=[^&;\s'\"]+"  # rarely needed: compiled when it is


def hide_passwords(text: str) -> str:
    """``text`` with ``MASK`` in place of each password in an address, and of what promises a secret in its query: ``?token=``, the
    signatures of Azure and S3. A name that stands alone is one for ssh, as in ``ssh://git@host``, and a token for the web."""
    if "://" not in text:
        return text
    return _IN_QUERY.sub(_without_secret, _USER_IN_URL.sub(_without_password, text))


def hide_signatures(text: str) -> str:
    """As ``hide_passwords``, of an object store's message, where signatures and keys also stand outside of an address: in its path
    with the query alone, or in a connection string of Azure's."""
    return hide_passwords(re.sub(_SIGNED, rf"\1={MASK}", text))


def _without_secret(match: re.Match[str]) -> str:
    before, name, _ = match.groups()
    plain = name.replace("-", "_").replace(".", "_")
    secret = _promises_secret(plain) or not _SIGNATURES.isdisjoint(plain.lower().split("_"))
    return f"{before}{name}={MASK}" if secret else match[0]


def _without_password(match: re.Match[str]) -> str:
    scheme, user = match.groups()
    name, _, password = user.partition(":")
    if password in _NO_PASSWORDS:
        return f"{scheme}://{MASK}@" if scheme else match[0]
    return f"{scheme}://{name}:{MASK}@"


def without_user(address: str) -> str:
    """``address`` with ``MASK`` in place of all that a user or a password before its host may be."""
    before, at, host = address.rpartition("@")
    scheme, colon, _ = before.rpartition("://")
    return f"{scheme}{colon}{MASK}@{host}" if at else address


# What promises a secret in the name of a variable: a part of it, one of its words, or a word that is not the first.
_PART = re.compile(
    r"token|secret|passw(?:or)?d|passphrase|credential|(?:api|access|private|auth|account)_?key|connection_?string|bearer|cookie"
)
_TERMS = frozenset({"key", "keys", "pass", "pat", "cred", "creds", "auth", "dsn", "webhook", "netrc"})
_LATER_WORD = "pwd"
SUSPICIOUS = re.compile(
    "|".join([*SECRET, _PART.pattern, *_TERMS - {"pat"}, r"pat(?:\b|_)", *_SIGNATURES, _LATER_WORD, r"://[^\s/]*@"]),
    re.IGNORECASE,
)
"""A text in which it finds nothing holds no secret."""
_SHELL = frozenset({"environment_variables", "prologue", "setup"})  # fields that set variables
# Where lines of shell give a variable its value, by what comes before the name; the value is looked for behind the match.
_SETTING = re.compile(
    r"""\$\{(?P<default>\w+):?[-=+]|\bsetenv\s+(?P<setenv>\w+)\s+|"(?P<double>\w+)=|'(?P<single>\w+)=|\b(?P<plain>\w+)[:+]?="""
)
_INSIDE = r"""\$?\((?:[^()]|\([^()]*\))*(?:\)|\Z)|\$\{[^}]*(?:\}|\Z)"""  # a command, a list, another variable
_UNQUOTED = rf"""{_INSIDE}|`[^`]*(?:`|\Z)|\\.|[^\s"'\\`]"""
_QUOTED = r""""(?:[^"\\]|\\.)*(?:"|\\?\Z)|'[^']*(?:'|\Z)"""  # one that is not closed is a part of a longer text
# A quote behind a word may be one that is around it, so it must end on its line.
_WORD = rf"""(?:{_QUOTED}|{_UNQUOTED})(?:{_UNQUOTED}|"[^"\n]*"|'[^'\n]*')*"""
_VALUES = {
    "default": re.compile(rf"""(?s)(?:"[^"\n]*"|'[^'\n]*'|{_INSIDE}|[^}}])+"""),
    "setenv": re.compile(rf"(?s){_WORD}"),
    "double": re.compile(r"""(?s)(?:[^"\\]|\\.)+"""),
    "single": re.compile(r"""[^']+"""),
    "plain": re.compile(rf"(?s){_WORD}"),
}


def masked(config: Any) -> Any:
    """A copy of ``config`` with ``MASK`` in place of each secret: the values of fields such as ``secret_key`` and of environment
    variables such as ``WANDB_API_KEY``, and passwords in addresses. Hyperparameters are shown: a ``token`` there is no secret.
    """
    return masked_at(config, ())


def masked_at(value: Any, path: Path) -> Any:
    """As ``masked``, of what is at ``path`` in a configuration."""
    return _masked(value, path, is_secret(path), not _SHELL.isdisjoint(path))


def _masked(value: Any, path: Path, secret: bool, shell: bool) -> Any:
    """``secret``, ``shell``: whether a part of ``path`` says so. A list of experiments hides those of a hundred configurations."""
    if path == ("hyperparameters",):
        return value
    if isinstance(value, str):
        plain = not secret and not shell and "://" not in value
        return value if plain else hide(value, path)
    if value is None or isinstance(value, (int, float)):
        return MASK if secret and value is not None and not isinstance(value, bool) else value
    if isinstance(value, (list, tuple)):
        return [_masked(item, (*path, i), secret, shell) for i, item in enumerate(value)]
    if isinstance(value, dict) or isinstance(value, Mapping):  # noqa: SIM101 - what is no dict takes long to tell
        sensitive = secret or shell
        return {
            key: item
            if not sensitive and key not in _TELLING and _says_nothing(item)
            else _masked(item, (*path, key), secret or key in SECRET, shell or key in _SHELL)
            for key, item in value.items()
        }
    return value


_TELLING = SECRET | _SHELL


def _says_nothing(value: Any) -> bool:
    """It is no secret unless its path says so."""
    kind = type(value)
    return kind in _NUMBERS or (kind is str and "://" not in value)


_NUMBERS = frozenset({int, float, bool, type(None)})


def hide(text: str, path: Path) -> str:
    """``text``, which is at ``path`` in a configuration, without what is secret in it."""
    if is_secret(path):
        return MASK if text else text
    if "environment_variables" in path:
        name, is_set, value = text.partition("=")
        text = f"{name}={MASK}" if is_set and value and _promises_secret(name) else text
    if "prologue" in path or ("environment", "setup") in zip(path, path[1:]):
        text = _hide_settings(text)
    return hide_passwords(text)


def _hide_settings(text: str) -> str:
    """Lines of shell, with ``MASK`` for the values of variables whose names promise a secret. Where one may end in two places, it
    is hidden to the later one."""
    parts, done, position = [], 0, 0
    while setting := _SETTING.search(text, position):
        position = setting.end()
        form = str(setting.lastgroup)
        if _promises_secret(setting[form]) and (value := _VALUES[form].match(text, position)):
            parts += [text[done:position], MASK]
            done = position = value.end()
    return "".join([*parts, text[done:]])


def _promises_secret(name: str) -> bool:
    """No single expression: one that finds a word between others takes time that grows with the square of the name."""
    parts = name.lower().split("_")
    return name.replace("_", "x").isalnum() and (
        bool(_PART.search(name.lower())) or not _TERMS.isdisjoint(parts) or _LATER_WORD in parts[1:]
    )


def is_secret(path: Path) -> bool:
    return any(part in SECRET for part in path)
