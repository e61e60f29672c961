"""Names: what each is like, and some for experiments to which nobody gave one, so that lists can be read aloud."""

from __future__ import annotations

from random import Random
from typing import Any, Mapping

from dethpc.errors import Refused

_HOW = (
    "amber brisk calm candid clever copper coral crisp curious daring eager early fabled gentle glad golden hardy honest humble "
    "jolly keen kind lively loyal lucid lunar mellow merry mild misty nimble noble patient plucky polite proud quick quiet rapid "
    "rosy rustic sandy scarlet serene silent silver simple sincere snowy solar steady sturdy subtle sunny swift tidy upbeat "
    "velvet vivid warm wise witty zesty"
).split()
_WHAT = (
    "alder badger basil beacon birch bison brook canyon cedar comet condor coyote cricket delta dolphin elm ember falcon fern "
    "finch fjord gecko glacier harbor hazel heron ibex island jackal juniper kestrel lagoon lark lemur lichen linnet lynx maple "
    "marmot meadow meteor minnow newt oak orchid osprey otter pebble pine plover prairie quail quartz raven reef robin sparrow "
    "spruce summit swallow tern thistle tundra willow wren"
).split()


LONGEST = 200
"""Characters of a name, where a noun has no limit of its own."""

LONGEST_TITLE = 1000
"""Characters of a name that nothing is found by, such as an experiment's."""

MOST_LABELS = 200

LONGEST_TEXT = 20_000
"""Characters of a description, of notes and of a comment."""

_TEXTS = ("description", "notes", "comment")


def check(noun: str, name: str, longest: int = LONGEST) -> None:
    """Raises Refused for a name that cannot be told from others where it is shown, or has more than ``longest`` characters."""
    if not name.strip():
        raise Refused(f"{_a(noun)} needs a name")
    if len(name) > longest:
        raise Refused(f"the name of {_a(noun)} has at most {longest} characters, not {len(name)}")
    if not name.isprintable():
        raise Refused(f"the name of {_a(noun)} has only characters that can be seen, not {ascii(name)[:80]}")
    if name in (".", ".."):
        raise Refused(
            f"the name of {_a(noun)} cannot be {name!r}: names are parts of addresses, where that means a folder"
        )


def check_handle(noun: str, name: str, longest: int = LONGEST) -> None:
    """As ``check``, for a noun that commands find by its name or its id: one that is a number could mean another's id, and one that
    ends in a space looks like another's."""
    check(noun, name, longest)
    if name.isdecimal():
        raise Refused(f"the name of {_a(noun)} cannot be a number, such as {name}: numbers are ids")
    if name != name.strip():
        raise Refused(f"the name of {_a(noun)} cannot begin or end with a space, as {name!r} does")


def check_fields(noun: str, fields: Mapping[str, Any], before: object = None) -> None:
    """Raises Refused for a name, a label or a longer text among ``fields`` that is none. ``before``: their row. What is as it was
    there passes: clients send back what they read, which an earlier release or a configuration may have brought."""
    for field, value in fields.items():
        was = getattr(before, field, None)
        if field == "labels":
            if len(value) > max(MOST_LABELS, len(was or ())):
                raise Refused(f"{_a(noun)} has at most {MOST_LABELS} labels, not {len(value)}")
            for label in value:
                if label not in (was or ()):
                    check("label", label)
        elif field == "name" and value and value != was:
            check(noun, value, LONGEST_TITLE)
        elif field in _TEXTS and value != was:
            _check_text(f"{field} of {_a(noun)}", value)


def _check_text(what: str, text: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise Refused(f"the {what}: there are at most {LONGEST_TEXT} characters, not {len(text)}")
    if control := next((c for c in text if c not in "\t\n\r" and (c < " " or "\x7f" <= c < "\xa0")), ""):
        raise Refused(
            f"the {what}: there are no control characters in it but tabs and ends of lines, not {ascii(control)}"
        )


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def check_template(name: str) -> None:
    """As ``check``. The name of a template is a part of its address as well."""
    check("template", name)
    if "/" in name:
        raise Refused(f"{name!r} is no name for a template: it is a part of an address, so it has no '/'")


def made_up(source: str) -> str:
    """``Experiment (brisk-otter)``. The same ``source`` gives the same name."""
    draw = Random(source)
    return f"Experiment ({draw.choice(_HOW)}-{draw.choice(_WHAT)})"
