"""The version in which timelines are written as bytes; `head` says what each version has."""

from typing import Final

CODEC_VERSION: Final = 1
