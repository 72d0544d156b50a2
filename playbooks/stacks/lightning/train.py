"""Fit a curve with Lightning, on the ranks that torchrun has started."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Curve(lightning.LightningModule):
    """A small network and how it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the loss of one batch."""
        x, y = batch
        loss = nn.functional.mse_loss(self.layers(x), y)
        self.log("loss", loss, on_epoch=True, on_step=False, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Report(Callback):
    """Prints a line per epoch, on rank 0."""

    def on_train_start(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        """Print which rank this is, and where the training goes on."""
        print(f"rank {trainer.global_rank} of {trainer.world_size}, {module.device}", flush=True)
        if trainer.is_global_zero and trainer.current_epoch:
            print(f"resumed after epoch {trainer.current_epoch}", flush=True)

    def on_train_epoch_end(self, trainer: lightning.Trainer, _: lightning.LightningModule) -> None:
        """Show the mean loss over all ranks."""
        if trainer.is_global_zero:
            loss = trainer.callback_metrics["loss"]
            print(f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}  loss {loss:.4f}", flush=True)


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Fit a curve.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--save-every", type=int, default=1, help="epochs between two checkpoints")
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder for the checkpoint")
    return parser.parse_args()


def main() -> None:
    """Train; `devices` and `num_nodes` must be what torchrun has started, so they are read from its variables."""
    options = parse_options()
    lightning.seed_everything(1, verbose=False)
    x = torch.linspace(-3, 3, 2048).unsqueeze(1)
    local, world = (int(os.environ.get(name, "1")) for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
    saving = ModelCheckpoint(
        options.output,
        filename="{epoch}",
        monitor="epoch",
        mode="max",
        save_top_k=2,  # the newest may not have its copies yet
        every_n_epochs=options.save_every,
        enable_version_counter=False,
    )
    trainer = lightning.Trainer(
        accelerator="auto",
        strategy="ddp",
        devices=local,
        num_nodes=world // local,
        max_epochs=options.epochs,
        callbacks=[Report(), saving],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = DataLoader(TensorDataset(x, x.sin()), batch_size=32, shuffle=True)
    trainer.fit(Curve(), data, ckpt_path=os.environ.get("CLUSTERCTL_RESUME") or None)
    if trainer.is_global_zero:
        print(f"saved {saving.best_model_path}", flush=True)


if __name__ == "__main__":
    main()
