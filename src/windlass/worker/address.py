"""Where the others reach this node: the address it calls the server from, and its interface."""

from __future__ import annotations

import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

_SIOCGIFADDR = 0x8915


def own_address(urls: List[str]) -> Tuple[str, Optional[str]]:
    """(address, interface) of the way to the first server that has one. Nothing is sent: to
    connect a datagram socket only asks the routing table."""
    from urllib.parse import urlsplit

    for url in urls:
        parts = urlsplit(url)
        if not parts.hostname:
            continue
        try:
            found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM)
        except OSError:
            continue
        for family, kind, protocol, _, there in found:
            try:
                with socket.socket(family, kind, protocol) as asked:
                    asked.connect(there)
                    host = asked.getsockname()[0]
                return host, _interface(host)
            except OSError:
                continue
    return "127.0.0.1", "lo"


def _interface(host: str) -> Optional[str]:
    """Whose address this is; None where that cannot be told (IPv6, another system)."""
    try:
        import fcntl

        wanted = socket.inet_aton(host)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            for _, name in socket.if_nameindex():
                try:
                    asking = struct.pack("256s", name.encode()[:15])
                    answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, asking)
                except OSError:
                    continue  # it has no address
                if answer[20:24] == wanted:
                    return name
    except (ImportError, OSError):
        pass
    return None
