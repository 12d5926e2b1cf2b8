"""The whole model: all tokens of one sequence at once, no cache, no pages.

streams = n copies of the embedding
for each layer, for attention and then for the experts:
    y, post, comb = mhc_pre(streams)
    streams = mhc_post(sublayer(rms_norm(y)), streams, post, comb)
logits = rms_norm(mhc_head(streams)) @ lm_head^T
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from reference.arguments import check_shape, refuse
from reference.config import read_config
from reference.mhc import mhc_head, mhc_post, mhc_pre
from reference.rmsnorm import rms_norm
from reference.safetensors_file import read_checkpoint
from reference.sublayers import Record, Sublayers


class Model:
    """A checkpoint in float32 or float64. Stateless between calls, thread-safe."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        """Read config.json and the weights.

        Raises: ValueError: a file or a key is missing or cannot be used.
        """
        self.config = read_config(folder)
        self.folder = folder
        self.tensors = {
            name: tensor.to(dtype) if tensor.is_floating_point() else tensor
            for name, tensor in read_checkpoint(folder).items()
        }

    def weight(self, name: str) -> Tensor:
        """A tensor of the checkpoint; ValueError names one that it lacks."""
        if name not in self.tensors:
            refuse("checkpoint", f"{self.folder} has no tensor {name!r}", "one that has it")
        return self.tensors[name]

    @torch.no_grad()
    def forward(
        self,
        token_ids: Tensor,
        *,
        record: Record | None = None,
        forced: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Logits [T, V] of every position.

        Args:
            token_ids: int [T], T >= 1, from position 0 on.
            record: called with each activation's name and rows: `embed`, `L{n}.attn_in`,
                `.index_topk`, `.attn_out`, `.moe_topk`, `.ffn_out`, `logits`.
            forced: selections to use in place of the model's own, by those names: int [T, K],
                -1 padded; to compare logits beyond a tie that was decided the other way.

        Raises: ValueError: no tokens, too many, or an id outside the vocabulary.
        """
        c = self.config
        check_shape("token_ids", token_ids, -1)
        if not 1 <= token_ids.numel() <= c.max_position_embeddings:
            refuse("token_ids", f"{token_ids.numel()}", f"1 .. {c.max_position_embeddings} tokens")
        if int(token_ids.min()) < 0 or int(token_ids.max()) >= c.vocab_size:
            refuse("token_ids", f"{token_ids.tolist()[:9]} …", f"ids 0 .. {c.vocab_size - 1}")
        record = record or _ignore
        sublayers = Sublayers(self, token_ids.long(), record, forced or {})
        rows = self.weight("model.embed_tokens.weight")[token_ids.long()]
        record("embed", rows)
        streams = rows[:, None, :].repeat(1, c.hc_mult, 1)
        for n in range(len(c.layer_kinds)):
            for site, norm, sublayer in (
                ("attn_hc", "input_layernorm", sublayers.attention),
                ("ffn_hc", "post_attention_layernorm", sublayers.feed_forward),
            ):
                streams = self._site(streams, f"model.layers.{n}", site, norm, partial(sublayer, n))
        logits = self._logits(streams)
        record("logits", logits)
        return logits

    def _site(
        self,
        streams: Tensor,
        prefix: str,
        site: str,
        norm: str,
        sublayer: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Collapse the streams, let the sublayer work, spread its output; [T, n, H]."""
        c = self.config
        y, post, comb = mhc_pre(
            streams,
            *(self.weight(f"{prefix}.{site}.{part}") for part in ("fn", "base", "scale")),
            rms_eps=c.rms_norm_eps,
            hc_eps=c.hc_eps,
            iters=c.hc_sinkhorn_iters,
        )
        normed = rms_norm(y, self.weight(f"{prefix}.{norm}.weight"), c.rms_norm_eps)
        return mhc_post(sublayer(normed), streams, post, comb)

    def _logits(self, streams: Tensor) -> Tensor:
        c = self.config
        head = [self.weight(f"model.hc_head.hc_{part}") for part in ("fn", "base", "scale")]
        hidden = mhc_head(streams, *head, rms_eps=c.rms_norm_eps, hc_eps=c.hc_eps)
        normed = rms_norm(hidden, self.weight("model.norm.weight"), c.rms_norm_eps)
        last = "model.embed_tokens" if c.tie_word_embeddings else "lm_head"
        return normed @ self.weight(f"{last}.weight").T


def _ignore(name: str, rows: Tensor) -> None:
    """No record is kept."""
