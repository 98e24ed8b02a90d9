"""The address of a run's page: chosen and printed before the command starts, and served from its first loader on.

Promise: an address is printed only if its port was free a moment ago. Who serves the page later and cannot have it prints
another one.
"""

import ipaddress
import secrets
import socket
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from stoker import speak

_NOWHERE = ipaddress.ip_address("192.0.2.1")  # of no machine: RFC 5737


def announce(address: str, token_file: str | None) -> str:
    """Print where the page will be, and return that; nothing, and an empty text, if it cannot be there.

    address: HOST:PORT; port 0: any.
    """
    host, port = host_and_port(address)
    try:
        with socket.create_server((host, port), family=family_of(host)) as free:
            url = url_of(host, free.getsockname()[1], token_of(token_file))
    except (OSError, ValueError):
        return ""  # who serves it says why
    speak.say(f"page: {url} (it answers from the first DataLoader on)")
    return url


def as_announced(url: str, address: str) -> tuple[str, str]:
    """Return where to serve a page that was announced, and its token. address: that was asked for."""
    parts = urlsplit(url)
    host = address.rpartition(":")[0]  # the printed one may be the machine's name
    return f"{host}:{parts.port}", parse_qs(parts.query)["token"][0]


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def url_of(host: str, port: int, token: str) -> str:
    """Return what is printed; of an address that means all of this machine's, its name."""
    if (_ip_of(host) or _NOWHERE).is_unspecified:
        host = socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/?token={quote(token, safe='')}"


def is_loopback(host: str) -> bool:
    return host == "localhost" or (_ip_of(host) or _NOWHERE).is_loopback


def _ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def token_of(file: str | None) -> str:
    """Return the token that a file holds; a new one without a file. Raises OSError, ValueError for an empty one.

    What it should be is checked before the run (cli/checks/services.py).
    """
    if file is None:
        return secrets.token_urlsafe(18)
    text = Path(file).read_text().strip()
    if not text:
        raise ValueError(f"{file} is empty")
    return text
