"""The constants of a checkpoint's chat encoding, read from its encoding.json."""

from pathlib import Path

import msgspec

from engine.errors import CheckpointError


class _Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ToolSection(_Spec, frozen=True, kw_only=True):
    """`template` holds `{schemas}`; the separators follow system text, or its absence."""

    template: str
    after_text: str
    after_nothing: str


class CallBlock(_Spec, frozen=True, kw_only=True):
    """What separates a tool block from the content before it, or from none."""

    after_text: str
    after_nothing: str


class ToolResult(_Spec, frozen=True, kw_only=True):
    """What encloses a tool's result inside a user message."""

    start: str
    end: str


class EncodingSpec(_Spec, frozen=True, kw_only=True):
    """Markers and wording of one checkpoint."""

    format: str
    bos: str
    eos: str
    user: str
    assistant: str
    latest_reminder: str | None
    think_start: str
    think_end: str
    dsml: str
    # tokens that structure a conversation and are never shown as an answer's text
    turn_markers: tuple[str, ...]
    tools: ToolSection
    calls: CallBlock
    tool_result: ToolResult
    # reasoning of earlier turns leaves the prompt once a new question comes (unless tools are on)
    drop_thinking: bool
    # reasoning effort -> the paragraph that it puts right after BOS ("" for none)
    efforts: dict[str, str]


FORMAT = "deepseek_v4_chat"


def load_encoding_spec(directory: Path) -> EncodingSpec:
    """The encoding of the checkpoint in `directory`.

    Raises: CheckpointError: the file is missing, malformed, or of another format.
    """
    path = directory / "encoding.json"
    try:
        spec = msgspec.json.decode(path.read_bytes(), type=EncodingSpec)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{path} is malformed: {error}.") from error
    if spec.format != FORMAT:
        raise CheckpointError(f"{path} has format {spec.format!r}; this engine knows {FORMAT!r}.")
    return spec
