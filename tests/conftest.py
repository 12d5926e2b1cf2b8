"""The project's own tests import `engine` and `kernels`, which no installation puts on the path."""

import os
import sys
from pathlib import Path

from hypothesis import settings

ROOT = str(Path(__file__).parents[1])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

# A proxy that this machine needs for its packages has no business between a test and 127.0.0.1.
for name in ("NO_PROXY", "no_proxy"):
    os.environ[name] = "127.0.0.1,localhost"

# A machine that stalls for a moment has found no counterexample.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
