"""Make what torchtitan's debug model reads: a tokenizer and a text, the same on each node; nothing is downloaded."""

from __future__ import annotations

import json
import pydoc_data.topics
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ASSETS = Path("tests/assets")
MARKS = ["<|begin_of_text|>", "<|end_of_text|>"]


def main() -> None:
    """The text is Python's own documentation, the tokenizer is trained on it."""
    texts = list(pydoc_data.topics.topics.values())
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1024, special_tokens=MARKS, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    for name in ("tokenizer", "c4_test"):
        (ASSETS / name).mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(ASSETS / "tokenizer" / "tokenizer.json"))
    config = {"bos_token": MARKS[0], "eos_token": MARKS[1]}
    (ASSETS / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(config))
    with (ASSETS / "c4_test" / "data.json").open("w") as sink:
        sink.writelines(json.dumps({"text": text}) + "\n" for text in texts)


if __name__ == "__main__":
    main()
