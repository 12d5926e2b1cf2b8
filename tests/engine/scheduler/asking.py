"""Requests to a scheduler that a test steps by itself."""

import torch

from engine.sequence import EngineRequest, SamplingParams

GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)


def prompt(length: int, seed: int = 0) -> list[int]:
    g = torch.Generator().manual_seed(seed)
    return torch.randint(2, 199, (length,), generator=g).tolist()


def tokens(outputs) -> list[int]:
    return [token for output in outputs for token in output.new_token_ids]


class Inbox(list):
    """Outputs of one request, and how to submit it."""

    def submit(self, engine, request_id, token_ids, sampling=GREEDY):
        self.request = EngineRequest(
            request_id=request_id,
            prompt_token_ids=token_ids,
            sampling=sampling,
            on_output=self.append,
        )
        engine.scheduler.submit(self.request)
        return self

    @property
    def reason(self):
        return self[-1].finish_reason if self else None


def drain(engine) -> None:
    while engine.scheduler.step():
        engine.scheduler.check_integrity()
