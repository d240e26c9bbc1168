"""Messages that are damaged on their way, for tests of decoders."""

import random
from dataclasses import dataclass

PIECE = 1000
"""Messages that are decoded together."""


@dataclass
class Fuzzed:
    """How many damaged messages were read as the vendor reads them, and how many were broken."""

    read: int = 0
    broken: int = 0

    def count(self, is_read: bool) -> None:
        """Count a message."""
        self.read += is_read
        self.broken += not is_read


def damaged(rng: random.Random, message: bytes) -> bytes:
    """A message that is left whole, cut, lengthened, or has some of its bits or bytes changed."""
    changed = bytearray(message)
    match rng.randrange(6) if message else 2:
        case 1:
            del changed[rng.randrange(len(changed)) :]
        case 2:
            changed += rng.randbytes(rng.randrange(1, 9))
        case 3:
            for _ in range(rng.randrange(1, 4)):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        case 4:
            at = rng.randrange(len(changed))
            changed[at : at + rng.randrange(1, 5)] = rng.randbytes(rng.randrange(4))
        case 5:
            changed[rng.randrange(len(changed))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
    return bytes(changed)
