"""Phrases by which a model denies that there was a conversation, in its answer or its reasoning.

In the public case the denial stood in the reasoning: "this is the first message".
"""

import re

_PHRASES = (
    (
        r"this (?:is|seems to be|appears to be|looks like) (?:the|our|your) "
        r"(?:very )?(?:first|start|beginning)"
    ),
    r"(?:the |your |is )first (?:message|turn|question) (?:in|of) (?:this|the|our|a)\b",
    r"(?:start|beginning) of (?:our|this|the|a) (?:new )?(?:conversation|chat|session)",
    (
        r"\bno (?:previous|prior|earlier|preceding|past) "
        r"(?:conversation|message|messages|context|turn|turns|history|chat|exchange|interaction"
        r"|request|page|file|code|content|information|text)"
    ),
    r"\bno (?:conversation|chat|message) history\b",
    (
        r"there (?:is|was|are|were|'s|has been) (?:no|nothing|not any) "
        r"(?:\w+ ){0,2}?(?:earlier|before|previous|prior|above|history|page to save)"
    ),
    (
        r"(?:do not|don't|cannot|can't|could not|couldn't) (?:\w+ )?"
        r"(?:see|find|recall|remember|have|access) (?:\w+ ){0,3}?"
        r"(?:previous|prior|earlier|past|preceding|history|memory|record of)"
    ),
    (
        r"(?:have not|haven't|has not|hasn't|did not|didn't|never) (?:yet |actually )?(?:been )?"
        r"(?:told|given|shared|provided|mentioned|specified|asked|written|created|said)\b"
    ),
    r"without (?:any )?(?:previous|prior|earlier|more) (?:context|conversation|messages)",
    (
        r"(?:lack|lacks|lacking|missing) (?:any |the )?(?:previous |prior |earlier )?"
        r"(?:context|conversation|history)"
    ),
    (
        r"(?:what|which) (?:page|file|content|text|code|document) (?:would|should|do|shall) "
        r"(?:you|i|we)\b"
    ),
    r"which page should i (?:write|save)",
    (
        r"(?:could|can|would) you (?:please )?(?:clarify|provide|specify|tell me|share) "
        r"(?:what|which|the|more|your)"
    ),
    r"i (?:have|'ve|'m|am) (?:no|not|unable) (?:\w+ ){0,3}?(?:memory|context|record|aware)",
)
_DENIAL = re.compile("|".join(f"(?:{phrase})" for phrase in _PHRASES), re.IGNORECASE)
_LOOKED_AT_CHARS = 20_000


def denies_the_conversation(text: str) -> str:
    """Return the words of a denial found in a text, "" when there is none."""
    plain = " ".join(text[:_LOOKED_AT_CHARS].replace("\u2019", "'").split())
    found = _DENIAL.search(plain)
    return found.group(0) if found else ""
