"""No text of a user's moves a terminal's cursor or begins a line of a log."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from dethpc.domain.text.escapes import escaped, in_one_line


@given(st.text(st.characters(codec=None), max_size=30))
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    for shown, kept in ((escaped(text), "\t\n"), (in_one_line(text), "")):
        assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in kept]
        assert not [
            c
            for c in shown
            if unicodedata.bidirectional(c) in ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI", "PDI")
        ]
        shown.encode()


def test_what_people_write_stays_as_it_is() -> None:
    text = "é 漢字\u3000(full width) 👩‍🔬\tcolumn\nline"
    assert escaped(text) == text
    assert escaped("\x1b]52;c;aGk=\x07\x9b2J\r") == r"\x1b]52;c;aGk=\x07\x9b2J\r"
