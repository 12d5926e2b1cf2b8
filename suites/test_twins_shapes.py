"""Twins of the shape of a request: streamed or whole, as chat or as a rendered completion.

Claim: an answer has the same tokens, logprobs and text streamed and in one piece, and a chat those
  of a completion of its rendered prompt.
Why it breaks in practice: a stream has its own detokenizer and its own cursors; the chat path adds
  or drops start tokens that the completion path does not.
A failure means: streaming clients read another answer than the model gave, or chat sees another
  prompt than the template makes.
Cost: 22 prompts in 4 requests each, 16 in 4 (20k tokens, 5k generated).
  In each claim one prompt more of about 1,000 and one of 2,000 tokens, longer ones by budget.
Needs: chat, streaming; for the second claim completions and a tokenizer endpoint.
"""

from fidelity.measure import Measure
from fidelity.twins.running import TwinRun
from fidelity.twins.shapes import RENDERED, STREAMED


def test_a_stream_has_the_tokens_logprobs_and_text_of_one_piece(measure: Measure) -> None:
    """Streamed and whole answers are alike in >= 0.80, in each class too."""
    run = TwinRun(measure, STREAMED)
    trials = run.asked()
    measure.control("positive", "one token of the streamed prompt is altered", run.damaged())
    run.decide(trials)


def test_a_chat_answers_as_a_completion_of_its_rendered_prompt(measure: Measure) -> None:
    """Chats and completions of their rendered prompts are alike in >= 0.80, in each class too."""
    run = TwinRun(measure, RENDERED)
    trials = run.asked()
    measure.control("positive", "one token of the rendered prompt is altered", run.damaged())
    run.decide(trials)
