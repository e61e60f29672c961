"""A training API without its framework says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import LONG_ENOUGH

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("api", "extra"),
    [
        ("pytorch", "torch"),
        ("keras", "keras"),
        ("transformers", "transformers"),
        ("lightning", "lightning"),
    ],
)
def test_the_extra_is_named(api: str, extra: str) -> None:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import determined; determined.{api}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=LONG_ENOUGH
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: determined.{api} needs ")
    assert f": pip install 'dethpc[{extra}]' (No module named '" in last


def test_deepspeeds_extra_is_named_where_pytorch_is_there() -> None:
    pytest.importorskip("torch")
    blocked = "import sys; sys.modules['deepspeed'] = None; import determined.pytorch.deepspeed"
    done = subprocess.run(
        [sys.executable, "-c", blocked], cwd=ROOT, capture_output=True, text=True, timeout=LONG_ENOUGH
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: determined.pytorch.deepspeed needs DeepSpeed: pip install 'dethpc[deepspeed]'")


def test_keras_2_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keras.py").write_text("__version__ = '2.15.0'\n")
    program = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(tmp_path)!r}]; import determined.keras"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=LONG_ENOUGH
    )
    assert "ImportError: determined.keras needs Keras 3, and this is 2.15.0" in done.stderr


def test_deepspeed_is_named_where_there_is_only_pytorch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "deepspeed.py").write_text("raise ImportError('not here')\n")
    program = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; import determined.pytorch.deepspeed"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=LONG_ENOUGH)
    message = "ImportError: determined.pytorch.deepspeed needs DeepSpeed: pip install 'dethpc[deepspeed]' (not here)"
    assert done.stderr.splitlines()[-1] == message
