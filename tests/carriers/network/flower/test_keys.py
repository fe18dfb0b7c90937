"""Certificates as TLS libraries want them, and keys as Flower wants them."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedcover.carriers.network.flower.keys import (
    CA,
    CERTIFICATE,
    KEY,
    make_certificates,
    make_site_key,
)
from fedcover.errors import UsageError


def handshake(folder: Path, authority: Path, host: str) -> None:
    """A real TLS handshake of Python's own ssl module."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    client = ssl.create_default_context(cafile=authority)
    left, right = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(left, server_side=True).close()
        except (ssl.SSLError, OSError):
            left.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client.wrap_socket(right, server_hostname=host).close()
    finally:
        right.close()
        thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "coordinator.example.org"])
def test_the_certificate_is_good_for_its_hosts(tmp_path: Path, host: str) -> None:
    make_certificates(tmp_path, ["coordinator.example.org", "127.0.0.1"])
    handshake(tmp_path, tmp_path / CA, host)


def test_another_host_and_another_authority_are_refused(tmp_path: Path) -> None:
    make_certificates(tmp_path / "a", ["coordinator.example.org"])
    make_certificates(tmp_path / "b", ["coordinator.example.org"])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path / "a", tmp_path / "a" / CA, "elsewhere.example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path / "a", tmp_path / "b" / CA, "coordinator.example.org")


def test_private_keys_are_their_owners_alone(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["localhost"])
    public = make_site_key(tmp_path / "site")
    for name in (KEY, "site"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    private = load_ssh_private_key((tmp_path / "site").read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert load_ssh_public_key(public.read_bytes()) == private.public_key()


def test_no_hosts_no_certificate(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="hosts"):
        make_certificates(tmp_path, [])
