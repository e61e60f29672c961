"""Names and texts that people give to things."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from dethpc.domain.text import names
from dethpc.errors import Refused


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": "a\x1b[31m"}, "the name of an experiment has only characters that can be seen"),
        ({"name": "x" * 1001}, "the name of an experiment has at most 1000 characters"),
        ({"labels": ["good", "b\nd"]}, "the name of a label has only"),
        ({"labels": [" "]}, "a label needs a name"),
        ({"labels": [str(n) for n in range(201)]}, "an experiment has at most 200 labels, not 201"),
        ({"description": "a\x00"}, r"the description of an experiment: there are no control characters .* not '\\x00'"),
        ({"notes": "x" * 20_001}, "the notes of an experiment: there are at most 20000 characters, not 20001"),
    ],
)
def test_what_cannot_be_shown_is_no_name_and_no_text(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(Refused, match=says):
        names.check_fields("experiment", fields)
    names.check_fields("experiment", fields, SimpleNamespace(**fields))  # a client sends back what it read


@pytest.mark.parametrize("noun", ["model", "template", "workspace", "project"])
def test_a_folder_of_an_address_is_no_name(noun: str) -> None:
    for name in (".", ".."):
        with pytest.raises(Refused, match=f"the name of a {noun} cannot be '{re.escape(name)}'"):
            names.check(noun, name)
    names.check(noun, "...")


def test_notes_have_lines_and_every_script() -> None:
    names.check_fields(
        "model", {"notes": "# Title\r\n\tcode \u200d\N{PILE OF POO}", "labels": ["\N{SNOWMAN}"], "name": "a b"}
    )
