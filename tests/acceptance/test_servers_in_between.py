"""Gateways and replicas between harness and engine change no verdict that they should not."""

import pytest
from product import finished
from proxies import (
    ChunkMergingProxy,
    RateLimitingProxy,
    RoundRobinProxy,
    ThinkOnlyProxy,
    UpstreamServer,
)

from fidelity.words import Blame, Outcome, RunVerdict, Score

pytestmark = pytest.mark.acceptance

ALLOWED = "--allow=load,disruptive"


def _no_claim(ran, *outcomes):
    assert not ran.suites_with(*outcomes), ran.told()


@pytest.mark.parametrize("retry_after", [None, "1"])
def test_a_rate_limited_server_is_waited_for(engine, tmp_path, retry_after):
    with RateLimitingProxy(engine.root_url, interval_s=0.25, retry_after=retry_after) as proxy:
        ran = finished(
            "continuation",
            "-k",
            "short",
            f"--base-url={proxy.base_url}",
            folder=tmp_path / "run",
            name=f"rate limited, Retry-After {retry_after}",
        )
        assert proxy.refused >= 5
    assert ran.code == 0, ran.told()
    assert ran.outcomes() == {Outcome.PASS: len(ran.planned)}


def test_a_server_that_stays_overloaded_is_an_error_that_says_so(engine, tmp_path):
    class Full(RateLimitingProxy):
        """Takes what discovery asks, then nothing any more."""

        async def answered(self, request, connection):
            if len(self.generations) <= 40:
                return False
            return await super().answered(request, connection)

    with Full(engine.root_url, interval_s=10_000, retry_after="3600") as proxy:
        ran = finished(
            "continuation",
            "no_cross_conversation_leak",
            f"--base-url={proxy.base_url}",
            "--max-wait-s=3",
            folder=tmp_path / "run",
            name="overloaded for good",
        )
        assert proxy.refused >= 1
    assert ran.code == 2, ran.told()
    assert ran.verdict.verdict is RunVerdict.UNDECIDED
    _no_claim(ran, Outcome.FAIL, Outcome.PASS)
    assert ran.outcomes()[Outcome.ERROR] >= 2
    for finding in ran.findings.values():
        if finding.outcome is Outcome.ERROR:
            assert "429" in finding.reason, finding.reason
    assert "429" in ran.verdict.sentence
    assert "answered 429" in ran.report


def test_a_server_that_sends_several_tokens_a_chunk_is_no_other_server(engine, tmp_path):
    with ChunkMergingProxy(engine.root_url, size=5) as proxy:
        ran = finished(
            "continuation",
            "long_generation",
            "plumbing",
            "abort_then_followup",
            f"--base-url={proxy.base_url}",
            ALLOWED,
            folder=tmp_path / "run",
            name="five tokens a chunk",
        )
    assert ran.code == 0, ran.told()
    assert ran.verdict.verdict is RunVerdict.FAITHFUL
    _no_claim(ran, Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE)


def test_a_server_that_only_thinks_is_cut_and_not_unfaithful(engine, tmp_path):
    with ThinkOnlyProxy(engine.root_url) as proxy:
        ran = finished(
            "continuation",
            "no_cross_conversation_leak",
            f"--base-url={proxy.base_url}",
            ALLOWED,
            folder=tmp_path / "run",
            name="only thinks",
        )
    scores = {t.score for t in ran.trials if t.score is not None}
    assert Score.WRONG not in scores
    assert Score.AMNESIC not in scores
    assert ran.code == 2, ran.told()
    _no_claim(ran, Outcome.FAIL, Outcome.PASS)
    assert ran.verdict.blame is not Blame.DEPLOYMENT
    assert "reasoning" in ran.verdict.sentence
    assert "reasoning" in ran.report


def test_two_healthy_replicas_are_faithful(engine, tmp_path):
    with UpstreamServer() as second, RoundRobinProxy(engine.root_url, second.root_url) as proxy:
        ran = finished(
            "continuation",
            "multi_turn_recall",
            "no_cross_conversation_leak",
            f"--base-url={proxy.base_url}",
            ALLOWED,
            folder=tmp_path / "run",
            name="two replicas",
        )
    assert ran.code == 0, ran.told()
    assert ran.verdict.verdict is RunVerdict.FAITHFUL
    _no_claim(ran, Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE)
    assert {e.replica for t in ran.trials for e in t.exchanges} == {"0", "1"}


def test_of_two_replicas_the_damaged_one_is_named(engine, tmp_path):
    with (
        UpstreamServer("--fault=last_turn_only") as damaged,
        RoundRobinProxy(engine.root_url, damaged.root_url) as proxy,
    ):
        ran = finished(
            "continuation",
            "multi_turn_recall",
            f"--base-url={proxy.base_url}",
            folder=tmp_path / "run",
            name="two replicas, one damaged",
        )
    assert ran.code == 1, ran.told()
    assert ran.verdict.verdict is RunVerdict.UNFAITHFUL, ran.told()
    assert "test_multi_turn_recall" in ran.suites_with(Outcome.FAIL)
    assert "misses lie at replica 1" in ran.report
    asked = [
        t for t in ran.trials if t.suite == "continuation" and t.arm == "" and t.ok is not None
    ]
    missed = [t for t in asked if not t.ok]
    assert missed
    assert {t.exchanges[-1].replica for t in missed} == {"1"}
