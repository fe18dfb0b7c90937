"""Certificates, keys and the coordinator's door: who it is, and which sites may connect.

One certificate authority signs the coordinator's certificate; every site gets a copy of the
authority's certificate, and a key pair of its own whose public half is registered.

Flower serves sites and operators on one port, and asks operators for no key: whoever reaches that
port can register sites and start runs. So the SuperLink listens on this host alone, and what comes
from outside passes a proxy, nginx, that knows one path (``docs/deployment.md``).
"""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedcover.errors import UsageError

DAYS = 365
AUTHORITY = "fedcover authority"
HERE = ("localhost", "127.0.0.1")  # how the SuperLink's own processes call it
CA, CERTIFICATE, KEY = "ca.crt", "server.pem", "server.key"
FLEET = "/v1/fleet/"  # where a SuperNode's requests go; each is signed with the site's key


def make_certificates(folder: Path, hosts: Sequence[str], days: int = DAYS) -> None:
    """An authority, and a certificate for a coordinator that is reached under these names."""
    if not hosts:
        raise UsageError("hosts is empty; give the names or addresses of the coordinator.")
    folder.mkdir(parents=True, exist_ok=True)
    authority, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    above, of_server = authority.public_key(), key.public_key()
    root = _certificate(AUTHORITY, above, days, signs=True).add_extension(
        x509.SubjectKeyIdentifier.from_public_key(above), critical=False
    )
    server = _certificate(hosts[0], of_server, days, signs=False)
    for extension in (
        x509.SubjectAlternativeName([_host(h) for h in dict.fromkeys([*hosts, *HERE])]),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(above),
    ):
        server = server.add_extension(extension, critical=False)
    for name, certificate in ((CA, root), (CERTIFICATE, server)):
        signed = certificate.sign(authority, hashes.SHA384())
        (folder / name).write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    _write_private(folder / KEY, key, serialization.PrivateFormat.PKCS8)


def make_site_key(path: Path) -> Path:
    """A site's private key; the public one, ``PATH.pub``, is for the coordinator to register."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    _write_private(path, key, serialization.PrivateFormat.OpenSSH)
    public, ssh = path.with_name(f"{path.name}.pub"), serialization.PublicFormat.OpenSSH
    spelt = key.public_key().public_bytes(serialization.Encoding.OpenSSH, ssh)
    public.write_bytes(spelt + b"\n")
    return public


def nginx(folder: Path, port: int, superlink: str) -> str:
    """An nginx ``server`` block: TLS with the keys in ``folder`` outside, and inside too."""
    return f"""server {{
    listen {port} ssl;
    ssl_certificate     {folder / CERTIFICATE};
    ssl_certificate_key {folder / KEY};
    client_max_body_size 0;
    location {FLEET} {{
        proxy_pass https://{superlink};
        proxy_ssl_trusted_certificate {folder / CA};
        proxy_ssl_verify on;
        proxy_ssl_name localhost;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_request_buffering off;
        proxy_buffering off;
        proxy_read_timeout 300s;
    }}
    location / {{
        return 403;
    }}
}}
"""


def _write_private(
    path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat
) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    plain = serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))


def _certificate(
    subject: str, key: ec.EllipticCurvePublicKey, days: int, *, signs: bool
) -> x509.CertificateBuilder:
    """One of the authority's; whether it ``signs`` others is what may be done with its key."""
    now, others = datetime.now(UTC), "content_commitment key_encipherment data_encipherment"
    usage = x509.KeyUsage(
        digital_signature=not signs,
        key_agreement=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        **dict.fromkeys(f"{others} encipher_only decipher_only".split(), False),
    )
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(AUTHORITY))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(signs, 0 if signs else None), critical=True)
        .add_extension(usage, critical=True)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
