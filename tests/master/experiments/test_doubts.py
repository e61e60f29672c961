from __future__ import annotations

import pytest
import yaml

from dethpc.config.environment import Environment
from dethpc.master.experiments import doubts


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("python: /nowhere/bin/python3", "environment.python: /nowhere/bin/python3 is not on this machine"),
        ("python: /usr/bin/python3", ""),
        (
            "setup: ['module load x', 'source /nowhere/bin/activate']",
            "/nowhere/bin/activate, which it reads, is not on",
        ),
        (
            "setup: ['. /etc/profile', 'source $VENV/bin/activate', 'if true; then']",
            "syntax error: unexpected end of file",
        ),
        ("setup: ['. /etc/profile', 'source ~/$X', 'false']", ""),
    ],
)
def test_what_cannot_work_as_far_as_the_login_node_can_tell_is_told(section: str, told: str) -> None:
    notes = list(doubts.notes(Environment.model_validate(yaml.safe_load(section))))
    assert told in "\n".join(notes) if told else not notes
