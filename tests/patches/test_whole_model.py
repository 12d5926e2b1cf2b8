"""The question of format at a checkpoint's logits can go red, and puts the reference back."""

import pytest
import torch

import reference.model
import reference.sublayers
from fidelity.errors import Violation
from fidelity.words import Ladder, PatchVerdict
from reference import experts, indexer


def test_a_format_that_is_too_coarse_is_convicted_at_the_logits(examine):
    def ternary(x, ids, weights, gate_up, down, *, limit):
        coarse = [
            w.sign() * (w.abs() > w.abs().mean()) * w.abs().mean() * 2 for w in (gate_up, down)
        ]
        return experts.routed_experts(x, ids, weights, *coarse, limit=limit)

    examination = examine("mxfp4_experts")
    with pytest.raises(Violation, match=r"mean KL at the logits is .* nats, above 0.05"):
        examination.whole_model(routed_experts=ternary)
    report = examination.conclude()
    assert (report.verdict, report.ladder) == (PatchVerdict.CONVICTED, Ladder.DRIFT)
    assert reference.sublayers.routed_experts is experts.routed_experts


def test_random_selection_is_convicted_at_the_logits(examine):
    def noise(q, keys, weights):
        generator = torch.Generator().manual_seed(0)
        return torch.randn(len(q), len(keys), generator=generator)

    with pytest.raises(Violation, match=r"mean KL at the logits"):
        examine("index_keys").whole_model(index_scores=noise)
    assert reference.sublayers.index_scores is indexer.index_scores


def test_a_name_that_the_model_does_not_use_is_refused(examine):
    with pytest.raises(ValueError, match=r"replacements: no function 'route' in the reference"):
        examine("mxfp4_experts").whole_model(route=lambda: None)
