"""Twins of the phases: prefill or decode, one chunk or many, turn by turn or at once.

Claim: the same tokens get the same logprobs whichever way they were computed: decoded one by one or
  prefilled, in one chunk or in many, over the turns of a conversation or in one cold request.
Why it breaks in practice: decoding and prefilling are different kernels with different bookkeeping
  of positions, windows and compressed entries; state is carried over chunks and turns by hand.
A failure means: one of the two paths reads another context than the other, often at one residue of
  a page, a window or a chunk; the text stays fluent.
Cost: 22 prompts decoded and prefilled (20k tokens, 1,500 generated), 22 in many chunks (45k), 16
  conversations of three turns (20k, 1,500 generated).
  In each claim one prompt more of about 1,000 and one of 2,000 tokens, longer ones by budget.
Needs: completions of token ids, logprobs of generated and of given tokens, cached tokens in usage;
  the size of a chunk in the server's information.
"""

from fidelity.measure import Measure
from fidelity.twins.phases import CHUNKED, DECODED, TURNED
from fidelity.twins.running import TwinRun


def test_decoding_gives_the_logprobs_of_prefilling_the_same_tokens(measure: Measure) -> None:
    """Decoded and prefilled tokens have the same logprobs in >= 0.80, in each class too."""
    run = TwinRun(measure, DECODED)
    trials = run.asked()
    measure.control("positive", "one generated token is altered before the prefill", run.damaged())
    run.decide(trials)


def test_one_chunk_answers_as_many(measure: Measure) -> None:
    """Prompts of one chunk and of many are answered alike in >= 0.80, in each class too."""
    run = TwinRun(measure, CHUNKED)
    trials = run.asked()
    measure.control("positive", "one token of the prompt in pieces is altered", run.damaged())
    run.decide(trials)


def test_turn_by_turn_answers_as_the_same_tokens_at_once(measure: Measure) -> None:
    """A later turn is answered as its tokens at once in >= 0.80, in each class too."""
    run = TwinRun(measure, TURNED)
    trials = run.asked()
    measure.control("positive", "one token of the first turn is altered", run.damaged())
    run.decide(trials)
