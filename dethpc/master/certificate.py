"""The TLS certificate that a master presents: its own, created at its first start, or the site's.

``det`` compares its fingerprint with the one in ``master.json`` and ignores issuer, names and dates. The published client and
browsers check names and dates: hence the list of names and the long validity.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import stat
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from dethpc.config.site import Master
from dethpc.errors import Refused
from dethpc.rundir.files import replacement
from dethpc.rundir.home import Home

if TYPE_CHECKING:  # loaded only where a certificate is made or looked at: 50 ms, which a master on loopback spares
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

log = logging.getLogger(__name__)

LIFE = timedelta(days=3650)
"""Ten years: nothing is gained by a shorter one, as who steals the key has the owner's token, too, and can be locked out at once
(remove both files, restart the master). It must outlast the longest time that a master may run on."""

RENEWED_BEFORE = timedelta(days=365)
"""A master that starts with less left makes another certificate."""

SKEW = timedelta(days=1)
"""How far the clocks of other machines may be behind."""

_NAMES = 32  # that are kept of the hosts where the master ran: as a Slurm job it may have seen hundreds


def certificate_of(home: Home, site: Master, names: Sequence[str]) -> tuple[Path, Path]:
    """The files of the certificate and of its key. ``names``: the hosts and addresses that the master's own must be good for.

    Raises Refused when the site's cannot be used, OSError.
    """
    if site.certificate is None:
        _own(home, [_normal(name) for name in names], datetime.now(timezone.utc))
        return home.certificate, home.certificate_key
    certificate, key = Path(site.certificate), Path(site.key or site.certificate)
    try:
        if os.stat(key).st_mode & stat.S_IRWXO:
            raise Refused(f"{key} may be read by everybody, who could then pass for this master: chmod o-rwx {key}")
        certificate.read_bytes()
    except OSError as error:
        raise Refused(f"master.certificate: {error.filename}: {error.strerror}") from None
    return certificate, key


def _own(home: Home, names: Sequence[str], now: datetime) -> None:
    """Make the master's own unless there is one that fits and lasts."""
    certificate = _read(home)
    if certificate is None:
        log.info("makes a certificate: %s", home.certificate)
    else:
        before = _names_in(certificate)
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if not begin <= now < end - RENEWED_BEFORE:  # it begins late where this machine's clock was ahead
            log.info("makes another certificate: that of before is good from %s to %s", begin, end)
        elif not set(names) <= set(before):
            log.info("makes another certificate, which is good for %s, too", ", ".join(sorted({*names} - {*before})))
        else:
            os.chmod(home.certificate_key, 0o600)
            return
        names = [*names, *(name for name in before if name not in names)][:_NAMES]
    _make(home, names, now)


def _read(home: Home) -> x509.Certificate | None:
    """The certificate in the home; None when there is none that this master can use."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        certificate = x509.load_pem_x509_certificate(home.certificate.read_bytes())
        key = load_pem_private_key(home.certificate_key.read_bytes(), None)
        return certificate if certificate.public_key() == key.public_key() else None  # a crash between the two files
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        log.warning("cannot use the certificate in %s: %s", home.root, error)
        return None


def _make(home: Home, names: Sequence[str], now: datetime) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    plain = serialization.NoEncryption()
    _write(
        home.certificate_key,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain),
    )
    _write(home.certificate, _signed(key, names, now).public_bytes(serialization.Encoding.PEM))


def _signed(key: ec.EllipticCurvePrivateKey, names: Sequence[str], now: datetime) -> x509.Certificate:
    """It signs itself, and can sign no other: who trusts it trusts this server alone."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "dethpc master")])
    public = key.public_key()
    usage = dict.fromkeys(
        [
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "key_cert_sign",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ],
        False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + LIFE)
    )
    for extension, critical in (
        (x509.SubjectAlternativeName([_general_name(name) for name in names]), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.KeyUsage(digital_signature=True, **usage), True),
        (x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectKeyIdentifier.from_public_key(public), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(public), False),
    ):
        builder = builder.add_extension(extension, critical)
    return builder.sign(key, hashes.SHA256())


def _normal(name: str) -> str:
    """An address has several spellings."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names_in(certificate: x509.Certificate) -> list[str]:
    from cryptography import x509

    try:
        alternative_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in alternative_names]


def _write(path: Path, content: bytes) -> None:
    with replacement(path) as file:
        file.write(content)
