"""The project's own tests import `engine` and `kernels`, which no installation puts on the path."""

import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[1])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)
