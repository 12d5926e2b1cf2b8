"""The project's own tests import `engine` and `kernels`, which no installation puts on the path."""

import os
import signal
import sys
from pathlib import Path

from hypothesis import settings

ROOT = str(Path(__file__).parents[1])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

# A proxy that this machine needs for its packages has no business between a test and 127.0.0.1.
for name in ("NO_PROXY", "no_proxy"):
    os.environ[name] = "127.0.0.1,localhost"

# In the background of a script a process ignores SIGINT, and so would every process that it starts:
# tests that interrupt one would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that stalls for a moment has found no counterexample.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
