"""Which earlier turn a question is about, where nobody says what the answer must hold."""

import re
from collections import Counter

from fidelity.triage.conversation import Conversation, Message, text_of

_WORD = re.compile(r"\w+")


def topic_of(conversation: Conversation) -> tuple[Message, ...]:
    """Return the earlier message that shares the rarest words with the question.

    Of none that shares any ("to a file"), the last user message before it; () without one.
    """
    context = [m for m in conversation.context if m["role"] in {"user", "system", "developer"}]
    if not context:
        return ()
    words = [set(_words(text_of(message))) for message in context]
    spread = Counter(word for found in words for word in found)
    asked = set(_words(conversation.question))
    weights = [sum(1 / spread[word] for word in found & asked) for found in words]
    best = max(range(len(context)), key=lambda at: (weights[at], at))
    if max(weights) < 0.5:  # words that stand in many messages say nothing
        users = [at for at, message in enumerate(context) if message["role"] == "user"]
        best = users[-1] if users else best
    return (context[best],)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold()[:200_000])
