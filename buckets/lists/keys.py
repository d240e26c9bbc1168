"""The keys of a list: texts, the values of several columns, or networks that contain addresses.

The index stores every key as one text: a key of several columns as their JSON array, `["p1","b7"]`, a network as
address and prefix length, `10.0.0.0/8`. An address is found by its prefixes, the longest first:

    10.1.2.3 in a list with networks of 16 and 8 bits: looks for 10.1.0.0/16, then for 10.0.0.0/8
"""

import ipaddress
import json
import socket
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.arrays import Flags, Int64s
from buckets.json_text import write_json

MOST_PARTS: Final = 4  # Columns of the longest key
LONGEST_KEY: Final = 1_000  # Characters of the longest key
Match = Literal["text", "cidr"]
"""How keys are matched: by their text, or as networks that contain an address."""
Prefix = tuple[int, int]
"""The IP version of a network, and its prefix length."""
_OCTET: Final = "(?:0|[1-9][0-9]{0,2})"
_IPV4: Final = r"^(?P<a>O)\.(?P<b>O)\.(?P<c>O)\.(?P<d>O)(?P<prefix>/(?:0|[1-9][0-9]?))?$".replace("O", _OCTET)


@cache
def _octets() -> pa.Array:
    """Return all octets as texts; created on demand, since this loads pandas."""
    return pa.array([str(octet) for octet in range(256)], pa.large_string())


@dataclass(frozen=True, slots=True)
class KeyForm:
    """What the keys of a list consist of."""

    parts: int = 1  # columns of a key; 0 if unknown, in a list without columns and entries
    match: Match = "text"

    def read(self, written: str) -> str:
        """Normalise a key written by a person; raises ValueError if it is no key of such a list."""
        if not 0 < len(written) <= LONGEST_KEY:
            message = f"a key has 1 to {LONGEST_KEY:,} characters, and {len(written):,} are given"
            raise ValueError(message)
        if self.match == "cidr":
            return network_text(written)
        return written if self.parts <= 1 else self._of_parts(written)

    def _of_parts(self, written: str) -> str:
        try:
            values = json.loads(written)
        except (ValueError, RecursionError):
            values = None
        texts = isinstance(values, list) and all(isinstance(value, str) and value for value in values)
        if not texts or len(values) != self.parts:
            example = joined_text([f"k{part}" for part in range(1, self.parts + 1)])
            message = f"a key of this list is a JSON array of {self.parts} texts such as {example}, not {written!r}"
            raise ValueError(message)
        return joined_text(values)


TEXT_KEYS: Final = KeyForm()  # Of one column


def joined_text(parts: Iterable[str]) -> str:
    """Return the key made of several values."""
    return f"[{','.join(map(write_json, parts))}]"


def joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Return the keys made of several columns of texts, `(rows,)` each; null if a column is."""
    quoted = ([None if text is None else write_json(text) for text in part.to_pylist()] for part in parts)
    inside = _joined_by(",", *(pa.array(texts, pa.large_string()) for texts in quoted))
    return _joined_by("", pa.scalar("[", inside.type), inside, pa.scalar("]", inside.type))


def _joined_by(separator: str, *texts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*texts, pa.scalar(separator, pa.large_string()))


# --- networks ---------------------------------------------------------------------------------------------------


def network_text(written: str) -> str:
    """Normalise a network or address, IPv4 also if mapped into IPv6; raises ValueError for anything else."""
    try:
        network: ipaddress.IPv4Network | ipaddress.IPv6Network = ipaddress.ip_network(written)
    except ValueError:
        raise ValueError(_no_network(written)) from None
    if network.version == 6 and network.prefixlen >= 96:
        mapped = ipaddress.IPv6Address(int(network.network_address)).ipv4_mapped
        network = network if mapped is None else ipaddress.IPv4Network((int(mapped), network.prefixlen - 96))
    return f"{_address_text(network.version, int(network.network_address))}/{network.prefixlen}"


def _no_network(written: str) -> str:
    try:
        around = ipaddress.ip_network(written, strict=False)
    except ValueError:
        return f"{written!r} is no network; write one such as 10.0.0.0/8 or 2001:db8::/32, or an address"
    return f"{written!r} has bits set behind its prefix; write {around}, or the address alone"


def network_texts(written: pa.Array) -> pa.Array:
    """Normalise networks as `network_text` does; ValueError names the first invalid one, and its row from 1."""
    octets, is_ipv4, prefixes = _ipv4_of(written)
    masks = _mask(np.minimum(prefixes, 32))
    is_plain = is_ipv4 & (prefixes <= 32) & (octets & ~masks == 0)
    texts = _ipv4_texts(octets, pc.cast(pa.array(prefixes), pa.large_string()))
    others = np.flatnonzero(~is_plain)
    if not len(others):
        return texts
    found: list[str] = []
    for row, text in zip(others.tolist(), written.take(pa.array(others)).to_pylist(), strict=True):
        try:
            found.append(network_text(text))
        except ValueError as error:
            message = f"entry {row + 1:,}: {error}"
            raise ValueError(message) from None
    return pc.replace_with_mask(texts, pa.array(~is_plain), pa.array(found, pa.large_string()))


def prefixes_of(networks: pa.Array | Collection[str]) -> frozenset[Prefix]:
    """Return the prefixes of a list's networks."""
    if isinstance(networks, pa.Array):
        # The last four characters contain each network's prefix length.
        is_ipv6 = pc.match_substring(networks, ":")
        ends = {6: networks.filter(is_ipv6), 4: networks.filter(pc.invert(is_ipv6))}
        tails = {version: pc.unique(pc.utf8_slice_codeunits(texts, -4)).to_pylist() for version, texts in ends.items()}
        return frozenset((version, int(tail.rpartition("/")[2])) for version in tails for tail in tails[version])
    return frozenset((6 if ":" in text else 4, int(text.rpartition("/")[2])) for text in networks)


def networks_around(addresses: pa.Array, prefixes: Iterable[Prefix]) -> Iterator[pa.DictionaryArray]:
    """Yield the networks that contain addresses, one array `(rows,)` per prefix, the longest prefixes first.

    An element is null if the text is no address, or one of the other IP version.
    """
    coded = addresses.dictionary_encode()
    codes, texts = coded.indices, coded.dictionary.cast(pa.large_string())
    octets, is_ipv4, _ = _ipv4_of(texts, are_addresses=True)
    ipv6, is_ipv6 = _ipv6_of(texts, octets, is_ipv4)
    versions = {4: is_ipv4, 6: is_ipv6}
    for version, bits in sorted(prefixes, key=lambda prefix: prefix[1], reverse=True):
        places = np.cumsum(versions[version]) - 1
        if not len(places) or places[-1] < 0:
            continue
        if version == 4:
            masked = octets[is_ipv4] & _mask(np.array(bits))
            networks = _ipv4_texts(masked, pa.scalar(str(bits), pa.large_string()))
        else:
            mask = (1 << 128) - (1 << (128 - bits))
            within = [address & mask for address in ipv6]
            written = {network: f"{_address_text(6, network)}/{bits}" for network in set(within)}
            networks = pa.array([written[network] for network in within], pa.large_string())
        of_text = pa.array(places, pa.int32(), mask=~versions[version])
        yield pa.DictionaryArray.from_arrays(of_text.take(codes), networks)


def _address_text(version: int, number: int) -> str:
    if version == 6 and number >> 48:  # for smaller numbers C writes a part as IPv4
        return socket.inet_ntop(socket.AF_INET6, number.to_bytes(16, "big"))
    return str(ipaddress.IPv4Address(number) if version == 4 else ipaddress.IPv6Address(number))


def _mask(bits: Int64s) -> Int64s:
    """Return the IPv4 masks, int64, for prefixes of this many bits."""
    return (1 << 32) - (np.int64(1) << (32 - bits))


def _ipv4_of(texts: pa.Array, are_addresses: bool = False) -> tuple[Int64s, Flags, Int64s]:
    """Parse IPv4 addresses: the numbers, which texts are addresses, and the prefix lengths, 32 if none is written."""
    parts = pc.extract_regex(texts, _IPV4)
    is_one = parts.is_valid().to_numpy(zero_copy_only=False)
    number = np.zeros(len(texts), np.int64)
    for name in "abcd":
        octet = pc.cast(pc.struct_field(parts, name), pa.int64()).fill_null(0).to_numpy()
        is_one &= octet < 256
        number = number << 8 | octet
    written = pc.fill_null(pc.struct_field(parts, "prefix"), "")
    if are_addresses:
        is_one &= pc.equal(written, "").to_numpy(zero_copy_only=False)
    prefixes = pc.cast(pc.if_else(pc.equal(written, ""), "32", pc.utf8_slice_codeunits(written, 1)), pa.int64())
    return number, is_one, prefixes.to_numpy().copy()


def _ipv4_texts(numbers: Int64s, prefixes: pa.Array | pa.Scalar) -> pa.Array:
    octets = [_octets().take(pa.array(numbers >> shift & 255)) for shift in (24, 16, 8, 0)]
    return _joined_by("/", _joined_by(".", *octets), prefixes)


def _ipv6_of(texts: pa.Array, octets: Int64s, is_ipv4: Flags) -> tuple[list[int], Flags]:
    """Parse IPv6 addresses, and return them with a mask of their texts; mapped IPv4 addresses go into `octets`."""
    numbers, is_ipv6 = [], np.zeros(len(texts), np.bool_)
    for place in np.flatnonzero(~is_ipv4).tolist():
        try:
            address = ipaddress.IPv6Address(texts[place].as_py())
        except ValueError:
            continue
        if address.ipv4_mapped is not None:
            octets[place], is_ipv4[place] = int(address.ipv4_mapped), True
        else:
            numbers.append(int(address))
            is_ipv6[place] = True
    return numbers, is_ipv6
