"""`required` names claims: a pattern that is no claim's is refused before anything is asked."""

import pytest

from fidelity.errors import ConfigError
from fidelity.verdicts.claims import refuse_unmatched

SUITES = ("needle_sweep", "plumbing")
CLAIMS = ("needle_sweep/depth", "needle_sweep/length")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("nedle_sweep/*", r"'nedle_sweep/\*'.*did you mean 'needle_sweep'\?. Suites: needle_sweep"),
        ("needle_sweep/dept", r"did you mean 'needle_sweep/depth'\?. Claims: needle_sweep/depth"),
    ],
)
def test_a_pattern_that_is_no_claims_is_refused_with_the_nearest(pattern, said):
    with pytest.raises(ConfigError, match=said):
        refuse_unmatched((pattern,), CLAIMS, suites=SUITES, whole=True)


@pytest.mark.parametrize("pattern", ["needle_sweep/*", "*/depth", "plumbing/*", "plumbing/x", "*"])
def test_a_pattern_of_what_is_collected_or_of_another_suite_is_kept(pattern):
    refuse_unmatched((pattern,), CLAIMS, suites=SUITES, whole=True)


def test_a_part_of_a_suite_says_nothing_of_its_other_claims():
    refuse_unmatched(("needle_sweep/other",), CLAIMS, suites=SUITES, whole=False)
