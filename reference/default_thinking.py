"""Truth for the patch `default_thinking`: the prompt with thinking on and off."""

from reference.encoding import render
from reference.encoding_constants import read_constants
from reference.parser import parse

__all__ = ["parse", "read_constants", "render"]
