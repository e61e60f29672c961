"""The certificate that a master shows."""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
import tracemalloc
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509

from dethpc.config.site import Master
from dethpc.errors import Refused
from dethpc.master import certificate
from dethpc.master.certificate import LIFE, RENEWED_BEFORE, certificate_of
from dethpc.master.http.tls import Tls, tls_of
from dethpc.rundir.home import Home

NAMES = ["login1.example.org", "login1", "10.0.0.1", "::1"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.make()
    return made


def own(home: Home, names: list[str] = NAMES) -> x509.Certificate:
    file, key = certificate_of(home, Master(), names)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file, key)
    return x509.load_pem_x509_certificate(file.read_bytes())


def alternatives(found: x509.Certificate) -> list[str]:
    return [str(name.value) for name in found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value]


def test_a_first_start_makes_a_key_that_only_the_owner_may_read_and_later_ones_keep_it(home: Home) -> None:
    previous = os.umask(0)
    try:
        made = own(home)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(home.certificate_key.stat().st_mode) == 0o600
    assert alternatives(made) == NAMES
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    home.certificate_key.chmod(0o644)
    assert own(home) == own(home, [NAMES[0], "0:0:0:0:0:0:0:1"]) == made
    assert stat.S_IMODE(home.certificate_key.stat().st_mode) == 0o600
    assert not [name for name in os.listdir(home.root) if name.startswith(".")]


def test_clocks_may_differ_by_a_day_and_what_begins_to_be_old_is_made_anew(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(timezone.utc)
    made = own(home)
    assert made.not_valid_before_utc <= now - timedelta(hours=23)
    assert made.not_valid_after_utc >= now + timedelta(days=3649)
    monkeypatch.setattr(certificate, "RENEWED_BEFORE", LIFE - timedelta(minutes=1))
    assert own(home) == made
    monkeypatch.setattr(certificate, "RENEWED_BEFORE", LIFE + timedelta(minutes=1))
    renewed = own(home, NAMES[:1])
    assert renewed.public_key() != made.public_key() and alternatives(renewed) == NAMES
    assert timedelta(days=300) < RENEWED_BEFORE < LIFE / 2
    monkeypatch.undo()
    certificate._make(home, NAMES, now + timedelta(days=30))  # the clock was ahead then
    assert own(home).not_valid_before_utc <= now


def test_a_master_that_moves_between_hosts_is_known_under_the_names_of_all(home: Home) -> None:
    own(home)
    assert alternatives(own(home, ["login2"])) == ["login2", *NAMES]
    for number in range(40):
        last = own(home, [f"node{number}"])
    assert len(alternatives(last)) == 32 and alternatives(last)[:2] == ["node39", "node38"]


@pytest.mark.parametrize("damage", ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_files_that_are_damaged_or_do_not_belong_together_are_replaced(home: Home, damage: str) -> None:
    first = own(home)
    home.certificate.write_text(damage)
    second = own(home)
    key = home.certificate_key.read_bytes()
    home.certificate_key.unlink()
    third = own(home)
    home.certificate_key.write_bytes(key)
    assert len({first, second, third, own(home)}) == 4


def test_a_sites_certificate_is_used_as_it_is(home: Home, tmp_path: Path) -> None:
    own(home)
    both = tmp_path / "both.pem"
    both.write_bytes(home.certificate.read_bytes() + home.certificate_key.read_bytes())
    both.chmod(0o600)
    site = Master(certificate=str(home.certificate), key=str(home.certificate_key))
    elsewhere = Home(tmp_path / "elsewhere")
    elsewhere.make()
    shown = {
        Tls(*certificate_of(elsewhere, site, NAMES)).fingerprint(),
        Tls(*certificate_of(elsewhere, Master(certificate=str(both)), NAMES)).fingerprint(),
    }
    assert shown == {Tls(home.certificate, home.certificate_key).fingerprint()}
    assert not elsewhere.certificate.exists()


def test_a_sites_certificate_that_cannot_be_used_is_refused_with_its_reason(home: Home, tmp_path: Path) -> None:
    own(home)
    file, key = str(home.certificate), tmp_path / "key.pem"
    with pytest.raises(Refused, match=r"key\.pem: No such file"):
        certificate_of(home, Master(certificate=file, key=str(key)), NAMES)
    key.write_bytes(home.certificate_key.read_bytes())
    key.chmod(0o644)
    with pytest.raises(Refused, match="chmod o-rwx"):
        certificate_of(home, Master(certificate=file, key=str(key)), NAMES)
    key.chmod(0o640)  # as a group of servers has it
    certificate_of(home, Master(certificate=file, key=str(key)), NAMES)
    key.write_text("nothing")
    with pytest.raises(Refused, match="no certificate and its key"):
        tls_of(home, Master(tls="on", certificate=file, key=str(key)), "0.0.0.0", "login1")
    with pytest.raises(Refused, match="it holds no certificate in PEM"):
        tls_of(home, Master(tls="on", certificate=str(key), key=file), "0.0.0.0", "login1")


@pytest.mark.parametrize(
    ("tls", "host", "wanted"),
    [
        ("auto", "127.0.0.1", False),
        ("auto", "localhost", False),
        ("auto", "::1", False),
        ("auto", "0.0.0.0", True),
        ("auto", "::", True),
        ("auto", "10.0.0.1", True),
        ("auto", "login1", True),
        ("on", "127.0.0.1", True),
        ("off", "0.0.0.0", False),
    ],
)
def test_who_listens_beyond_this_machine_speaks_tls_unless_the_site_says_otherwise(
    home: Home, tls: str, host: str, wanted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    site = Master.model_validate({"tls": tls})
    assert (tls_of(home, site, host, "login1") is not None) is wanted
    plain_to_the_network = not wanted and host not in ("127.0.0.1", "localhost", "::1")
    assert ("what reads the network's packets" in caplog.text) is plain_to_the_network
    assert home.certificate.exists() is wanted


def test_who_does_not_end_a_handshake_holds_little_of_the_masters_memory(home: Home) -> None:
    tls = tls_of(home, Master(tls="on"), "127.0.0.1", "login1")
    assert tls is not None

    async def grown() -> int:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=tls.context)
        async with server:
            port = server.sockets[0].getsockname()[1]
            before, writers = tracemalloc.get_traced_memory()[0], []
            for _ in range(50):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"\x16\x03\x01")
                writers.append(writer)
            await asyncio.sleep(0.2)
            now = tracemalloc.get_traced_memory()[0]
            for writer in writers:
                writer.transport.abort()
        return now - before

    tracemalloc.start()
    try:
        assert asyncio.run(grown()) < 50 * 100_000
    finally:
        tracemalloc.stop()
