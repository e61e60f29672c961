"""What goes along with an experiment."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.context import LIMIT
from dethpc.context.collect import Context, collect
from dethpc.errors import ContextError
from dethpc.exec.setup.unpack import unpack
from dethpc.master.durable.contexts import pack
from tests.example_counts import examples


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def paths(context: Context) -> list[str]:
    return [entry.path for entry in context.entries]


def files(context: Context) -> list[str]:
    return [entry.path for entry in context.entries if entry.type != tarfile.DIRTYPE]


def test_files_and_directories_go_along_a_directory_before_what_is_in_it(tmp_path: Path) -> None:
    write(tmp_path, **{"model.py": "x", "a/b/c.py": "y", "a-b": "z"})
    (tmp_path / "empty").mkdir()
    assert paths(collect(tmp_path)) == ["a", "a/b", "a/b/c.py", "a-b", "empty", "model.py"]


def test_the_wire_form_is_determineds(tmp_path: Path) -> None:
    write(tmp_path, **{"d/train.py": "print()"})
    (tmp_path / "d/train.py").chmod(0o750)
    os.utime(tmp_path / "d/train.py", (1000, 1000))
    (tmp_path / "link").symlink_to("d/train.py")
    directory, file, link = collect(tmp_path).model_definition()
    assert (directory["type"], file["type"], link["type"]) == (53, 48, 50)
    assert file == {
        "path": "d/train.py",
        "type": 48,
        "content": base64.b64encode(b"print()").decode(),
        "mtime": 1000,
        "mode": 0o750,
        "uid": 0,
        "gid": 0,
    }
    assert base64.b64decode(link["content"]) == b"d/train.py"


def test_compiled_python_never_goes_along(tmp_path: Path) -> None:
    write(tmp_path, **{"a.py": "", "a.pyc": "", "p/__pycache__/x": "", ".detignore": "!*.pyc\n!__pycache__\n"})
    assert files(collect(tmp_path)) == ["a.py"]


def test_what_tools_leave_in_a_folder_stays_there_unless_an_exception_takes_it_back(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{"a.py": "", "wandb/run": "", "sub/node_modules/x/y.js": "", "mlruns/0/meta.yaml": "", "mywandb/z": ""},
    )
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / ".venv")], check=True)
    assert any(path.is_symlink() for path in tmp_path.rglob(".venv/bin/*")), "which lead out of the folder"
    context = collect(tmp_path)
    assert files(context) == ["a.py", "mywandb/z"]
    assert sorted(context.left_out) == [".venv", "mlruns", "sub/node_modules", "wandb"]
    write(tmp_path, **{".detignore": "!wandb\n!/mlruns/\n"})
    assert files(collect(tmp_path)) == ["a.py", "mlruns/0/meta.yaml", "mywandb/z", "wandb/run"]


def test_all_that_cannot_be_sent_is_told_at_once(tmp_path: Path) -> None:
    write(tmp_path / "ctx", **{"one.py": "", "sub/x": ""})
    write(tmp_path, **{"one.py": ""})
    (tmp_path / "ctx/sub/up").symlink_to("../../secret")
    (tmp_path / "ctx/out").symlink_to("/etc/passwd")
    with open(tmp_path / "ctx/huge.bin", "wb") as file:
        file.truncate(LIMIT + 1)
    with pytest.raises(ContextError) as caught:
        collect(tmp_path / "ctx", [tmp_path / "one.py"])
    told = str(caught.value)
    for words in (
        "ctx/out is a link to /etc/passwd",
        "ctx/sub/up is a link to ../../secret",
        "'one.py'",
        "95.0 MiB  huge.bin",
    ):
        assert words in told
    for number in range(100):
        (tmp_path / f"ctx/out{number}").symlink_to("/etc/passwd")
    with pytest.raises(ContextError, match="and 82 more like these") as caught:
        collect(tmp_path / "ctx")
    assert str(caught.value).count("is a link to") == 20


def test_only_the_ignore_file_at_the_top_counts_and_none_goes_along(tmp_path: Path) -> None:
    write(tmp_path, **{"a/.detignore": "*", "a/x": "", "y.bin": "", ".detignore": "*.bin\n"})
    assert files(collect(tmp_path)) == ["a/x"]


NAMES = ["with space", "ünïcode", "new\nline", "-leading", "$(echo)", "quo'te\"", "back\\slash", "#hash", "!bang", "*"]


@pytest.mark.parametrize("name", NAMES)
def test_odd_names_survive(tmp_path: Path, name: str) -> None:
    write(tmp_path, **{f"{name}/{name}": "x"})
    assert [item["path"] for item in collect(tmp_path).model_definition()] == [name, f"{name}/{name}"]


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    try:
        with open(os.fsencode(tmp_path) + b"/\xff", "w"):
            pass
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    with pytest.raises(ContextError, match="UTF-8"):
        collect(tmp_path)


def test_links_stay_links_and_broken_ones_go_along(tmp_path: Path) -> None:
    write(tmp_path, **{"data/x": "x" * 100})
    (tmp_path / "dir").symlink_to("data")
    (tmp_path / "data/up").symlink_to("../data/x")
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "absolute").symlink_to(tmp_path / "data" / "x")
    context = collect(tmp_path)
    links = {entry.path: entry.link for entry in context.entries if entry.type == tarfile.SYMTYPE}
    assert links == {"dir": "data", "data/up": "../data/x", "broken": "nowhere", "absolute": "data/x"}
    assert context.total == 100


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "a/../../outside", "a/../b"])
def test_a_link_to_outside_is_refused_unless_ignored(tmp_path: Path, target: str) -> None:
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(ContextError, match=r"link.*outside.*\.detignore"):
        collect(tmp_path)
    write(tmp_path, **{".detignore": "link\n"})
    assert collect(tmp_path).entries == ()


def test_what_is_sent_is_what_a_node_unpacks(tmp_path: Path) -> None:
    context = tmp_path / "context"
    write(context, **{"a/run.sh": "#!/bin/sh", "a/deep/x": "", **{name: name for name in NAMES}})
    (context / "a/run.sh").chmod(0o755)
    (context / "empty").mkdir()
    (context / "a/link").symlink_to("../a/deep")
    (context / "broken").symlink_to("nowhere")
    sent = [SimpleNamespace(**item) for item in collect(context).model_definition()]
    archive = tmp_path / "context.tar.gz"
    archive.write_bytes(pack(sent))
    assert archive.read_bytes() == pack(sent)
    (tmp_path / "node").mkdir()
    unpack(str(archive), str(tmp_path / "node"))

    def listing(root: Path) -> list[tuple[str, int, str]]:
        found = sorted(root.rglob("*"))
        links = [os.readlink(path) if path.is_symlink() else "" for path in found]
        return [(str(p.relative_to(root)), p.lstat().st_mode, link) for p, link in zip(found, links, strict=True)]

    assert [row[::2] for row in listing(tmp_path / "node")] == [row[::2] for row in listing(context)]
    assert os.access(tmp_path / "node/a/run.sh", os.X_OK)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x", "a/../../../x", ""])
def test_a_master_takes_no_link_to_outside(target: str) -> None:
    content = base64.b64encode(target.encode()).decode()
    link = SimpleNamespace(path="d/link", type=50, content=content, mtime=0, mode=0o777)
    with pytest.raises(ContextError, match="outside"):
        pack([link])


@pytest.mark.parametrize("path", ["a\ud800b", "\udc80"])
def test_a_path_that_is_no_unicode_text_is_refused_in_words(path: str) -> None:
    with pytest.raises(ContextError, match="is not Unicode text"):
        pack([SimpleNamespace(path=path, type=ord(tarfile.REGTYPE), content="", mtime=0, mode=0o644)])


def test_sockets_and_pipes_stay_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        assert collect(tmp_path).entries == ()


def test_too_much_names_the_largest_files(tmp_path: Path) -> None:
    for name, size in (("small", 1 << 20), ("weights.bin", 60 << 20), ("data.npy", 36 << 20)):
        with open(tmp_path / name, "wb") as file:
            file.truncate(size)
    with pytest.raises(ContextError) as caught:
        collect(tmp_path)
    message = str(caught.value)
    assert "97.0 MiB" in message and "95.0 MiB" in message and ".detignore" in message
    assert message.index("60.0 MiB  weights.bin") < message.index("36.0 MiB  data.npy") < message.index("small")
    write(tmp_path, **{".detignore": "*.bin\n"})
    assert collect(tmp_path).total == 37 << 20


def test_the_limit_itself_is_allowed(tmp_path: Path) -> None:
    with open(tmp_path / "x", "wb") as file:
        file.truncate(LIMIT)
    assert collect(tmp_path).total == LIMIT


def test_includes_stand_at_the_top_under_their_own_names(tmp_path: Path) -> None:
    write(
        tmp_path, **{"ctx/train.py": "", "lib/code/x.py": "", "lib/skip.me": "", "lib/.detignore": "*.me", "one.py": ""}
    )
    context = collect(tmp_path / "ctx", [tmp_path / "lib", tmp_path / "one.py"])
    assert paths(context) == ["lib", "lib/code", "lib/code/x.py", "one.py", "train.py"]
    assert paths(collect(None, [tmp_path / "one.py"])) == ["one.py"]
    assert collect(None).entries == ()


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    write(tmp_path, **{"ctx/one.py": "", "one.py": ""})
    with pytest.raises(ContextError, match=r"one\.py"):
        collect(tmp_path / "ctx", [tmp_path / "one.py"])


def test_a_context_that_is_a_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, **{"one.py": ""})
    with pytest.raises(ContextError, match="not a directory.*--include"):
        collect(tmp_path / "one.py")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, **{"secret": ""})
    (tmp_path / "secret").chmod(0)
    with pytest.raises(ContextError, match="secret cannot be read"):
        collect(tmp_path)


def test_a_file_that_goes_away_or_grows_is_named(tmp_path: Path) -> None:
    write(tmp_path, **{"gone": "", "log": "1"})
    gone, log = collect(tmp_path).entries
    (tmp_path / "gone").unlink()
    (tmp_path / "log").write_text("12")
    with pytest.raises(ContextError, match="gone cannot be read"):
        gone.content()
    with pytest.raises(ContextError, match="log is being written to"):
        log.content()


# --- git as the judge -------------------------------------------------------------------------------------------------

TREE = [
    *("a/a", "a/b/a", "a/b/x.log", "a/keep/y.txt", "b/a b", "b/.hid/x.log", "b/[k]/a", "keep/x.log", "keep/b/keep"),
    *("x.log", "y.txt", "a b", "-n", "ü", ".hid", "[k]", "c/ü/a", "c/x.pyc", "c/__pycache__/m", "d/e/f/g/h.txt"),
]
SEGMENTS = [
    "*",
    "**",
    "a",
    "b",
    "keep",
    "*.log",
    "x.*",
    "?",
    "[ab]",
    "[!a]",
    "ke*",
    "a b",
    ".hid",
    "ü",
    r"\[k\]",
    "[k]",
]
SEGMENTS += ["*b", "-n", "[a-c]*", r"\a", r"a\ b", "[[:alpha:]]", r"\*", "d", "f", "*.txt"]
TABLE = [
    "*.log\n!x.log",
    "a\n!a/b",
    "*\n!*/\n!*.txt",
    "/*\n!/keep",
    "/*\n!/keep\n/keep/*\n!/keep/b",
    "a/\n!a/keep/",
    "a/*\n!a/keep",
    "*.log\n!keep/",
    "**/f",
    "d/**/h.txt",
    "d/**",
    "# comment\n\n   \n\\#x",
    "a b",
    "x.log  ",
    "link",
    "link/",
    "!x.log\n*.log",
    "b/**/x.log",
    "\r\n*.txt\r\n",
    "!\n\\\n*.txt\\\n!x.log\\\n",  # to git they mean nothing
    "\ufeff*.txt",
]


@st.composite
def ignore_lines(draw: st.DrawFn) -> str:
    body = "/".join(draw(st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=3)))
    start = draw(st.sampled_from(["", "", "", "!", "!", "/", "!/", "#"]))
    return start + body + draw(st.sampled_from(["", "", "", "/", "/", " "]))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    write(root, **dict.fromkeys(TREE, ""))
    (root / "link").symlink_to("a")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def assert_as_git(tree: Path, text: str) -> None:
    (tree / ".detignore").write_text(text)
    exclude = tree / ".git" / "exclude-for-test"
    exclude.write_text(text + "\n*.pyc\n__pycache__\n.detignore\n")
    listing = subprocess.run(
        ["git", "-C", str(tree), "ls-files", "--others", "-z", f"--exclude-from={exclude}"],
        check=True,
        capture_output=True,
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"},
    ).stdout.decode()
    ours = files(collect(tree))
    assert sorted(ours) == sorted(path for path in listing.split("\0") if path)


@pytest.mark.parametrize("text", TABLE)
def test_known_cases_are_as_git_has_them(tree: Path, text: str) -> None:
    assert_as_git(tree, text)


@settings(max_examples=examples(100), deadline=None)
@given(lines=st.lists(ignore_lines(), min_size=1, max_size=4))
def test_any_patterns_are_as_git_has_them(tree: Path, lines: list[str]) -> None:
    assert_as_git(tree, "\n".join(lines))


def test_a_home_of_dethpcs_is_never_sent_whatever_brings_files_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, **{"train.py": "x", ".detignore": "!.dethpc\n!state\n!token\n", "sub/token": "of a language model"})
    write(tmp_path, **{"sub/.dethpc/token": "key", "sub/.dethpc/cluster.json": "{}"})  # one of another day
    write(tmp_path, **{"state/runs/1.1.1/spec.json": "{}"})
    monkeypatch.setenv("DETHPC_HOME", str(tmp_path / "state"))
    context = collect(tmp_path)
    assert paths(context) == ["sub", "sub/token", "train.py"] and sorted(context.homes) == ["state", "sub/.dethpc"]

    (tmp_path.parent / "other").symlink_to(tmp_path)
    context = collect(None, [tmp_path.parent / "other" / "sub", tmp_path / "train.py"])
    assert files(context) == ["sub/token", "train.py"] and context.homes == ("sub/.dethpc",)
    assert collect(tmp_path.parent / "other").homes == collect(tmp_path).homes


def test_a_home_is_no_context_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, **{"train.py": "x"})
    monkeypatch.setenv("DETHPC_HOME", str(tmp_path))
    with pytest.raises(ContextError, match="never sent"):
        collect(tmp_path)
    monkeypatch.setenv("DETHPC_HOME", str(tmp_path / "elsewhere"))
    assert paths(collect(tmp_path)) == ["train.py"]


def test_a_context_that_is_a_little_too_large_is_told_by_how_much(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(bytes((1 << 20) + 2048))
    with pytest.raises(ContextError, match=r"come to 1\.0 MiB; the limit is 1\.0 MiB \(2,048 bytes over it\)"):
        collect(tmp_path, limit=1 << 20)
