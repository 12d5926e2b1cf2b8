"""What a question is about, where nobody says what the answer must hold."""

import re
from collections import Counter

from fidelity.triage.conversation import RESULTS, Conversation, Message, text_of

_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"[\n!?]|\.(?=\s|$)")
_NUMBER = re.compile(r"(?<![\w.,])\d{3,12}(?![\w,]|\.\d)")
_ASKS = re.compile(
    r"(?:^|[.!?\n]\s*)(?:and |so |now )?(?:what|which|how many|how much|when)\b[^.!?\n]*\?$",
    re.IGNORECASE,
)
_COMMON_WORDS = (
    "a an and are be can code did do does for from have how i in is it many me much my number of"
    " on or our please remember so tell that the their there this to was we what when which who"
    " will with you your"
)
_COMMON = frozenset(_COMMON_WORDS.split())
"""Words that tell no statement from another; of these a question alone is about nothing."""


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


def fact_of(conversation: Conversation) -> str:
    """Return the number that a question about an earlier statement asks for; "" when unclear.

    Only of a plain question ("What is my locker code?") all of whose telling words stand in an
    earlier sentence with one number in it; of several such the last counts, as an update does.
    """
    question = conversation.question.strip()
    if not (_ASKS.search(question) and question.endswith("?")):
        return ""
    asked = set(_words(question)) - _COMMON
    found = ""
    for message in conversation.context:
        if message["role"] not in {"user", "system", "developer", *RESULTS}:
            continue
        for sentence in _SENTENCE.split(text_of(message)):
            numbers = set(_NUMBER.findall(sentence))
            if asked and len(numbers) == 1 and asked <= set(_words(sentence)):
                found = numbers.pop()
    return "" if found in _NUMBER.findall(question) else found
