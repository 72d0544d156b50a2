"""Make a tiny Qwen2 with random weights, its tokenizer, and sums to learn; the same on each node, no download."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # of Qwen's chat template


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A token for each byte."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=SPECIAL[2], pad_token=SPECIAL[0])


def main() -> None:
    """Write the folder `model` and the file `sums.jsonl`; sums of numbers below 100."""
    set_seed(1)
    tokenizer = make_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained("model")
    tokenizer.save_pretrained("model")
    chance = random.Random(7)
    with Path("sums.jsonl").open("w") as sink:
        for one, other in ((chance.randrange(100), chance.randrange(100)) for _ in range(1024)):
            texts = {"user": f"{one} + {other} =", "assistant": str(one + other)}
            row = {"messages": [{"role": role, "content": text} for role, text in texts.items()]}
            sink.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
