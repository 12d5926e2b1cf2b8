"""The closed vocabularies of the product: one word per thing, spelled once."""

from enum import StrEnum


class Outcome(StrEnum):
    """Of a claim. They never merge: `error` is "could not measure", `inconclusive` "too few"."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    NOT_APPLICABLE = "not_applicable"


class Score(StrEnum):
    """Of one answer, read over content, reasoning and tool arguments."""

    RIGHT = "right"
    WRONG = "wrong"
    RUNAWAY = "runaway"
    AMNESIC = "amnesic"
    CUT = "cut"
    EMPTY = "empty"


class Ladder(StrEnum):
    """How bad, from best to worst; `fidelity.statistics.ladder` decides it for everybody."""

    EXACT = "exact"
    ROUNDING = "rounding"
    DRIFT = "drift"
    SELECTION = "selection"
    STRUCTURAL = "structural"


class Traffic(StrEnum):
    """What a probe does to a server that other people use."""

    PASSIVE = "passive"
    LOAD = "load"
    DISRUPTIVE = "disruptive"


class Blame(StrEnum):
    """Who is to blame for a failed claim, as far as the run can tell."""

    DEPLOYMENT = "deployment"
    MODEL_LIMIT = "model limit"
    UNKNOWN = "unknown"


class RunVerdict(StrEnum):
    """Of a whole run."""

    FAITHFUL = "faithful"
    UNFAITHFUL = "unfaithful"
    UNDECIDED = "undecided"


class PatchVerdict(StrEnum):
    """Of one patch, within a scope."""

    EXONERATED = "exonerated"
    CONVICTED = "convicted"
    INERT = "inert"
    UNDECIDED = "undecided"


class Question(StrEnum):
    """What a check of a patch asks."""

    IMPLEMENTATION = "implementation"
    FORMAT = "choice of format"
    PROOF = "proof"


class ControlKind(StrEnum):
    """A trial whose outcome is known beforehand."""

    POSITIVE = "positive"
    NULL = "null"


class Budget(StrEnum):
    """How many trials. A budget never changes a threshold."""

    QUICK = "quick"
    STANDARD = "standard"
    DEEP = "deep"


class Oracle(StrEnum):
    """What decides a claim."""

    ANSWER = "answer"
    TWIN = "twin"
    GOLDEN = "golden"
    REFERENCE = "reference"


class Concern(StrEnum):
    """What a claim is about: whether the context is read, or whether the API keeps its promises."""

    READING = "reading"
    CONFORMANCE = "conformance"
