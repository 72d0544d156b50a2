"""Make a tiny Qwen2 with random weights, its tokenizer, and sums to learn; the same on each node, no download."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed

LETTERS = "0123456789+= "
END = "<|end|>"


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A token for each letter."""
    vocabulary = {letter: number for number, letter in enumerate([END, *LETTERS])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)


def main() -> None:
    """Write the folders `model` and `data`; sums of numbers below 100."""
    root = Path(sys.argv[1])
    set_seed(1)
    tokenizer = make_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(root / "model")
    tokenizer.save_pretrained(root / "model")
    chance = random.Random(7)
    (root / "data").mkdir(exist_ok=True)
    with (root / "data" / "train.jsonl").open("w") as sink:
        for one, other in ((chance.randrange(100), chance.randrange(100)) for _ in range(1024)):
            row = {"prompt": f"{one} + {other} =", "completion": f" {one + other}"}
            sink.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
