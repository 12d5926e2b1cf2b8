"""Plumbing: what the HTTP API promises, one claim each.

Claim: answers, streams, token counts, parameters, tool calls, logprobs and refusals are what the
  OpenAI API documents; what a server does not have it refuses in words, and never ignores.
Why it breaks in practice: parsers and detokenizers lose what falls between two tokens; gateways
  cap, cut and cache; parameters are accepted and ignored; overflow is cut without a word.
A failure means: the named promise is broken; the trial holds the request that shows it.
Cost: about 430 short requests (10k tokens), a quarter of them to /tokenize; exchanges are shared.
Needs: chat; each claim says what else, and is not applicable without it.
"""

from pathlib import Path

import pytest

from fidelity.checks.conformance import Check, hold, name_of
from fidelity.checks.plumbing_admission import LOAD, OVERFLOWS, overflow
from fidelity.checks.plumbing_alignment import ALIGNMENT
from fidelity.checks.plumbing_alternatives import ALTERNATIVES
from fidelity.checks.plumbing_arrays import ARRAYS
from fidelity.checks.plumbing_choices import SEVERAL
from fidelity.checks.plumbing_completions import COMPLETIONS
from fidelity.checks.plumbing_counts import COUNTS
from fidelity.checks.plumbing_encoding import TOPICS, encoding_check, read_vectors
from fidelity.checks.plumbing_extensions import EXTENSIONS
from fidelity.checks.plumbing_formats import FORMATS
from fidelity.checks.plumbing_history import HISTORY
from fidelity.checks.plumbing_limits import ENDS, STOPS
from fidelity.checks.plumbing_logprobs import LOGPROBS
from fidelity.checks.plumbing_parameters import PARAMETERS
from fidelity.checks.plumbing_probabilities import PROBABILITIES
from fidelity.checks.plumbing_refusals import REFUSALS
from fidelity.checks.plumbing_sampling import SAMPLING
from fidelity.checks.plumbing_shape import SHAPES, STREAMS
from fidelity.checks.plumbing_statuses import STATUSES
from fidelity.checks.plumbing_tool_choice import TOOL_CHOICE
from fidelity.checks.plumbing_tools import REASONING, TOOLS
from fidelity.checks.plumbing_twins import TWINS
from fidelity.measure import Measure

VECTORS = Path(__file__).parent / "data"


@pytest.mark.parametrize("check", SHAPES, ids=name_of)
def test_answers_have_the_documented_shape(measure: Measure, check: Check) -> None:
    """Fields of whole answers."""
    hold(measure, check)


@pytest.mark.parametrize("check", STREAMS, ids=name_of)
def test_streams_have_the_documented_shape(measure: Measure, check: Check) -> None:
    """Events, deltas, finish reason and usage of streams."""
    hold(measure, check)


@pytest.mark.parametrize("check", COUNTS, ids=name_of)
def test_tokens_are_counted_right(measure: Measure, check: Check) -> None:
    """Usage against itself, the stream, the tokenizer and the tokens given."""
    hold(measure, check)


@pytest.mark.parametrize("check", ENDS, ids=name_of)
def test_answers_end_where_they_should(measure: Measure, check: Check) -> None:
    """max_tokens to the token, and the finish reason that tells."""
    hold(measure, check)


@pytest.mark.parametrize("check", STOPS, ids=name_of)
def test_stop_strings_are_obeyed(measure: Measure, check: Check) -> None:
    """Excluded to the character, in one piece and in a stream."""
    hold(measure, check)


@pytest.mark.parametrize("check", TWINS, ids=name_of)
def test_stream_equals_one_shot(measure: Measure, check: Check) -> None:
    """Content, reasoning, tool calls, finish reason and usage; characters of other scripts."""
    hold(measure, check)


@pytest.mark.parametrize("check", [*TOOLS, *TOOL_CHOICE], ids=name_of)
def test_tool_calls_are_parsed_and_read(measure: Measure, check: Check) -> None:
    """Calls, their arguments and deltas, tool_choice, and results in the history."""
    hold(measure, check)


@pytest.mark.parametrize("check", REASONING, ids=name_of)
def test_reasoning_is_kept_apart(measure: Measure, check: Check) -> None:
    """Reasoning and content, whole and cut."""
    hold(measure, check)


@pytest.mark.parametrize("check", HISTORY, ids=name_of)
def test_history_reaches_the_model(measure: Measure, check: Check) -> None:
    """Every role, turn and form of content."""
    hold(measure, check)


@pytest.mark.fidelity_requires("encoding")
@pytest.mark.parametrize("topic", TOPICS)
def test_prompt_is_the_reference_encoding(measure: Measure, topic: str) -> None:
    """A conversation becomes the tokens that the model was trained on."""
    spec = measure.deployment.spec
    vectors = read_vectors(spec.encoding or "", shipped=VECTORS, beside=spec.cwd)
    hold(measure, encoding_check(topic, vectors[topic]))


@pytest.mark.parametrize("check", [*SAMPLING, *PARAMETERS, *EXTENSIONS], ids=name_of)
def test_parameters_matter(measure: Measure, check: Check) -> None:
    """What is accepted is obeyed, and stays with its request."""
    hold(measure, check)


@pytest.mark.parametrize("check", FORMATS, ids=name_of)
def test_formats_are_obeyed_or_refused(measure: Measure, check: Check) -> None:
    """What is accepted binds the answer, or reaches the model."""
    hold(measure, check)


@pytest.mark.parametrize("check", COMPLETIONS, ids=name_of)
def test_completions_keep_their_own_api(measure: Measure, check: Check) -> None:
    """Of /completions, and of an answer that the last message begins."""
    hold(measure, check)


@pytest.mark.parametrize("check", [*LOGPROBS, *ALTERNATIVES, *PROBABILITIES], ids=name_of)
def test_logprobs_are_of_their_tokens(measure: Measure, check: Check) -> None:
    """Of generated tokens and of given text."""
    hold(measure, check)


@pytest.mark.parametrize("check", [*ALIGNMENT, *ARRAYS], ids=name_of)
def test_logprobs_stand_beside_their_text(measure: Measure, check: Check) -> None:
    """Where a stop string cuts, in each chunk, and behind an echo."""
    hold(measure, check)


@pytest.mark.parametrize("check", SEVERAL, ids=name_of)
def test_several_choices_are_whole(measure: Measure, check: Check) -> None:
    """Of n above 1: each index, in a stream too, and all of them counted."""
    hold(measure, check)


@pytest.mark.parametrize("check", [*REFUSALS, *STATUSES], ids=name_of)
def test_bad_requests_are_refused(measure: Measure, check: Check) -> None:
    """4xx with words, and the server answers afterwards."""
    hold(measure, check)


@pytest.mark.parametrize("name", OVERFLOWS)
def test_context_overflow_is_refused(measure: Measure, name: str) -> None:
    """Never cut in silence; what just fits is taken whole."""
    limit = measure.deployment.capabilities.max_model_len
    hold(measure, overflow(name, limit, measure.budget))


@pytest.mark.parametrize("check", LOAD, ids=name_of)
def test_load_is_borne(measure: Measure, check: Check) -> None:
    """A partial answer is never presented as complete."""
    hold(measure, check)
