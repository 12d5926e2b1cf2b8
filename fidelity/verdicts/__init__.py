"""From trials to findings, and from findings to the verdict of a run."""
