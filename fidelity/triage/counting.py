"""How many tokens a text has on a server: told by its tokenizer, else by its own chat."""

from collections.abc import Sequence

from fidelity.errors import CapabilityMissing, EndpointError
from fidelity.triage.answers import Case
from fidelity.triage.desk import Try
from fidelity.triage.pieces import of_blocks


class Counter:
    """Counts texts on the deployment of one case; for one question. `tries`: what it has sent."""

    def __init__(self, case: Case, tries: list[Try]) -> None:
        """Send nothing yet."""
        self.tries = tries
        self._case = case
        self._alone: dict[str, int | None] = {}

    async def by_tokenizer(self, texts: Sequence[str]) -> int | None:
        """Return the tokens of texts together; None without a tokenizer that is believed."""
        try:
            counted = [(await self._case.desk.client.tokenize(prompt=text)).count for text in texts]
        except (CapabilityMissing, EndpointError):
            return None
        return sum(counted)

    async def difference(self, text: str, other: str) -> int | None:
        """Return how many tokens `text` has more than `other`; None where nobody counts.

        Without a tokenizer each is sent as the only message, which no server can leave out.

        Raises:
            Spent: the bound on requests is reached.
        """
        first, second = await self.by_tokenizer([text]), await self.by_tokenizer([other])
        if first is None or second is None:
            first, second = await self._by_chat(text), await self._by_chat(other)
        return None if first is None or second is None else first - second

    async def _by_chat(self, text: str) -> int | None:
        if text not in self._alone:
            alone = of_blocks(self._case.smallest, [({"role": "user", "content": text},)])
            one = await self._case.desk.try_once("rendering", alone, answer_tokens=1)
            self.tries.append(one)
            self._alone[text] = one.prompt_tokens
        return self._alone[text]
