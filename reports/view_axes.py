"""Where a trial lies, in words for the page; the axes themselves are `fidelity.verdicts.axes`."""

from fidelity.records import Trial
from fidelity.verdicts.axes import RESIDUE, axis_name, axis_value
from reports.view_text import cut


def cell_text(trial: Trial) -> str:
    """Return where in the sweep a trial lies: `length 2,048 tokens · depth 0.5`.

    Residues are left out: the prompt's length says them.
    """
    shown = (
        f"{axis_name(axis)} {axis_value(axis, value)}"
        for axis, value in trial.cell.items()
        if not axis.startswith(RESIDUE)
    )
    return cut(" · ".join(shown), 300)
