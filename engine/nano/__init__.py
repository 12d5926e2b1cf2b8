"""How the embedded checkpoint is made: data, tokenizer, trainer, evaluation, export.

Imported by nothing else in the project. `python -m engine.nano --help` lists its commands.
"""
