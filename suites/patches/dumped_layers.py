"""What each operation of a model saw, out of the activations that a dump holds.

`L{n}.attn_in` gives attention by projection. `embed` and what each sublayer answered give the
streams between them, and these the input of the experts: the weights do the rest, in float32.
Needs torch and the reference alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from reference.mhc import mhc_post, mhc_pre
from reference.rmsnorm import rms_norm
from reference.sublayers import Sublayers, Weights


class NotHarvestedError(ValueError):
    """The inputs of an operation do not follow from these dumps; the message says why not."""


class Site(NamedTuple):
    """One place where streams are mixed: arguments of `mhc_pre`, and what the sublayer gets."""

    where: str
    arguments: dict[str, Any]
    normed: Tensor


@dataclass(frozen=True, slots=True)
class DumpedLayers:
    """One request of a dump.

    Attributes:
        name: of the file, for messages.
        model: weights and shape.
        rows: tensors of the dump, of positions 0 .. T - 1.
        token_ids: int64 [T'], T' >= T; None where the dump does not say.
        index_outlier: by which channel 0 of the index keys is larger and of the index queries
            smaller than the weights make them.
    """

    name: str
    model: Weights
    rows: Mapping[str, Tensor]
    token_ids: Tensor | None
    index_outlier: float = 1.0

    def attention(self, layer: int) -> dict[str, Any]:
        """Arguments of the reference's `sparse_attention`, of all positions.

        Entries are those that the engine selected, where the dump holds them.

        Raises: ValueError: the layer's input is not there, so that this is no dump.
        """
        x = self._input(layer)
        return self._sublayers(x).attention_inputs(layer, x)

    def index(self, layer: int) -> dict[str, Tensor]:
        """Queries [T, Ni, Di], keys [E, Di] and head weights [T, Ni] of a layer's indexer.

        Raises: ValueError: as `attention`.
        """
        x = self._input(layer)
        made = self._sublayers(x).index_inputs(layer, x)
        made["q"][..., 0] /= self.index_outlier
        made["keys"][..., 0] *= self.index_outlier
        return made

    def sites(self) -> Iterator[Site]:
        """Every mixing in order, attention before experts.

        The streams are those that follow from `embed` and the sublayers' answers in the dump.

        Raises: NotHarvestedError: one of them is not there.
        """
        c = self.model.config
        streams = self._row("embed")[:, None, :].repeat(1, c.hc_mult, 1)
        for layer in range(len(c.layer_kinds)):
            for site, norm, answer in (
                ("attn_hc", "input_layernorm", "attn_out"),
                ("ffn_hc", "post_attention_layernorm", "ffn_out"),
            ):
                prefix = f"model.layers.{layer}"
                arguments: dict[str, Any] = {
                    "streams": streams,
                    **{p: self.model.weight(f"{prefix}.{site}.{p}") for p in _MIXING},
                    "rms_eps": c.rms_norm_eps,
                    "hc_eps": c.hc_eps,
                    "iters": c.hc_sinkhorn_iters,
                }
                y, post, comb = mhc_pre(**arguments)
                normed = rms_norm(y, self.model.weight(f"{prefix}.{norm}.weight"), c.rms_norm_eps)
                yield Site(f"layer {layer}, {site}", arguments, normed)
                streams = mhc_post(self._row(f"L{layer}.{answer}"), streams, post, comb)

    def expert_inputs(self) -> Iterator[tuple[int, Tensor]]:
        """(layer, normed input [T, H] of its router and experts).

        Raises: NotHarvestedError: as `sites`.
        """
        for place, site in enumerate(self.sites()):
            if place % 2:
                yield place // 2, site.normed

    def routed_to(self, layer: int) -> Tensor:
        """Experts int64 [T, K] that each token went to.

        Raises: NotHarvestedError: the dump does not say it.
        """
        name = f"L{layer}.moe_topk"
        ids = self._row(name).long()
        experts = len(self.model.weight(f"model.layers.{layer}.mlp.gate.weight"))
        self._check_ids(name, ids, 0, experts - 1)
        return ids

    def tokens(self) -> Tensor:
        """Token ids, int64.

        Raises: NotHarvestedError: the dump does not say them.
        """
        if self.token_ids is None:
            raise NotHarvestedError(f"inputs: {self.name} has no 'token_ids' in its metadata")
        rows = max((len(rows) for rows in self.rows.values()), default=0)
        if len(self.token_ids) < rows:
            raise ValueError(
                f"inputs: {self.name} has {len(self.token_ids)} 'token_ids' in its metadata;"
                f" accepted: at least {rows}, one for each row"
            )
        self._check_ids("token_ids", self.token_ids, 0, self.model.config.vocab_size - 1)
        return self.token_ids

    def _input(self, layer: int) -> Tensor:
        name = f"L{layer}.attn_in"
        if name not in self.rows:
            raise ValueError(f"inputs: {self.name} has no tensor {name!r}")
        return self._floats(name)

    def _row(self, name: str) -> Tensor:
        if name not in self.rows:
            raise NotHarvestedError(f"inputs: {self.name} has no tensor {name!r}")
        return self._integers(name) if name.endswith("_topk") else self._floats(name)

    def _floats(self, name: str) -> Tensor:
        """Activations [T, H], finite.

        Raises: ValueError: names dump and tensor.
        """
        found, hidden = self.rows[name], self.model.config.hidden_size
        if not found.dtype.is_floating_point:
            self._refuse(name, f"{found.dtype}", "a floating dtype")
        if list(found.shape) != [self._count(), hidden]:
            self._refuse(name, f"shape {list(found.shape)}", f"{[self._count(), hidden]}")
        found = found.float()
        wrong = int((~found.isfinite()).sum())
        if wrong:
            self._refuse(name, f"{wrong} values that are NaN or infinite", "numbers")
        return found

    def _integers(self, name: str) -> Tensor:
        """Ids [T, K]."""
        found = self.rows[name]
        if found.dtype not in (torch.int32, torch.int64):
            self._refuse(name, f"{found.dtype}", "int32, int64")
        if found.dim() != 2 or len(found) != self._count():
            self._refuse(name, f"shape {list(found.shape)}", f"{self._count()} rows")
        return found

    def _count(self) -> int:
        """T: the rows of the embedding, or of the first layer's input where there is none."""
        return len(self.rows["embed" if "embed" in self.rows else min(self.rows)])

    def _check_ids(self, name: str, ids: Tensor, low: int, high: int) -> None:
        if ids.numel() and not low <= int(ids.min()) <= int(ids.max()) <= high:
            self._refuse(name, f"ids {int(ids.min())} .. {int(ids.max())}", f"{low} .. {high}")

    def _refuse(self, name: str, came: str, accepted: str) -> NoReturn:
        raise ValueError(f"inputs: {self.name}, {name}: got {came}; accepted: {accepted}")

    def _sublayers(self, x: Tensor) -> Sublayers:
        ids = torch.zeros(len(x), dtype=torch.int64)  # attention does not look at them
        return Sublayers(self.model, ids, _ignore, self._selections())

    def _selections(self) -> dict[str, Tensor]:
        found = {n: self._integers(n).long() for n in self.rows if n.endswith(".index_topk")}
        for name, chosen in found.items():
            layer = int(name[1 : name.index(".")])
            rate = self.model.config.rates[self.model.config.layer_kinds[layer]]
            closed = (torch.arange(len(chosen)) + 1) // rate
            wrong = ((chosen < -1) | (chosen >= closed[:, None])).nonzero()
            if len(wrong):
                t, k = wrong[0].tolist()
                self._refuse(
                    name, f"entry {int(chosen[t, k])} in row {t}", f"-1 .. {int(closed[t]) - 1}"
                )
        return found


_MIXING = ("fn", "base", "scale")


def _ignore(name: str, rows: Tensor) -> None:
    """No record is kept."""
