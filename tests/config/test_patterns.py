"""Users' regular expressions cost time in proportion to the text, and those that cannot are refused with a reason."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dethpc.config.patterns import LONGEST, Pattern
from dethpc.domain.secrets import masked


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a+)+$", "a" * 1_000_000 + "!"),
        ("(a|a)*b", "a" * 1_000_000),
        ("(x+x+)+y", "x" * 1_000_000),
        (".*.*=.*;", "=" * 1_000_000),
    ],
)
def test_a_pattern_that_python_needs_years_for_is_answered(pattern: str, text: str) -> None:
    code = (
        "from dethpc.config.patterns import Pattern; "
        f"print(Pattern({pattern!r}).found_in({text[0]!r} * {len(text) - 1} + {text[-1]!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize(
    "pattern", ["CUDA error", r"loss: \d+\.\d+", "(?i)nan", r"\bOOM\b", r"(?P<name>x)y{2,5}", "é+"]
)
def test_what_people_search_for_is_found(pattern: str) -> None:
    Pattern(pattern)


def test_letters_beyond_ascii_and_case_count() -> None:
    assert (
        Pattern("é{2}").found_in("caféé")
        and Pattern("(?i)cuda").found_in("a CUDA b")
        and not Pattern("cuda").found_in("CUDA")
    )


@pytest.mark.parametrize("pattern", ["(?=a)b", "(?!a)b", "(?<=a)b", r"(a)\1", "(?P<n>a)(?P=n)", "(?>a)"])
def test_what_cannot_be_matched_in_bounded_time_is_refused_with_that_reason(pattern: str) -> None:
    with pytest.raises(ValueError, match="bounded time"):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", ["(", "[", "*", "a**", "(?", "\udc80"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", ["a" * (LONGEST + 1), "((a{1000}){1000}){1000}", r"(\pL{100}){10}"])
def test_a_pattern_that_is_large_or_grows_large_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="too l"):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", [r"a[\s\S]*b", "a[^|]+b", r"a\s*b"])
def test_a_search_among_many_lines_goes_beyond_the_end_of_none(pattern: str) -> None:
    """Else each of ten thousand lines with an ``a`` would be read to the end of the block."""
    seek = Pattern(pattern).among_lines()
    assert seek is not None and seek(b"\ta\n\tb\n\ta b\n", 0) == 7


def test_the_name_of_a_variable_is_judged_in_one_pass() -> None:
    """A mebibyte of ``token_token_...`` without an end took hours as one expression."""
    for word in ("token", "_key", "a_pwd_", "x_"):
        text = word * (1 << 18) + "-"
        config = {"environment": {"environment_variables": [text + "=x"]}}
        assert masked(config) == config
