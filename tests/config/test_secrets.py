"""Secrets of a configuration: hidden where it is shown, put back where it comes home."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dethpc.config.secrets import masked_text, revealed
from dethpc.domain.secrets import MASK, SECRET, hide_passwords, hide_signatures, masked

CONFIG: dict[str, Any] = {
    "name": "token ring",
    "checkpoint_storage": {"type": "s3", "bucket": "b", "access_key": "AKIA", "secret_key": "hush", "prefix": None},
    "environment": {
        "environment_variables": {"cpu": ["PATH=/bin", "WANDB_API_KEY=w1", "HF_TOKEN=h=1"], "cuda": ["HF_TOKEN=h=2"]},
        "registry_auth": {"username": "ada", "password": "hush", "serveraddress": "https://ada:pw@registry:5000/x"},
    },
    "hyperparameters": {"token": "bpe", "auth": {"type": "int", "minval": 1, "maxval": 3}},
    "data": {"password": 1234, "auth": {"nested": ["hush", True]}},
}


def test_secrets_are_hidden_and_all_else_is_shown() -> None:
    assert masked(CONFIG) == {
        **CONFIG,
        "checkpoint_storage": {**CONFIG["checkpoint_storage"], "access_key": MASK, "secret_key": MASK},
        "environment": {
            "environment_variables": {
                "cpu": ["PATH=/bin", f"WANDB_API_KEY={MASK}", f"HF_TOKEN={MASK}"],
                "cuda": [f"HF_TOKEN={MASK}"],
            },
            "registry_auth": {
                "username": "ada",
                "password": MASK,
                "serveraddress": f"https://ada:{MASK}@registry:5000/x",
            },
        },
        "data": {"password": MASK, "auth": {"nested": [MASK, True]}},
    }
    assert CONFIG["checkpoint_storage"]["secret_key"] == "hush", "what runs get is untouched"


@pytest.mark.parametrize(
    "name",
    ["DB_PASS", "SSH_KEY", "GH_PAT", "PAT_GITHUB", "AWS_CREDS", "NPM_AUTH", "SENTRY_DSN", "GPG_PASSPHRASE", "DB_PWD"]
    + ["BEARER", "SESSION_COOKIE", "MY_NETRC", "CONNECTIONSTRING", "AZURE_CONNECTION_STRING", "ACCOUNTKEY"],
)
def test_a_variable_whose_name_promises_a_secret_is_hidden(name: str) -> None:
    variables = {"environment": {"environment_variables": [f"{name}=x1y2", f"URL=https://host/a?{name.lower()}=x3y4"]}}
    hidden = [f"{name}={MASK}", f"URL=https://host/a?{name.lower()}={MASK}"]
    assert masked(variables) == {"environment": {"environment_variables": hidden}}
    for one in variables["environment"]["environment_variables"]:
        text = masked_text(yaml.safe_dump({"environment": {"environment_variables": [one]}}))
        assert "x1y2" not in text and "x3y4" not in text


@pytest.mark.parametrize("name", ["PATH", "PWD", "MONKEYS", "KEYBOARD", "PATIENCE", "COMPASS", "AUTHOR", "PYTHONPATH"])
def test_a_variable_whose_name_only_looks_like_one_is_shown(name: str) -> None:
    variables = {"environment": {"environment_variables": [f"{name}=x1y2"]}}
    assert masked(variables) == variables


@pytest.mark.parametrize("name", sorted(SECRET))
def test_what_an_error_message_does_not_quote_no_answer_shows(name: str) -> None:
    assert masked({"section": {name: "hush"}}) == {"section": {name: MASK}}


def test_a_text_without_secrets_stays_as_it_was_written() -> None:
    plain = "name:   x  # the key to it all\nhyperparameters: {token: 3}\n"
    assert masked_text(plain) == plain
    secret = "checkpoint_storage:\n  # ours\n  secret_key: hush\n"
    assert yaml.safe_load(masked_text(secret)) == {"checkpoint_storage": {"secret_key": MASK}}


def test_a_configuration_that_comes_back_has_its_secrets_again() -> None:
    shown = {**masked(CONFIG), "name": "again"}
    assert revealed(shown, [{}, CONFIG]) == ({**CONFIG, "name": "again"}, [])


def test_a_secret_that_nobody_knows_is_a_mistake_with_its_place() -> None:
    _, problems = revealed(masked(CONFIG), [{"checkpoint_storage": CONFIG["checkpoint_storage"]}])
    assert {problem.path for problem in problems} >= {
        ("environment", "registry_auth", "password"),
        ("environment", "environment_variables", "cuda", 0),
    }
    assert not [problem for problem in problems if problem.path[0] == "checkpoint_storage"]


def test_asterisks_that_hide_nothing_stay() -> None:
    config = {"description": MASK, "hyperparameters": {"token": MASK}, "labels": [f"x={MASK}"]}
    assert revealed(config, [CONFIG]) == (config, [])


_KEYS = st.sampled_from(["name", "secret_key", "environment_variables", "data", "token", "hyperparameters"])
_VALUES = st.sampled_from(["", "x", "A_TOKEN=1", "http://a:b@c/", "http://c/?sig=b", "5*", 7, True, None])
_CONFIGS = st.dictionaries(_KEYS, st.recursive(_VALUES, lambda v: st.lists(v, max_size=2) | st.dictionaries(_KEYS, v)))


@given(_CONFIGS)
def test_hiding_is_done_once_and_undone_whole(config: dict[str, Any]) -> None:
    assert masked(masked(config)) == masked(config)
    assert revealed(masked(config), [config]) == (config, [])


def test_a_text_that_cannot_be_read_is_not_shown() -> None:
    """Of an earlier release, which took larger ones: it may hold secrets anywhere."""
    large = "checkpoint_storage: {secret_key: hush}\n" + "# padding\n" * 40_000
    assert "hush" not in masked_text(large)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("export A_TOKEN='two words' B=1", f"export A_TOKEN={MASK} B=1"),
        ('A_TOKEN="two \\" words" run', f"A_TOKEN={MASK} run"),
        ("A_TOKEN='over\nlines'\nB=1", f"A_TOKEN={MASK}\nB=1"),
        ("A_TOKEN=$(cat my file) B=1", f"A_TOKEN={MASK} B=1"),
        (r"A_TOKEN=a\ b B=1", f"A_TOKEN={MASK} B=1"),
        ("setenv A_TOKEN 'a b'; B=1", f"setenv A_TOKEN {MASK} B=1"),
        ("B='two words' setenv PATH x", "B='two words' setenv PATH x"),
        ('[ -z "${A_TOKEN:-}" ] || echo "ready"', '[ -z "${A_TOKEN:-}" ] || echo "ready"'),
        (': "${A_TOKEN:-it\'s}"; echo "x"', f': "${{A_TOKEN:-{MASK}}}"; echo "x"'),
        ("export A_TOKEN='two", f"export A_TOKEN={MASK}"),  # a line of several
        ('A_TOKEN="two\\', f"A_TOKEN={MASK}"),
        ("A_TOKEN=`cat my file` B=1", f"A_TOKEN={MASK} B=1"),
        ('run -e "A_TOKEN=two words" && echo "x"', f'run -e "A_TOKEN={MASK}" && echo "x"'),
        ("ARGS='-e A_TOKEN=x'; ls", f"ARGS='-e A_TOKEN={MASK}'; ls"),
        (": ${A_TOKEN:-${B:-x}y}; ls", f": ${{A_TOKEN:-{MASK}}}; ls"),
        ("A_TOKEN=${X:-two words} B=1", f"A_TOKEN={MASK} B=1"),
        ("A_TOKEN=$(cat $(ls) x) B=1", f"A_TOKEN={MASK} B=1"),
        ("A_TOKENS=( a 'b c' ) B=1", f"A_TOKENS={MASK} B=1"),
    ],
)
def test_the_whole_word_of_a_secret_in_shell_is_hidden(line: str, shown: str) -> None:
    config = {"environment": {"setup": line}}
    hidden = masked(config)
    assert hidden == {"environment": {"setup": shown}}
    assert masked(hidden) == hidden and revealed(hidden, [config]) == (config, [])


def test_secrets_in_shell_are_hidden_wherever_a_configuration_stands() -> None:
    setup = {"environment": {"setup": "export A_TOKEN=hush"}}
    assert "hush" not in str(masked({"invariant_config": setup}))


def test_a_default_of_a_secret_in_shell_is_hidden() -> None:
    assert "hush" not in str(masked({"environment": {"setup": ": ${GH_TOKEN:=hush}"}}))


def test_secrets_that_a_prologue_sets_are_hidden() -> None:
    lines = ["module load cuda", "export WANDB_API_KEY=hush && export HTTPS=https://u:hush@proxy PLAIN=seen"]
    assert masked({"pools": {"gpu": {"prologue": lines}}}) == {
        "pools": {
            "gpu": {
                "prologue": [lines[0], f"export WANDB_API_KEY={MASK} && export HTTPS=https://u:{MASK}@proxy PLAIN=seen"]
            }
        }
    }


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://ghp_123@host/a.git", f"https://{MASK}@host/a.git"),
        ("git+HTTPS://ghp_123:@host", f"git+HTTPS://{MASK}@host"),
        ("https://ghp_123:x-oauth-basic@host", f"https://{MASK}@host"),
        ("http://ada:p@ss@w:rd@proxy:3128/", f"http://ada:{MASK}@proxy:3128/"),
        ("postgresql://det:a@b@db/x", f"postgresql://det:{MASK}@db/x"),
        ("redis://:pw@db", f"redis://:{MASK}@db"),
        ("ssh://git@host/a.git", "ssh://git@host/a.git"),
        ("git@host:a.git", "git@host:a.git"),
        ("https://host/@scope/a", "https://host/@scope/a"),
        ("https://a:b@c,https://d@e", f"https://a:{MASK}@c,https://{MASK}@e"),
        ("https://host/a?token=hush&page=2", f"https://host/a?token={MASK}&page=2"),
        ("https://host/a?page=2&api-key=hush#top", f"https://host/a?page=2&api-key={MASK}#top"),
        ("https://x.blob.core.windows.net/c?sv=2&sig=hu%2Fsh%3D", f"https://x.blob.core.windows.net/c?sv=2&sig={MASK}"),
        ('"https://a/?token=hush" -o', f'"https://a/?token={MASK}" -o'),
        ("https://b.s3/k?X-Amz-Signature=hush", f"https://b.s3/k?X-Amz-Signature={MASK}"),
        ("https://host/a?author=me&page_token_size", "https://host/a?author=me&page_token_size"),
    ],
)
def test_nothing_secret_in_an_address_is_shown(address: str, shown: str) -> None:
    assert hide_passwords(f"from {address} it comes") == f"from {shown} it comes"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("GET /c/x?sv=2&sig=hu%2Fsh%3D failed", f"GET /c/x?sv=2&sig={MASK} failed"),
        ("/k?X-Amz-Credential=hush&X-Amz-Signature=hush", f"/k?X-Amz-Credential={MASK}&X-Amz-Signature={MASK}"),
        ("'/k?X-Goog-Signature=hush'", f"'/k?X-Goog-Signature={MASK}'"),
        ("AccountName=a;AccountKey=hu/sh==;BlobEndpoint=b", f"AccountName=a;AccountKey={MASK};BlobEndpoint=b"),
        ("https://a:hush@b/c?sig=hush", f"https://a:{MASK}@b/c?sig={MASK}"),
        ("NoSuchKey: key=runs/design=2", "NoSuchKey: key=runs/design=2"),
    ],
)
def test_no_signature_or_key_in_the_message_of_a_store_is_shown(message: str, shown: str) -> None:
    assert hide_signatures(message) == shown
