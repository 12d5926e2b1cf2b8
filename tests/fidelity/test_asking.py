"""What becomes of requests in flight when asking has to stop."""

from dataclasses import replace
from types import SimpleNamespace

import anyio.from_thread
import pytest
from fake_deployment import FakeClient, probe

from fidelity.config.redaction import Redactor
from fidelity.errors import TrafficRefused
from fidelity.runs.asking import Asker, Desk, Job
from fidelity.runs.breaker import Breaker
from fidelity.runs.journal import Journal


@pytest.fixture
def desk(tmp_path):
    ignore = SimpleNamespace(begin=lambda *_: None, advance=lambda _: None, end=lambda: None)
    journal = Journal.create(tmp_path)
    with anyio.from_thread.start_blocking_portal() as portal:
        yield Desk(
            journal=journal,
            client=FakeClient(),
            portal=portal,
            meter=ignore,
            breaker=Breaker(),
            seed=0,
            concurrency=2,
            epoch=lambda: 0,
            check_time=lambda: None,
            redactor=Redactor(),
        )
    journal.close()


def test_a_spent_cap_lets_requests_in_flight_end_and_sends_no_more(desk):
    async def refused(ask):
        await anyio.sleep(0.05)
        raise TrafficRefused("the cap of 1 requests is spent")

    slow = [probe(f"slow {n}", delay_s=0.3) for n in range(3)]
    groups = [(Job(probe=slow[0]),), (Job(probe=replace(probe("refused"), script=refused)),)]
    groups += [(Job(probe=later),) for later in slow[1:]]
    asker = Asker(desk, claim="suite/claim", suite="suite")
    with pytest.raises(TrafficRefused, match="the cap of 1 requests is spent"):
        asker.ask(groups)
    assert desk.client.asked == ["slow 0"]
    assert [(t.key, t.ok) for t in desk.journal.trials.values()] == [("slow 0", True)]
