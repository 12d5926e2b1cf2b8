import json
from pathlib import Path

from engine.architecture import read_architecture
from engine.nano.config import TINY
from engine.nano.export import ENCODING_FILE, export_checkpoint
from engine.nano.parameters import initial_parameters

SHIPPED = Path(__file__).parents[3] / "engine/checkpoints/nano"


def test_the_engine_reads_the_exported_folder_as_what_was_trained(tmp_path):
    export_checkpoint(tmp_path, TINY, initial_parameters(TINY, 1))
    read = read_architecture(tmp_path)
    assert read.layer_kinds[2] == "heavily_compressed_attention"
    assert (read.csa_rate, read.hca_rate) == (TINY.csa_rate, TINY.hca_rate)
    assert (read.rms_norm_eps, read.hc_eps) == (TINY.rms_eps, TINY.hc_eps)
    assert read.compress_rope.original_max_position == TINY.yarn_original


def test_the_chat_layout_that_is_exported_is_the_one_that_the_engine_ships(tmp_path):
    export_checkpoint(tmp_path, TINY, initial_parameters(TINY, 1))
    exported = json.loads((tmp_path / ENCODING_FILE).read_text())
    assert exported == json.loads((SHIPPED / ENCODING_FILE).read_text())
