"""Teach a tiny GPT-2 to count, with the Trainer of transformers: random weights, data made here, no download."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)

VOCABULARY, LENGTH = 64, 16


class Counting(Dataset):
    """Sequences that count up from some number with some step, modulo the vocabulary."""

    def __init__(self, count: int) -> None:
        random = torch.Generator().manual_seed(7)
        start = torch.randint(VOCABULARY, (count, 1), generator=random)
        step = torch.randint(1, 4, (count, 1), generator=random)
        self.tokens = (start + step * torch.arange(LENGTH)) % VOCABULARY

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class Report(TrainerCallback):
    """Prints where a training goes on, on rank 0."""

    def on_train_begin(
        self, _: TrainingArguments, state: TrainerState, __: TrainerControl, **___: object
    ) -> None:
        """Read the step from the Trainer, not from the name of the checkpoint."""
        if state.is_world_process_zero and state.global_step:
            print(f"resumed after step {state.global_step}", flush=True)


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Teach a tiny GPT-2 to count.")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder for checkpoints")
    return parser.parse_args()


def main() -> None:
    """Train, and save where rank 0 is; the Trainer finds its rank in torchrun's variables."""
    options = parse_options()
    set_seed(1)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    arguments = TrainingArguments(
        output_dir=str(options.output),
        max_steps=options.steps,
        per_device_train_batch_size=16,
        learning_rate=1e-2,
        logging_steps=10,
        save_steps=options.save_every,
        save_total_limit=2,  # the newest may not have its copies yet
        use_cpu=not torch.cuda.is_available(),  # else each rank would train alone, as rank 0 of 1
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to="none",
        disable_tqdm=True,
    )
    print(
        f"rank {arguments.process_index} of {arguments.world_size}, {arguments.device}",
        flush=True,
    )
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Counting(4096), callbacks=[Report()])
    trainer.train(resume_from_checkpoint=os.environ.get("CLUSTERCTL_RESUME") or None)
    if trainer.is_world_process_zero():
        print(f"saved {options.output}/checkpoint-{options.steps}", flush=True)


if __name__ == "__main__":
    main()
