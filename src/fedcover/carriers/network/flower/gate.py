"""The coordinator's door: nginx before the SuperLink, open for what sites need and nothing else.

Flower serves sites and operators on one port, and asks operators for no key: whoever reaches that
port can register sites and start runs. So the SuperLink listens on this host alone, and what comes
from outside passes a proxy that knows one path (``docs/deployment.md``).
"""

from __future__ import annotations

from pathlib import Path

from fedcover.carriers.network.flower import keys

FLEET = "/v1/fleet/"
"""Where a SuperNode's requests go; each is signed with the site's key."""


def nginx(folder: Path, port: int, superlink: str) -> str:
    """An nginx ``server`` block: TLS with the keys in ``folder`` outside, and inside too."""
    return f"""server {{
    listen {port} ssl;
    ssl_certificate     {folder / keys.CERTIFICATE};
    ssl_certificate_key {folder / keys.KEY};
    client_max_body_size 0;
    location {FLEET} {{
        proxy_pass https://{superlink};
        proxy_ssl_trusted_certificate {folder / keys.CA};
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
