"""The contract, for stores of objects: what each kind's test class inherits from."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path
from typing import Any, Dict

import pytest

from dethpc import storage
from dethpc.errors import CheckpointDamaged, CheckpointError
from dethpc.storage import CheckpointStore, manifest
from dethpc.storage.driver import Driver
from tests.storage.contract import FILES, CheckpointStoreContract, content_of, fill, stored, whole_or_none
from tests.storage.dying import died_at_each_step
from tests.storage.proxy import Proxy
from tests.storage.servers import Server
from tests.waiting import LONG_ENOUGH


class ObjectStoreContract(CheckpointStoreContract):
    @pytest.fixture
    def server(self) -> Server:
        raise NotImplementedError

    @pytest.fixture
    def store(self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckpointStore:
        monkeypatch.setattr(Driver, "pause", 0.02)
        self.the_server, self.tmp_path, self.section = server, tmp_path, server.section()
        store: Any = storage.build(self.section, disk=str(tmp_path / "disk"))
        assert store._driver.fs is not None  # whatever the environment says later
        return store  # type: ignore[no-any-return]

    def elsewhere(self, store: Any) -> CheckpointStore:
        return storage.build(self.section, disk=str(self.tmp_path / "another-disk"))

    def damage(self, store: Any, uuid: str, path: str) -> None:
        content = self.the_server.objects(self.section)[f"{uuid}/{path}"]
        self.the_server.put(self.section, f"{uuid}/{path}", bytes([content[0] ^ 1]) + content[1:])

    def replace_manifest(self, store: Any, uuid: str, text: bytes) -> None:
        self.the_server.put(self.section, f"{uuid}/{manifest.NAME}", text)

    def beside(self, store: Any, folder: str) -> Dict[str, bytes]:
        found = self.the_server.objects(self.section)
        return {name[len(folder) + 1 :]: content for name, content in found.items() if name.startswith(f"{folder}/")}

    def test_a_manifest_names_nothing_outside_of_its_checkpoint(
        self, store: Any, server: Server, tmp_path: Path
    ) -> None:
        with stored(store, "a1") as path:
            fill(path)
        evil = manifest.encoded({"../../x": manifest.Checksum(1, None)})
        server.put(self.section, f"a1/{manifest.NAME}", evil)
        for read in (lambda: store.download("a1", tmp_path / "there"), lambda: list(store.read("a1"))):
            with pytest.raises(CheckpointDamaged, match="no file of a checkpoint can be called"):
                read()

    def test_a_name_that_no_server_keeps_as_it_is_is_refused_at_once(self, store: Any) -> None:
        for name in (b"\xff.pt", b"a\nb.pt"):
            Path(os.fsdecode(os.path.join(os.fsencode(store.stage("a1")), name))).write_bytes(b"1")
            with pytest.raises(CheckpointError, match="rename it"):
                store.publish("a1")
            store.discard("a1")
        names = sorted(["wei\xdf \u2713 +&=.pt", "100% #1?.pt", "%41%2e%2F.pt", "a%/b#/c?d", "a%/", "a%/b#/"])
        with stored(store, "a1") as path:
            fill(path, {name: b"1" for name in names if not name.endswith("/")})
        assert [content.path for content in store.read("a1")] == names
        with store.restore("a1") as path:
            assert sorted(content_of(path)) == [name for name in names if not name.endswith("/")]
        assert "100% #1?.pt" not in store.delete("a1", ["100*"]) and store.delete("a1") == {}
        assert not self.the_server.objects(self.section)

    def test_faults_on_the_way_are_met_by_trying_again(
        self, store: Any, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # So many that they end: a call of three requests of which each third meets a fault would never come to its own end.
        turns, faults = itertools.count(1), iter(["500", "away", "503", "short"] * 2)
        with Proxy(server.url, lambda *_: None if next(turns) % 3 else next(faults, None)) as proxy:
            far = storage.build(server.through(self.section, proxy.url, monkeypatch), disk=str(tmp_path / "far"))
            with stored(far, "a1") as path:
                fill(path)
            with far.restore("a1") as path:
                assert content_of(path) == FILES
            assert {"500", "away", "503", "short"} <= set(proxy.met)
            # While the proxy is there: a driver that is made now may find its server by what ``through`` has set.
            assert self.elsewhere(store).files("a1") == store.files("a1")

    def test_what_is_refused_is_said_and_not_asked_again(
        self, store: Any, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with stored(store, "a1") as path:
            fill(path)

        refused = [lambda method, path: method not in ("GET", "HEAD")]
        with Proxy(server.url, lambda *asked: "403" if refused and refused[0](*asked) else None) as proxy:
            far = storage.build(server.through(self.section, proxy.url, monkeypatch), disk=str(tmp_path / "far"))
            fill(far.stage("a2"))
            with pytest.raises(OSError) as failed:
                far.publish("a2")
            assert str(far) in str(failed.value) and not far.may_come_back(failed.value)
            assert proxy.met == ["403"]
            refused[0] = lambda method, path: "weights" in path
            with pytest.raises(OSError) as failed:
                far.download("a1", tmp_path / "there")
            assert str(far) in str(failed.value) and proxy.met == ["403"] * 2
            refused.clear()
            assert content_of(far.stage("a2")) == FILES, "it is staged still"
            far.publish("a2")
            with far.restore("a2") as path:
                assert content_of(path) == FILES

    def test_a_full_disk_is_named_and_the_store_keeps_what_it_has(
        self, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with stored(store, "a1") as path:
            fill(path)
        with monkeypatch.context() as patched:
            patched.setattr("dethpc.storage.transfer.os.pwrite", full)
            with pytest.raises(OSError, match=f"No space left on device.*{tmp_path}/there"):
                store.download("a1", tmp_path / "there")
            with pytest.raises(OSError, match=f"No space left on device.*{tmp_path}/disk"), store.restore("a1"):
                pass
        with store.restore("a1") as path:
            assert content_of(path) == FILES

    def test_a_server_that_falls_silent_is_given_up_and_asked_again(
        self, store: Any, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Driver, "timeouts", (2.0, 2.0))
        silences = iter([None, None, "silent"])
        with Proxy(server.url, lambda *_: next(silences, None)) as proxy:
            far: Any = storage.build(server.through(self.section, proxy.url, monkeypatch), disk=str(tmp_path / "far"))
            far._patience = LONG_ENOUGH  # a busy machine is silent for two seconds, too
            with stored(far, "a1") as path:
                fill(path, {"state": b"1"})
            assert proxy.met == ["silent"]
        assert store.files("a1") == {"state": 1}

    def test_a_checkpoint_stays_staged_while_the_store_is_away_and_goes_up_when_it_is_back(
        self, store: Any, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        away = [True]
        with Proxy(server.url, lambda *_: "away" if away else None) as proxy:
            far: Any = storage.build(server.through(self.section, proxy.url, monkeypatch), disk=str(tmp_path / "far"))
            fill(far.stage("a1"))
            far._patience = 0.0
            with pytest.raises(OSError) as failed:
                far.publish("a1")
            assert not isinstance(failed.value, CheckpointError) and server.url not in str(failed.value)
            assert content_of(far.stage("a1")) == FILES and not store.exists("a1")
            far._patience = LONG_ENOUGH
            again = Driver.again

            def back_after_some_tries(self: Driver, call: Any, patience: float) -> Any:
                tries = itertools.count()

                def tried() -> Any:
                    if next(tries) == 1:
                        away.clear()
                    return call()

                return again(self, tried, patience)

            monkeypatch.setattr(Driver, "again", back_after_some_tries)
            far.publish("a1")
        with store.restore("a1") as path:
            assert content_of(path) == FILES

    def test_who_is_killed_at_any_step_of_saving_leaves_a_whole_checkpoint_or_none(
        self, store: Any, tmp_path: Path
    ) -> None:
        with stored(store, "before") as path:
            fill(path)
        died = died_at_each_step("save", self.section, tmp_path)
        assert died >= 2 * len(FILES)
        whole_or_none(store, ["before", f"a{died + 1}"], [f"a{step}" for step in range(1, died + 1)])
        brought = {name.partition("/")[0] for name in self.the_server.objects(self.section)}
        whole = {one.uuid for one in store.names() if one.whole}
        assert whole < brought, "somebody was killed in the middle"
        for uuid in brought - whole:
            store.discard(uuid)
        assert {name.partition("/")[0] for name in self.the_server.objects(self.section)} == whole

    def test_files_are_named_as_they_are(self, store: Any, tmp_path: Path) -> None:
        names = ["a b+c%20&d=e", "x*[y]", "#1", "q'uote\"", "50%", "w?y/z#", "?", "a@b"]
        odd = {name: str(n).encode() for n, name in enumerate(names)}
        with stored(store, "a1") as path:
            fill(path, odd)
        store.download("a1", tmp_path / "dst")
        assert content_of(tmp_path / "dst") == odd
        assert store.delete("a1", ["x*"]) == store.files("a1")
        assert store.delete("a1") == {} and not self.the_server.objects(self.section)

    def test_a_deletion_that_was_interrupted_is_finished_by_the_next(self, store: Any) -> None:
        with stored(store, "a1") as path:
            fill(path)
        self.the_server.put(self.section, "a1/.dethpc-deleted", b"")
        store._driver.remove([f"a1/{manifest.NAME}"])
        assert not store.exists("a1") and [one.whole for one in store.names()] == [False]
        assert store.delete("a1") == {}
        assert not self.the_server.objects(self.section)

    def test_what_determined_has_stored_is_read_and_deleted(self, store: Any, tmp_path: Path) -> None:
        for name in ("code/net.py", "metadata.json"):
            self.the_server.put(self.section, f"a1/{name}", b"{}")
        assert store.files("a1") == {"code/": 0, "code/net.py": 2, "metadata.json": 2}
        store.download("a1", tmp_path / "dst")
        assert content_of(tmp_path / "dst") == {"code/net.py": b"{}", "metadata.json": b"{}"}
        assert [one.whole for one in store.names()] == [True]
        assert store.delete("a1") == {} and not self.the_server.objects(self.section)
