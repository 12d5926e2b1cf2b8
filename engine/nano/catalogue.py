"""The sets of the card: which prompts, how long, how many."""

from engine.nano.evalsets import (
    FORMS,
    LINES,
    TASKS,
    Maker,
    in_section,
    key_values,
    list_ends,
    named,
    needle,
    ruler_needles,
    ruler_noise,
    task,
    whole_list,
    worded,
)

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
# between the powers of two, where the reach of a damaged index ends
BETWEEN = (128, 192, 384, 768, 1536, 3072)
_NAMED = (("echo", 256), ("page", 256), ("cat", 256), ("cat", 2048), ("fact", 4096))
_FORM_LENGTHS = (512, 4096)
_TASK_LENGTHS = (256, 1024, 4096)
_TOOLS_AT_LEAST = 512  # their section alone takes more than 256

Sets = dict[tuple[str, int], tuple[Maker, int]]


def catalogue() -> Sets:
    """Every set: (name, tokens) -> (maker, items)."""
    return _needles() | _long_documents() | _conversations()


def _needles() -> Sets:
    sets = {(f"needle {d}", n): (needle(n, d), 60) for n in LENGTHS for d in DEPTHS}
    sets |= {("needle 0.0", n): (needle(n, 0.0), 20) for n in BETWEEN}
    sets |= {(f"needle {d}", 16384): (needle(16384, d), 20) for d in (0.0, 0.5, 1.0)}
    sets |= {("16 needles", n): (needle(n, None, 16), 60) for n in LENGTHS[1:]}
    sets |= {("8 needles", n): (needle(n, None, 8), 30) for n in (1024, 4096)}
    return sets | {
        (f"told: {kind}", n): (worded(n, kind), 60) for kind in FORMS for n in _FORM_LENGTHS
    }


def _long_documents() -> Sets:
    sets = {("8 sections", n): (in_section(n, min(8, n // 128)), 60) for n in LENGTHS[1:]}
    numbered = {("8 sections, numbered", n): (in_section(n, 8, LINES), 60) for n in (1024, 4096)}
    sets |= numbered | {("4 sections", n): (in_section(n, 4), 30) for n in (1024, 4096)}
    sets |= {("RULER single_1", n): (ruler_noise(n), 40) for n in LENGTHS[1:]}
    sets |= {("RULER multikey_2", n): (ruler_needles(n), 80) for n in LENGTHS[1:]}
    sets |= {("64 pairs", n): (key_values(n, 64, "two"), 60) for n in LENGTHS[3:]}
    return sets | {("128 pairs", n): (key_values(n, 128, "two"), 60) for n in LENGTHS[4:]}


def _conversations() -> Sets:
    sets = {(f"names: {kind}", n): (named(kind, n), 100) for kind, n in _NAMED}
    for name in TASKS:
        lengths = [_TOOLS_AT_LEAST if name == "tools" and n == 256 else n for n in _TASK_LENGTHS]
        sets |= {(f"task: {name}", n): (task(name, n), 120) for n in lengths}
    sets |= {("lists, whole", n): (whole_list(n), 60) for n in _TASK_LENGTHS}
    return sets | {("lists, the end", n): (list_ends(n), 60) for n in _TASK_LENGTHS}
