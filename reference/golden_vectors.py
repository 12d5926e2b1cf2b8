"""Golden vectors: conversations, and the prompt that each must become.

`python -m reference.golden_vectors` writes those of the embedded checkpoint into suites/data/;
`--encoding FILE --name NAME --out FOLDER` those of another checkpoint of the family.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from reference.encoding import render
from reference.encoding_constants import Constants, read_constants
from reference.golden_conversations import conversations

ROOT = Path(__file__).parents[1]


def vectors(constants: Constants, name: str, *, default_thinking: bool = False) -> dict[str, Any]:
    """The content of a file of vectors.

    A vector has `topic`, `name`, `messages` and `text`, and where the request says so `tools`,
    `thinking` and `effort`. A request that does not say `thinking` is rendered with the default.
    """
    found = []
    for case in conversations(tuple(constants.efforts)):
        thinking = case.get("thinking", default_thinking)
        text = render(
            constants,
            case["messages"],
            tools=case.get("tools", ()),
            thinking=thinking,
            effort=case.get("effort"),
        )
        found.append({**case, "text": text})
    return {"encoding": name, "default_thinking": default_thinking, "vectors": found}


def written(content: dict[str, Any]) -> str:
    """The file's text: one vector a line, so that a change shows in a diff."""
    rows = ",\n".join(json.dumps(vector, ensure_ascii=False) for vector in content["vectors"])
    head = json.dumps({**content, "vectors": []}, ensure_ascii=False)
    return f"{head.removesuffix(']}')}\n{rows}\n]}}\n"


def main() -> None:
    """Write one file and name it."""
    parser = argparse.ArgumentParser(prog="python -m reference.golden_vectors", description=__doc__)
    nano = ROOT / "engine" / "checkpoints" / "nano" / "encoding.json"
    parser.add_argument("--encoding", type=Path, default=nano, help="a checkpoint's encoding.json")
    parser.add_argument("--name", default="deepseek_v4_nano", help="what fidelity.toml calls it")
    parser.add_argument("--out", type=Path, default=ROOT / "suites" / "data", help="a folder")
    parser.add_argument(
        "--default-thinking", action="store_true", help="requests that do not say so think"
    )
    flags = parser.parse_args()
    try:
        constants = read_constants(flags.encoding)
        content = vectors(constants, flags.name, default_thinking=flags.default_thinking)
        flags.out.mkdir(parents=True, exist_ok=True)
        path = flags.out / f"encoding_{flags.name}.json"
        path.write_text(written(content), encoding="utf-8")
    except (OSError, ValueError) as error:
        parser.exit(2, f"golden_vectors: {error}\n")
    print(path)


if __name__ == "__main__":
    main()
