"""Egress policy: which hosts requests of schedules may go to."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias
from urllib.parse import urlsplit

from kron.core.fields import invalid_value
from kron.core.plan.compiled import cached_by_text

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
# IPv6 networks whose addresses end in an IPv4 address (RFC 6052, RFC 4291).
TRANSLATED, COMPATIBLE = ip_network("64:ff9b::/96"), ip_network("::/96")
# IANA's registries of special-purpose addresses, with the multicast and the deprecated site-local ones. Those
# that hold an IPv4 address (above, and 2002::/16) are judged by it.
SPECIAL: tuple[Network, ...] = tuple(
    ip_network(word)
    for word in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24",
        "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
        "::/128", "::1/128", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23", "2001:db8::/32",
        "2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
    )
)  # fmt: skip
# URLs and hosts whose parsed form is kept, because a schedule sends to the same one each time.
MAX_REMEMBERED = 1_024
NOT_LISTED = "is not among the hosts the settings allow (allowed_hosts)"
NOT_PUBLIC = "is not a public address; allowed_hosts has to name it"


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPolicy:
    """Allowed hosts and networks.

    `names` None allows every name. An address that is not public has to be in one of `networks`, whatever its
    name. `urls` are those of the operator, and always allowed.
    """

    names: frozenset[str] | None = None
    networks: tuple[Network, ...] = ()
    urls: frozenset[str] = frozenset()

    def fault_of(self, url: str) -> str | None:
        """Return why a URL is refused, as far as can be decided without resolving its host."""
        if url in self.urls:
            return None
        host = host_of(url)
        address = _literal(host)
        if address is not None:
            return self._fault_of_address(address, host)
        # Networks alone do not limit names; the addresses of a name are checked when it is resolved.
        by_address = not self.names and bool(self.networks)
        is_listed = self.names is None or host in self.names or by_address
        return None if is_listed else NOT_LISTED

    def fault_of_addresses(self, url: str, addresses: Iterable[str]) -> str | None:
        """Return why one of the resolved addresses of a host is refused."""
        if url in self.urls:
            return None
        host = host_of(url)
        for text in addresses:
            fault = self._fault_of_address(_plain(ip_address(text.partition("%")[0])), host)
            if fault is not None:
                return fault
        return None

    def _fault_of_address(self, address: Address, host: str) -> str | None:
        if any(address.version == network.version and address in network for network in self.networks):
            return None
        if self.names is not None and host not in self.names:
            return NOT_LISTED
        return None if is_public(address) else NOT_PUBLIC


def is_public(address: Address) -> bool:
    """Return whether an address is one of the public internet."""
    is_special = any(address.version == network.version and address in network for network in SPECIAL)
    return address.is_global and not is_special


def egress_policy_of(words: Iterable[str] | None, *, urls: Iterable[str] = ()) -> EgressPolicy:
    """Return the policy of a list of names, addresses and networks such as 10.0.0.0/8; None lists none."""
    if words is None:
        return EgressPolicy(urls=frozenset(urls))
    networks = {word: network for word in words if (network := _network(word)) is not None}
    names = frozenset(word.lower() for word in words if word not in networks)
    return EgressPolicy(names=names, networks=tuple(networks.values()), urls=frozenset(urls))


def check_host(word: str) -> str:
    """Return an entry of a list of hosts, or refuse it; URLs and ports are none."""
    if _network(word) is None and ("/" in word or ":" in word or "*" in word):
        raise invalid_value(word, "must be a host's name, an address, or a network such as 10.0.0.0/8")
    return word


def is_public_host(word: str) -> bool:
    """Return whether an entry of a list of hosts allows public addresses only; a name always does."""
    network = _network(word)
    if network is None:
        return True
    return is_public(_plain(network[0])) and is_public(_plain(network[-1]))


@cached_by_text(MAX_REMEMBERED)
def host_of(url: str) -> str:
    """Return the host of a URL in lower case."""
    return (urlsplit(url).hostname or "").lower()


def is_address(host: str) -> bool:
    """Return whether a host is an address, which needs no resolving."""
    return "%" not in host and _literal(host) is not None


def _network(word: str) -> Network | None:
    try:
        return ip_network(word.strip("[]"))
    except ValueError:
        return None


@cached_by_text(MAX_REMEMBERED)
def _literal(host: str) -> Address | None:
    try:
        return _plain(ip_address(host.partition("%")[0]))
    except ValueError:
        return None


def _plain(address: Address) -> Address:
    """Return the IPv4 address in an IPv6 one, or the address as it is."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address in TRANSLATED or (address in COMPATIBLE and int(address) > 1):
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address
