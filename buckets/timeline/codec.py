"""The version of the encoding of timelines; `head` describes it."""

from typing import Final

CODEC_VERSION: Final = 1
