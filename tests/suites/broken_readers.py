"""Broken servers by name: each reads less than it was sent, or says something else."""

import re

from reader import NoTokenizer, Reader, words_of

from fidelity.endpoint.replies import Reply
from fidelity.errors import EndpointError


def hide(messages, start_frac, end_frac, beyond=0):
    """Return messages in which a share of the text is gone."""

    def cut(text):
        if len(text) <= beyond:
            return text
        return text[: int(start_frac * len(text))] + text[int(end_frac * len(text)) :]

    return [{**message, "content": cut(message.get("content") or "")} for message in messages]


class LastTurnOnly(Reader):
    def sees(self, messages):
        return messages[-1:]


class ToolResultsDropped(Reader):
    def sees(self, messages):
        return [m for m in messages if m["role"] != "tool"]


class SystemDropped(Reader):
    def sees(self, messages):
        return [m for m in messages if m["role"] != "system"]


class ColdBurst(Reader):
    """Who comes while another computes the same prefix reads pages that are not written yet."""

    def says(self, messages, text):
        opening = words_of(messages[0])
        computing, self.computed = self.running > 1, getattr(self, "computed", set())
        if computing and opening not in self.computed:
            self.computed |= {opening} if self.running < 4 else set()
            return re.sub(r"\d", "0", text)
        self.computed |= {opening}
        return text


class SamplingMixedUp(Reader):
    """A greedy request in a batch with a sampled one is drawn from the other's distribution."""

    async def chat(self, messages, **options):
        if options.get("temperature"):
            self.sampled = 8
        return await super().chat(messages, **options)

    sampled = 0

    def says(self, messages, text):
        self.sampled -= 1
        return re.sub(r"\d", "0", text) if self.sampled > 0 else text


class MiddleLost(Reader):
    """The middle of a long message is never attended to; its tokens are counted all the same."""

    def sees(self, messages):
        return hide(messages, 0.4, 0.6, beyond=400)

    def prompt_tokens(self, messages, tools):
        return self.length(messages, tools)


class HeadingsLost(Reader):
    """Beyond 400 tokens a line knows nothing of what stands far above it."""

    def sees(self, messages):
        long = self.length(messages) > 400
        return [
            {**m, "content": re.sub(r"## .*", "", m["content"])} if long and m["content"] else m
            for m in messages
        ]

    def prompt_tokens(self, messages, tools):
        return self.length(messages, tools)


class HeadCutSilently(Reader):
    """Beyond 300 tokens the oldest text is dropped without a word."""

    def sees(self, messages):
        return hide(messages, 0.0, 0.5, beyond=1_400)


class OneResidueWrong(Reader):
    modulus, residue = 4, 3

    def says(self, messages, text):
        if self.length(messages) % self.modulus == self.residue:
            return re.sub(r"\d", "0", text)
        return text


class OneResidueOf64Wrong(OneResidueWrong):
    modulus, residue = 64, 17


class WrongOnCacheHits(Reader):
    def says(self, messages, text):
        key = "\x00".join(words_of(m) for m in messages)
        warm = any(key.startswith(prefix) for prefix in self.cached)
        return re.sub(r"\d", "0", text) if warm else text


class AbortsPoison(Reader):
    """A prompt that was aborted is half lost for whoever sends it again."""

    def sees(self, messages):
        if words_of(messages[0]) in self.aborted_openings:
            return hide(messages, 0.5, 0.8, beyond=200)
        return messages

    def prompt_tokens(self, messages, tools):
        return self.length(messages, tools)


class BystandersHurt(Reader):
    """Whoever asks while another is aborted gets the wrong digits."""

    def remember(self, messages, *, aborted):
        super().remember(messages, aborted=aborted)
        if aborted:
            self.hurt = 6

    hurt = 0

    def says(self, messages, text):
        self.hurt -= 1
        return re.sub(r"\d", "0", text) if self.hurt > 0 else text


class GaugesStuck(Reader):
    def remember(self, messages, *, aborted):
        super().remember(messages, aborted=aborted)
        self.stuck += 16 * aborted


class Leaks(Reader):
    """Every fourth question about a door code is answered with one that another was told lately."""

    turn = 0

    def says(self, messages, text):
        told = re.findall(r"door code is (\d+)", "\n".join(words_of(m) for m in messages))
        self.told += [code for code in told if code not in self.told]
        others = [code for code in self.told if code not in told]
        self.turn += "door code?" in words_of(messages[-1])
        if "door code?" in words_of(messages[-1]) and others[1:] and self.turn % 4 == 0:
            return f"Your door code is {others[-2]}."  # the last may be its own, in a fork
        return text


class AlwaysDenies(Reader):
    def says(self, messages, text):
        del messages, text
        return "This is the first message of our conversation, so I cannot know."


class NamesEveryCode(Reader):
    """Lists all numbers it saw: the right one is among them."""

    def says(self, messages, text):
        seen = re.findall(r"\b\d{4,5}\b", "\n".join(words_of(m) for m in messages))
        return ", ".join(seen) or text


class NeverStops(Reader):
    def says(self, messages, text):
        del messages
        return f"{text} " * 300


class Empty(Reader):
    def says(self, messages, text):
        del messages, text
        return ""


class OnlyThinks(Reader):
    """Spends every budget inside its reasoning."""

    async def chat(self, messages, *, max_tokens=256, **options):
        del options
        return Reply(
            request_id="fid-" + "0" * 32,
            path="/chat/completions",
            reasoning="I wonder what " * 20,
            finish_reason="length",
            prompt_tokens=self.length(messages),
            cached_tokens=PAGES_HIT,
            completion_tokens=max_tokens,
        )


PAGES_HIT = 64


class Dead(Reader):
    async def chat(self, messages, **options):
        del messages, options
        raise EndpointError("POST http://127.0.0.1:1/v1 was refused: is the server running?")

    tokenize = chat


class TokenizerLies(Reader):
    """It counts three tokens too few."""

    def counted(self, tokens):
        return tokens - 3 if tokens > 40 else tokens


HEALTHY = {"healthy": Reader, "healthy, no tokenizer": NoTokenizer}
