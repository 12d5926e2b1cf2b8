"""python -m engine.nano: make the embedded checkpoint, from nothing to weights and card."""

import argparse
import math
from pathlib import Path

from engine.nano.card import RUN_FILE, write_card
from engine.nano.config import PRESETS
from engine.nano.corpus import ensure_tokenizer


def main() -> None:
    """Parse the command line and run one command."""
    arguments = _parser().parse_args()
    if arguments.command == "train":
        _train(arguments)
    elif arguments.command == "evaluate":
        _evaluate(arguments.folder, arguments.preset, arguments.parts)
    elif arguments.command == "card":
        write_card(arguments.folder, PRESETS[arguments.preset])
    elif arguments.command == "tiny":
        from engine.nano.tiny import FOLDER, write_tiny

        print(write_tiny(arguments.out or FOLDER))
    else:
        from engine.nano.speed import measure_speed

        measure_speed(arguments.preset, arguments.step_tokens, profile=arguments.profile)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.nano", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    shape = argparse.ArgumentParser(add_help=False)
    shape.add_argument("--preset", choices=sorted(PRESETS), default="nano")
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("folder", type=Path)
    _add_train(
        commands.add_parser(
            "train", parents=[shape], help="tokenizer, training, export, evaluation, card"
        )
    )
    check = commands.add_parser(
        "evaluate", parents=[folder, shape], help="the card's grids of a checkpoint"
    )
    check.add_argument("--parts", default="all", help="of core, faults, reach, keys; or all")
    commands.add_parser("card", parents=[folder, shape], help="README.md from the measured grids")
    tiny = commands.add_parser("tiny", help="the seeded, untrained checkpoint of the unit tests")
    tiny.add_argument("--out", type=Path, default=None, help="default: engine/checkpoints/tiny")
    speed = commands.add_parser(
        "speed", parents=[shape], help="milliseconds of a training step on this GPU"
    )
    speed.add_argument("--step-tokens", type=int, default=65_536)
    speed.add_argument("--profile", action="store_true")
    return parser


def _add_train(train: argparse.ArgumentParser) -> None:
    train.add_argument("--out", type=Path, required=True, help="folder of the checkpoint")
    train.add_argument("--steps", type=int, default=15_000, help="of the first cycle")
    train.add_argument("--second-steps", type=int, default=4_500, help="of the second cycle")
    train.add_argument(
        "--leg-seconds", type=float, default=math.inf, help="stop after so long; run again to go on"
    )
    train.add_argument("--step-tokens", type=int, default=65_536)
    train.add_argument("--seed", type=int, default=21)
    train.add_argument("--workers", type=int, default=6, help="processes that make batches")
    train.add_argument("--no-graphs", action="store_true", help="launch every kernel by itself")
    train.add_argument("--no-evaluation", action="store_true")


def _train(arguments: argparse.Namespace) -> None:
    from engine.nano.trainer import Log, TrainConfig, Trainer

    config = PRESETS[arguments.preset]
    ensure_tokenizer(arguments.out, config.vocab_size, arguments.seed)
    run = TrainConfig(
        folder=arguments.out,
        preset=arguments.preset,
        steps=arguments.steps,
        second_steps=arguments.second_steps,
        leg_seconds=arguments.leg_seconds,
        step_tokens=arguments.step_tokens,
        seed=arguments.seed,
        workers=arguments.workers,
        graphs=not arguments.no_graphs,
        command=_command(arguments),
    )
    trainer = Trainer(run, Log(arguments.out / "log.txt"))
    if not trainer.finished:
        trainer.run_leg()
    if trainer.finished and not arguments.no_evaluation:
        del trainer
        _evaluate(arguments.out, arguments.preset, "all")


def _command(arguments: argparse.Namespace) -> str:
    """What to type for the same run, once for every leg."""
    leg = (
        f" --leg-seconds {arguments.leg_seconds:g}" if math.isfinite(arguments.leg_seconds) else ""
    )
    return (
        f"python -m engine.nano train --out {arguments.out} --preset {arguments.preset} "
        f"--steps {arguments.steps} --second-steps {arguments.second_steps} "
        f"--step-tokens {arguments.step_tokens} --seed {arguments.seed}{leg}"
    )


def _evaluate(folder: Path, preset: str, parts: str) -> None:
    from engine.nano.evaluate import evaluate
    from engine.nano.trainer import Log

    evaluate(folder, PRESETS[preset], Log(folder / "log.txt").write, parts=parts)
    if (folder / RUN_FILE).exists():
        write_card(folder, PRESETS[preset])


if __name__ == "__main__":
    main()
