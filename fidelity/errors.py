"""Everything that the harness raises.

    FidelityError
    ├── Violation (AssertionError)     the deployment broke a claim          outcome fail
    ├── Inconclusive (AssertionError)  too few trials for the claim          outcome inconclusive
    ├── NotApplicable                  this deployment has no such path      outcome not_applicable
    └── HarnessError                   the claim could not be measured       outcome error
        ├── ConfigError                a setting, a flag or a file is wrong
        ├── EndpointError              the server did not answer as a server of its kind does
        │   ├── ConnectionCut          the connection ended before the answer did
        │   └── Overloaded             429/503 until the cap on waiting was spent
        ├── CapabilityMissing          an expected capability is absent or unproven
        ├── TrafficRefused             this traffic class was not allowed
        │   └── CapSpent               a hard cap (tokens, requests, time)   outcome inconclusive
        ├── JournalError               the run folder cannot be read or continued
        └── LaunchError                a deployment could not be started or stopped

Each message is one sentence: what was seen, where, what to do.
"""

from fidelity.words import Blame


class FidelityError(Exception):
    """Root of the tree."""


class Violation(FidelityError, AssertionError):
    """The deployment broke the claim.

    Attributes:
        blame: whom the finding blames; a suite that raises this itself has seen a broken promise
            of the server, unless it says otherwise.
    """

    def __init__(self, sentence: str, *, blame: Blame = Blame.DEPLOYMENT) -> None:
        super().__init__(sentence)
        self.blame = blame


class Inconclusive(FidelityError, AssertionError):
    """The trials neither prove nor refute the claim."""


class NotApplicable(FidelityError):
    """The deployment has no such path and does not say that it has."""


class HarnessError(FidelityError):
    """The claim could not be measured."""


class ConfigError(HarnessError):
    """A setting, a flag or a file is wrong; nothing was sent."""


class EndpointError(HarnessError):
    """Infrastructure trouble: never a wrong answer."""


class ConnectionCut(EndpointError):
    """The connection ended before the answer did."""


class Overloaded(EndpointError):
    """The server answered 429 or 503 until the cap on waiting was spent."""


class CapabilityMissing(HarnessError):
    """A capability that the deployment expects is absent or unproven."""


class TrafficRefused(HarnessError):
    """The probe's traffic class is not allowed here, or a hard cap is spent."""


class CapSpent(TrafficRefused):
    """A hard cap is spent: the claim has fewer trials than it needs, and says nothing."""


class JournalError(HarnessError):
    """The run folder cannot be read or continued."""


class LaunchError(HarnessError):
    """A deployment could not be started, reached or stopped."""
