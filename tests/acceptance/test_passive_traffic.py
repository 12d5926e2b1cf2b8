"""A URL alone gets passive traffic: nothing disturbs the server, and the caps hold to the token."""

import httpx
import pytest
from product import finished
from proxies import RecordingProxy, UpstreamServer

from fidelity.endpoint.prometheus_text import parse_metrics
from fidelity.words import Outcome, Traffic

pytestmark = pytest.mark.acceptance

CONCURRENCY = 3
MOST_TOKENS = 60_000


def _counted(engine):
    """What a server has counted since its start, by its own metrics."""
    text = httpx.get(f"{engine.root_url}/metrics", timeout=30, trust_env=False).text
    return parse_metrics(text)


def test_without_allow_a_server_sees_passive_traffic_within_the_caps(tmp_path):
    with UpstreamServer() as engine, RecordingProxy(engine.root_url) as proxy:
        before = _counted(engine)
        ran = finished(
            f"--base-url={proxy.base_url}",
            f"--concurrency={CONCURRENCY}",
            f"--max-tokens={MOST_TOKENS}",
            folder=tmp_path / "run",
            name="passive, capped",
        )
        after = _counted(engine)
    grown = {name: after[name] - before[name] for name in before}
    served = grown["sglang:prompt_tokens_total"] + grown["sglang:generation_tokens_total"]
    paths = set(proxy.paths())
    assert not [p for p in paths if "flush" in p or "abort" in p]
    assert all(request.method in {"GET", "POST"} for request in proxy.requests)
    assert after["sglang:largest_batch"] == CONCURRENCY  # used, and never passed
    assert grown["sglang:num_finished_requests_total"] > 50
    assert grown["sglang:num_aborted_requests_total"] == 0  # by a closed connection neither
    assert 0.5 * MOST_TOKENS < served <= MOST_TOKENS
    traffic = {exchange.traffic for trial in ran.trials for exchange in trial.exchanges}
    assert traffic == {Traffic.PASSIVE}
    # the cap is too low for the whole set: claims stay undecided, never a verdict on the server
    assert ran.code == 2, ran.told()
    assert not {Outcome.FAIL, Outcome.ERROR} & set(ran.outcomes()), ran.told()
    undecided = [f for f in ran.findings.values() if f.outcome is Outcome.INCONCLUSIVE]
    spent = [f for f in undecided if "raise --fidelity-max-tokens" in f.reason]
    assert len(spent) >= 5, ran.told()
    not_allowed = [f for f in ran.findings.values() if f.outcome is Outcome.NOT_APPLICABLE]
    assert {f"test_{f.suite}" for f in not_allowed} >= {
        "test_abort_then_followup",
        "test_no_cross_conversation_leak",
    }
    assert any("--fidelity-allow disruptive" in f.reason for f in not_allowed)
    assert any("--fidelity-allow load" in f.reason for f in not_allowed)
