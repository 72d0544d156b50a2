"""Lines as training frameworks print them, each with where its format comes from: numbers, steps, rates, or nothing."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterctl.node.history.log_values import NOTHING, LineReader, Position, has_hint, read_line

TRAINER = "huggingface/transformers src/transformers/trainer_callback.py"
TQDM = "tqdm/tqdm tqdm/std.py"
TITAN = "pytorch/torchtitan torchtitan/components/metrics.py"
COMPOSER = "mosaicml/composer composer/loggers/console_logger.py"
LIGHTNING = "Lightning-AI/pytorch-lightning src/lightning/pytorch/callbacks/progress"
MMENGINE = "open-mmlab/mmengine mmengine/runner/log_processor.py"
FAIRSEQ = "facebookresearch/fairseq fairseq/logging/progress_bar.py"
DEEPSPEED = "deepspeedai/DeepSpeed deepspeed"
OWN = "programs of users"


class Case(NamedTuple):
    """A line, what it holds, and where such lines come from."""

    framework: str
    source: str
    line: str
    values: dict[str, float]
    position: Position = Position()


CASES = [
    Case("Transformers 4", TRAINER,
         "{'loss': 0.6931, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 0.1}",
         {"loss": 0.6931, "grad_norm": 1.25, "learning_rate": 5e-05}, Position(epoch=0.1)),
    Case("Transformers 5", TRAINER,
         "{'loss': '3.278', 'grad_norm': '0.6678', 'learning_rate': '1e-05', 'epoch': '0.25'}",
         {"loss": 3.278, "grad_norm": 0.6678, "learning_rate": 1e-05}, Position(epoch=0.25)),
    Case("Transformers", TRAINER,
         "{'eval_loss': 0.52, 'eval_runtime': 12.5, 'eval_samples_per_second': 40.1, 'eval_steps_per_second': 5.0, "
         "'epoch': 1.0}", {"eval_loss": 0.52}, Position(epoch=1.0)),
    Case("Transformers", TRAINER,
         "{'train_runtime': 61.2, 'train_samples_per_second': 130.7, 'train_steps_per_second': 1.02, "
         "'train_loss': 0.47, 'epoch': 3.0}",
         {"train_loss": 0.47, "samples_per_second": 130.7, "steps_per_second": 1.02}, Position(epoch=3.0)),
    Case("Transformers", TRAINER, "  1%|▏         | 10/1000 [00:05<08:20,  1.98it/s]",
         {"steps_per_second": 1.98}, Position(10, 1000)),
    Case("Transformers", "huggingface/transformers src/transformers/trainer.py",
         "  Total optimization steps = 1,000", {}),
    Case("LLaMA-Factory", "hiyouga/LLaMA-Factory src/llamafactory/train/callbacks.py",
         "[INFO|callbacks.py:300] 2025-03-02 10:00:00,123 >> {'loss': 1.2345, 'learning_rate': 4.9e-05, 'epoch': 0.5, "
         "'throughput': 5321.7}",
         {"loss": 1.2345, "learning_rate": 4.9e-05, "throughput": 5321.7}, Position(epoch=0.5)),
    Case("ms-swift", "modelscope/ms-swift swift/trainers/callback.py",
         "{'loss': 1.75, 'token_acc': 0.61, 'grad_norm': 2.5, 'learning_rate': 1e-05, 'memory(GiB)': 20.5, "
         "'train_speed(iter/s)': 0.51, 'epoch': 0.2, 'global_step/max_steps': '10/500', 'percentage': '2.00%'}",
         {"loss": 1.75, "token_acc": 0.61, "grad_norm": 2.5, "learning_rate": 1e-05, "steps_per_second": 0.51},
         Position(10, 500, 0.2)),
    Case("axolotl", "axolotl-ai-cloud/axolotl src/axolotl/core/trainers/base.py",
         "{'loss': 1.21, 'grad_norm': 0.8, 'learning_rate': 2e-05, 'memory/max_active (GiB)': 21.3, "
         "'tokens_per_second_per_gpu': 1804.5, 'epoch': 0.3}",
         {"loss": 1.21, "grad_norm": 0.8, "learning_rate": 2e-05, "tokens_per_second_per_gpu": 1804.5},
         Position(epoch=0.3)),
    Case("TRL SFT", "huggingface/trl trl/trainer/sft_trainer.py",
         "{'loss': '1.412', 'grad_norm': '3.1', 'learning_rate': '2e-05', 'entropy': '1.52', 'num_tokens': '1.2e+05', "
         "'mean_token_accuracy': '0.66', 'epoch': '0.4'}",
         {"loss": 1.412, "grad_norm": 3.1, "learning_rate": 2e-05, "entropy": 1.52, "mean_token_accuracy": 0.66},
         Position(epoch=0.4)),
    Case("TRL GRPO", "huggingface/trl trl/trainer/grpo_trainer.py",
         "{'loss': 0.05, 'num_tokens': 1234.0, 'completions/mean_length': 100.0, 'completions/clipped_ratio': 0.1, "
         "'rewards/format_reward/mean': 0.5, 'reward': 0.7, 'reward_std': 0.1, 'frac_reward_zero_std': 0.25, "
         "'kl': 0.001, 'clip_ratio/low_mean': 0.0, 'epoch': 0.1}",
         {"loss": 0.05, "rewards_format_reward_mean": 0.5, "reward": 0.7, "reward_std": 0.1, "kl": 0.001},
         Position(epoch=0.1)),
    Case("TRL DPO", "huggingface/trl trl/trainer/dpo_trainer.py",
         "{'loss': 0.69, 'rewards/chosen': 0.01, 'rewards/rejected': -0.02, 'rewards/accuracies': 0.6, "
         "'rewards/margins': 0.03, 'logps/chosen': -120.5, 'epoch': 0.1}",
         {"loss": 0.69, "rewards_chosen": 0.01, "rewards_rejected": -0.02, "rewards_accuracies": 0.6,
          "rewards_margins": 0.03}, Position(epoch=0.1)),
    Case("TRL GRPO below Transformers 5", "huggingface/trl trl/trainer/grpo_trainer.py",
         "{'loss': '0.05', 'grad_norm': '0.21', 'learning_rate': '9.9e-07', 'num_tokens': '1.2e+04', "
         "'completions/mean_length': '100.5', 'rewards/accuracy_reward/mean': '0.5', 'reward': '0.7', "
         "'reward_std': '0.1', 'kl': '0.001', 'entropy': '0.45', 'step_time': '12.5', 'epoch': '0.1'}",
         {"loss": 0.05, "grad_norm": 0.21, "learning_rate": 9.9e-07, "rewards_accuracy_reward_mean": 0.5,
          "reward": 0.7, "reward_std": 0.1, "kl": 0.001, "entropy": 0.45}, Position(epoch=0.1)),
    Case("TRL DPO below Transformers 5", "huggingface/trl trl/trainer/dpo_trainer.py",
         "{'loss': '0.6931', 'learning_rate': '1e-06', 'rewards/chosen': '0.01', 'rewards/rejected': '-0.02', "
         "'rewards/accuracies': '0.6', 'rewards/margins': '0.03', 'logps/chosen': '-120.5', 'epoch': '0.1'}",
         {"loss": 0.6931, "learning_rate": 1e-06, "rewards_chosen": 0.01, "rewards_rejected": -0.02,
          "rewards_accuracies": 0.6, "rewards_margins": 0.03}, Position(epoch=0.1)),
    Case("accelerate", "huggingface/accelerate examples/nlp_example.py",
         "epoch 0: {'accuracy': 0.7034, 'f1': 0.8142}", {"accuracy": 0.7034, "f1": 0.8142}, Position(epoch=0.0)),
    Case("diffusers", "huggingface/diffusers examples/dreambooth/train_dreambooth.py",
         "Steps:  10%|█         | 50/500 [00:30<04:30,  1.66it/s, loss=0.0234, lr=5e-6]",
         {"loss": 0.0234, "lr": 5e-6, "steps_per_second": 1.66}, Position(50, 500)),
    Case("kohya sd-scripts", "kohya-ss/sd-scripts train_network.py",
         "steps:   6%|▌         | 100/1600 [01:40<25:00,  1.00s/it, avr_loss=0.112]",
         {"avr_loss": 0.112, "steps_per_second": 1.0}, Position(100, 1600)),
    Case("Lightning, tqdm", f"{LIGHTNING}/tqdm_progress.py",
         "Epoch 0: 100%|##########| 8/8 [00:01<00:00, 12.5it/s, v_num=3, train_loss_step=0.12, train_loss_epoch=2]",
         {"train_loss": 0.12, "steps_per_second": 12.5}, Position(8, 8, 0.0, within=True)),
    Case("Lightning, tqdm", f"{LIGHTNING}/tqdm_progress.py",
         "Validation DataLoader 0:  67%|██████▋   | 2/3 [00:00<00:00, 50.1it/s]", {}),
    Case("Lightning, rich", f"{LIGHTNING}/rich_progress.py",
         "Epoch 1/4 \x1b[38;2;98;6;224m━━━━━━━\x1b[0m 5/8 \x1b[2m0:00:01 • 0:00:00\x1b[0m 12.50it/s "
         "\x1b[3mv_num: 3.000 train_loss: 0.120\x1b[0m",
         {"train_loss": 0.12, "steps_per_second": 12.5}, Position(5, 8, 1.0, 4, within=True)),
    Case("Lightning, its table", "Lightning-AI/pytorch-lightning src/lightning/pytorch/loops/evaluation_loop.py",
         "│         test_loss         │    0.2512345254421234     │", {"test_loss": 0.2512345254421234}),
    Case("NeMo", "NVIDIA/NeMo nemo/lightning/pytorch/callbacks/progress_printer.py",
         "Training epoch 0, iteration 10/100 | lr: 0.0003 | global_batch_size: 64 | global_step: 10 | "
         "reduced_train_loss: 9.12 | train_step_timing in s: 0.5",
         {"reduced_train_loss": 9.12, "lr": 0.0003, "steps_per_second": 2.0}, Position(10, 100, 0.0)),
    Case("nanoGPT", "karpathy/nanoGPT train.py", "iter 20: loss 4.2801, time 125.00ms, mfu 12.30%",
         {"loss": 4.2801, "mfu": 12.3, "steps_per_second": 8.0}, Position(20)),
    Case("nanoGPT", "karpathy/nanoGPT train.py", "step 250: train loss 2.1, val loss 2.3",
         {"train_loss": 2.1, "val_loss": 2.3}, Position(250)),
    Case("nanochat", "karpathy/nanochat scripts/base_train.py",
         "step 00010 (1.00%) | loss: 4.25 | lrm: 1.00 | dt: 500.00ms | tok/sec: 1,048,576 | mfu: 45.20 | epoch: 1 | "
         "total time: 1.20m",
         {"loss": 4.25, "mfu": 45.2, "steps_per_second": 2.0, "tokens_per_second": 1048576}, Position(10, None, 1.0)),
    Case("modded-nanogpt", "KellerJordan/modded-nanogpt train_gpt.py",
         "step:125/1390 val_loss:4.25 train_time:12500ms step_avg:100.00ms",
         {"val_loss": 4.25, "steps_per_second": 10.0}, Position(125, 1390)),
    Case("llm.c", "karpathy/llm.c train_gpt2.cu",
         "step 12/18865 | loss 7.2531 (+nanz)| norm 1.5 (+nanz)| lr 3.00e-05 | 250.00 ms | 45% bf16 MFU | 524288 tok/s",
         {"loss": 7.2531, "grad_norm": 1.5, "lr": 3e-05, "steps_per_second": 4.0, "tokens_per_second": 524288},
         Position(12, 18865)),
    Case("torchtitan", TITAN,
         "[titan] 2025-05-01 10:00:00,123 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.0112  "
         "\x1b[38;2;180;60;0mgrad_norm:  1.2000  \x1b[36mmemory:  0.50GiB(1.00%)  \x1b[34mtps: 5,123  "
         "\x1b[36mtflops: 12.30  \x1b[35mmfu: 3.10%\x1b[39m",
         {"loss": 7.0112, "grad_norm": 1.2, "mfu": 3.1, "tokens_per_second_per_gpu": 5123}, Position(10)),
    Case("torchtitan", TITAN,
         "\x1b[33mvalidate step: 20  \x1b[32mloss:  6.5  \x1b[36mmemory:  0.50GiB(1.00%)  \x1b[34mtps: 9,000\x1b[39m",
         {"val_loss": 6.5}, Position(20)),
    Case("torchtune", "pytorch/torchtune recipes/full_finetune_distributed.py",
         "1|10|Loss: 2.3125:   1%|          | 10/1000 [00:05<08:20,  2.00it/s]",
         {"loss": 2.3125, "steps_per_second": 2.0}, Position(10, 1000)),
    Case("DeepSpeed, pipelines", f"{DEEPSPEED}/runtime/pipe/engine.py",
         "steps: 10 loss: 9.1234 iter time (s): 0.500 samples/sec: 32.000",
         {"loss": 9.1234, "steps_per_second": 2.0, "samples_per_second": 32.0}, Position(10)),
    Case("DeepSpeed", f"{DEEPSPEED}/utils/timer.py",
         "[2025-03-07 15:27:02,646] [INFO] [timer.py:260:stop] epoch=0/micro_step=199/global_step=199, "
         "RunningAvgSamplesPerSec=58.73, CurrSamplesPerSec=61.35, MemAllocated=6.01GB, MaxMemAllocated=19.52GB",
         {"samples_per_second": 61.35}, Position(199, None, 0.0)),
    Case("DeepSpeed", f"{DEEPSPEED}/runtime/engine.py",
         "[2025-03-07 15:27:02,646] [INFO] [logging.py:96:log_dist] [Rank 0] step=1890, skipped=19, "
         "lr=[9.27e-06, 9.27e-06], mom=[(0.9, 0.95)]", {"lr": 9.27e-06}, Position(1890)),
    Case("Megatron-LM", "NVIDIA/Megatron-LM megatron/training/training.py",
         " [2025-08-01 07:19:37] iteration      100/    5000 | consumed samples:        12800 | elapsed time per "
         "iteration (ms): 500.0 | throughput per GPU (TFLOP/s/GPU): 80.2 | learning rate: 1.500000E-04 | global batch "
         "size: 128 | lm loss: 6.700000E+00 | loss scale: 1.0 | grad norm: 1.200 | number of nan iterations: 0 |",
         {"lm_loss": 6.7, "learning_rate": 1.5e-04, "grad_norm": 1.2, "steps_per_second": 2.0}, Position(100, 5000)),
    Case("Composer", COMPOSER, "\t Train loss/train/total: 2.3456", {"loss_train_total": 2.3456}),
    Case("Composer", COMPOSER, "\t Train throughput/samples_per_sec: 123.4", {"samples_per_second": 123.4}),
    Case("Composer", COMPOSER, "[Eval batch=10/20] Eval on eval data", {}),
    Case("MMEngine", MMENGINE,
         "2025/01/02 10:00:00 - mmengine - INFO - Epoch(train)  [1][ 10/100]  lr: 1.0000e-02  eta: 0:12:34  time: 0.501"
         "  data_time: 0.1003  memory: 1234  loss: 0.5234  loss_cls: 0.3",
         {"loss": 0.5234, "lr": 0.01}, Position(10, 100, 1.0, within=True)),
    Case("MMEngine", MMENGINE,
         "2025/01/02 10:00:00 - mmengine - INFO - Iter(train) [  50/20000]  base_lr: 1.0e-04 lr: 1.0e-04  loss: 2.1",
         {"loss": 2.1, "lr": 1e-4}, Position(50, 20000)),
    Case("MMEngine", MMENGINE,
         "2025/01/02 10:00:00 - mmengine - INFO - Epoch(val)  [1][50/50]    accuracy/top1: 76.31  data_time: 0.1",
         {"val_accuracy_top1": 76.31}),
    Case("detectron2", "facebookresearch/detectron2 detectron2/utils/events.py",
         "[01/02 10:00:00 d2.utils.events]:  eta: 0:12:34  iter: 19  total_loss: 2.345  time: 0.2512  data_time: 0.01  "
         "lr: 0.00039962  max_mem: 1234M", {"total_loss": 2.345, "lr": 0.00039962}, Position(19)),
    Case("fairseq, simple", FAIRSEQ,
         "2025-01-02 10:00:00 | INFO | train_inner | epoch 001:    100 / 600 loss=5.1, nll_loss=4.2, ppl=18.4, "
         "wps=12345, ups=2.1, wpb=4000, bsz=64, num_updates=100, lr=1e-05, gnorm=1.2, clip=0, train_wall=50, wall=60",
         {"loss": 5.1, "nll_loss": 4.2, "ppl": 18.4, "tokens_per_second": 12345, "steps_per_second": 2.1, "lr": 1e-05,
          "grad_norm": 1.2}, Position(100, None, 1.0)),
    Case("fairseq, JSON", FAIRSEQ,
         '{"epoch": 1, "update": 0.5, "loss": "5.1", "ppl": "30.1", "wps": "12345.6", "ups": "2.1", '
         '"num_updates": "300", "lr": "1e-05", "gnorm": "1.2"}',
         {"loss": 5.1, "ppl": 30.1, "tokens_per_second": 12345.6, "steps_per_second": 2.1, "lr": 1e-05,
          "grad_norm": 1.2}, Position(300, None, 1.0)),
    Case("Keras", "keras-team/keras keras/src/utils/progbar.py",
         "\x1b[1m 469/1875\x1b[0m \x1b[32m━━━━━\x1b[0m\x1b[37m━━━━━━━━━━━━━━━\x1b[0m \x1b[1m5s\x1b[0m 4ms/step - "
         "accuracy: 0.8012 - loss: 0.5123",
         {"accuracy": 0.8012, "loss": 0.5123, "steps_per_second": 250.0}, Position(469, 1875)),
    Case("Keras", "keras-team/keras keras/src/callbacks/model_checkpoint.py",
         "Epoch 3: val_loss improved from 0.51234 to 0.43210, saving model to best.keras", {}, Position(epoch=3.0)),
    Case("PyTorch, mnist", "pytorch/examples mnist/main.py", "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.298345",
         {"loss": 2.298345}, Position(640, 60000, 1.0, within=True)),
    Case("PyTorch, mnist", "pytorch/examples mnist/main.py",
         "Test set: Average loss: 0.0482, Accuracy: 9834/10000 (98%)", {"test_loss": 0.0482, "test_accuracy": 0.9834}),
    Case("PyTorch, imagenet", "pytorch/examples imagenet/main.py",
         "Epoch: [0][  10/5005]\tTime 0.500 ( 0.600)\tData  0.100 ( 0.200)\tLoss 6.9e+00 (7.0e+00)\tAcc@1 0.39 (0.20)"
         "\tAcc@5   1.20 (  0.90)", {"loss": 6.9, "acc@1": 0.39, "acc@5": 1.2}, Position(10, 5005, 0.0, within=True)),
    Case("PyTorch, imagenet", "pytorch/examples imagenet/main.py",
         "Test: [  0/98]\tTime  1.500 ( 1.500)\tLoss 2.1e+00 (2.1e+00)\tAcc@1  51.20 ( 51.20)",
         {"test_loss": 2.1, "test_acc@1": 51.2}),
    Case("torchvision", "pytorch/vision references/classification/utils.py",
         "Epoch: [0]  [  10/1000]  eta: 0:05:00  lr: 0.1  img/s: 1024.5  loss: 6.9 (7.0)  acc1: 0.1 (0.2)  time: 0.3",
         {"loss": 6.9, "acc1": 0.1, "lr": 0.1, "samples_per_second": 1024.5}, Position(10, 1000, 0.0, within=True)),
    Case("timm", "huggingface/pytorch-image-models train.py",
         "Train: 0 [  50/1251 (  4%)]  Loss: 6.93 (6.95)  Time: 0.500s, 512.25/s  (0.600s,  426.87/s)  LR: 1.000e-04  "
         "Data: 0.010 (0.020)",
         {"loss": 6.93, "lr": 1e-4, "samples_per_second": 512.25}, Position(50, 1251, 0.0, within=True)),
    Case("open_clip", "mlfoundations/open_clip src/open_clip_train/train.py",
         "2025-01-02 | INFO | Train Epoch: 0 [  1024/100000 (1%)] Data (t): 0.100 Batch (t): 0.500, 1234.50/s, "
         "154.312/s/gpu LR: 0.000500 Logit Scale: 14.286 Contrastive_loss: 5.1234 (5.2) Loss: 5.1234 (5.2)",
         {"contrastive_loss": 5.1234, "loss": 5.1234, "lr": 0.0005, "samples_per_second": 1234.5},
         Position(1024, 100000, 0.0, within=True)),
    Case("MaxText", "AI-Hypercomputer/maxtext MaxText/metric_logger.py",
         "completed step: 5, seconds: 20.585, TFLOP/s/device: 97.566, Tokens/s/device: 1989.820, "
         "total_weights: 31457280, loss: 12.409", {"loss": 12.409, "tokens_per_second_per_gpu": 1989.82}, Position(5)),
    Case("Ray Train", "ray-project/ray python/ray/_private/ray_logging/__init__.py",
         "\x1b[36m(RayTrainWorker pid=3411, ip=10.0.0.2)\x1b[0m {'loss': 0.123, 'epoch': 2}", {"loss": 0.123},
         Position(epoch=2.0)),
    Case("Ray Train, its table", "ray-project/ray python/ray/tune/experimental/output.py",
         "│ train/loss                 0.52312 │", {"train_loss": 0.52312}),
    Case("verl", "volcengine/verl verl/utils/logger/aggregate_logger.py",
         "step:1 - global_seqlen/min:100 - actor/entropy:0.5 - actor/pg_loss:-0.02 - actor/grad_norm:0.3 - "
         "critic/score/mean:0.25 - critic/score/max:1.0 - critic/rewards/mean:0.25 - response_length/mean:120.0 - "
         "perf/throughput:1234.5 - training/global_step:1",
         {"actor_entropy": 0.5, "actor_pg_loss": -0.02, "actor_grad_norm": 0.3, "critic_score_mean": 0.25,
          "critic_rewards_mean": 0.25, "tokens_per_second_per_gpu": 1234.5}, Position(1)),
    Case("verl below Ray", "volcengine/verl verl/utils/logger/aggregate_logger.py",
         "\x1b[36m(TaskRunner pid=2617997)\x1b[0m step:66 - actor/kl_loss:np.float64(-0.65) - actor/kl_coef:0.003 - "
         "actor/pg_clipfrac:0.0026 - actor/ppo_kl:0.0023 - mfu/actor:0.02 - actor/lr:3e-06 - training/epoch:2",
         {"actor_kl_loss": -0.65, "actor_ppo_kl": 0.0023, "mfu_actor": 0.02, "actor_lr": 3e-06},
         Position(66, None, 2.0)),
    Case("OpenRLHF", "OpenRLHF/OpenRLHF openrlhf/trainer/sft_trainer.py",
         "Train step of epoch 0:  12%|█▎        | 12/96 [00:24<02:48,  2.00s/it, gpt_loss=1.5, lr=1e-6]",
         {"gpt_loss": 1.5, "lr": 1e-6, "steps_per_second": 0.5}, Position(12, 96, 0.0, within=True)),
    Case("Stable-Baselines3", "DLR-RM/stable-baselines3 stable_baselines3/common/logger.py",
         "|    ep_rew_mean          | 21.9        |", {"ep_rew_mean": 21.9}),
    Case("PyTorch tutorial", "yunjey/pytorch-tutorial tutorials/01-basics/feedforward_neural_network/main.py",
         "Epoch [1/5], Step [100/600], Loss: 0.5123", {"loss": 0.5123}, Position(100, 600, 1.0, 5)),
    Case("PaddlePaddle", "PaddlePaddle/PaddleDetection ppdet/engine/callbacks.py",
         "Epoch: [0] [ 20/120] learning_rate: 0.000050 loss: 12.5 eta: 0:20:00 batch_cost: 0.5000 data_cost: 0.1 "
         "ips: 16.0 images/s",
         {"loss": 12.5, "learning_rate": 5e-5, "samples_per_second": 16.0}, Position(20, 120, 0.0, within=True)),
    Case("PaddleClas", "PaddlePaddle/PaddleClas ppcls/engine/train/utils.py",
         "[2025/04/30 11:30:30] ppcls INFO: [Train][Epoch 1/300][Iter: 100/1252]lr(LinearWarmup): 0.00403000, "
         "CELoss: 6.97696, loss: 6.97696, batch_cost: 0.50000s, reader_cost: 0.22499, ips: 269.84145 samples/s, "
         "eta: 4 days, 2:57:18",
         {"celoss": 6.97696, "loss": 6.97696, "lr": 0.00403, "samples_per_second": 269.84145, "steps_per_second": 2.0},
         Position(100, 1252, 1.0, 300)),
    Case("tqdm", TQDM, " 30%|███       | 30/100 [00:10<00:20,  3.10it/s, loss=0.12]",
         {"loss": 0.12, "steps_per_second": 3.1}, Position(30, 100)),
    Case("tqdm", TQDM, "100%|██████████| 5/5 [00:00<00:00, 1.20kit/s, loss=0.12]",
         {"loss": 0.12, "steps_per_second": 1200}, Position(5, 5)),
    Case("tqdm", TQDM, "Writing model shards: 100%|██████████| 1/1 [00:00<00:00, 64.68it/s]", {}),
    Case("Transformers 5", "huggingface/transformers src/transformers/modeling_utils.py",
         "Loading weights: 100%|██████████| 148/148 [00:00<00:00, 1234.00it/s, Materializing param=wte.weight]", {}),
    Case("tqdm", TQDM, "Map:  50%|█████     | 500/1000 [00:01<00:01, 498.12 examples/s]", {}),
    Case("tqdm", TQDM, "Generating train split: 100 examples [00:00, 2345.67 examples/s]", {}),
    Case("Chinese", OWN, "步骤 120: 训练损失 0.5123, 验证损失 0.6",
         {"train_loss": 0.5123, "val_loss": 0.6}, Position(120)),
    Case("Chinese", OWN, "第 3 轮\uff0c损失\uff1a0.5\uff0c准确率\uff1a93.1%\uff0c学习率\uff1a1e-4",
         {"loss": 0.5, "accuracy": 93.1, "learning_rate": 1e-4}, Position(epoch=3.0)),
    Case("Chinese", OWN, "[Epoch 02/10]  学习率: 0.001000", {"learning_rate": 0.001}, Position(None, None, 2.0, 10)),
    Case("Chinese", OWN, "- 学习率: 0.001", {}),
    Case("tensors", OWN, "step 3 {'loss': tensor(0.51, device='cuda:0', grad_fn=<NllLossBackward0>)}", {"loss": 0.51},
         Position(3)),
    Case("NumPy", OWN, "loss=np.float32(0.25) acc=np.float64(0.5)", {"loss": 0.25, "acc": 0.5}),
    Case("logging", "python/cpython Lib/logging/__init__.py",
         "2025-01-01 10:00:00,123 INFO step=10 loss=2.3 tokens_per_sec=12345.6",
         {"loss": 2.3, "tokens_per_second": 12345.6}, Position(10)),
    Case("Chinese", OWN, "损失=0.51 步数=12 训练速度: 1234.5 tok/s", {"loss": 0.51, "tokens_per_second": 1234.5},
         Position(12)),
    Case("thousands", OWN, "step 1,200/10,000 loss 1,234.5", {"loss": 1234.5}, Position(1200, 10000)),
    Case("two numbers", OWN, "epoch 1/3  loss 1.10  1234.5 tokens/s", {"loss": 1.1, "tokens_per_second": 1234.5},
         Position(None, None, 1.0, 3)),
    Case("InstructLab", "instructlab/training src/instructlab/training/main_ds.py",
         "throughput: 161.84 samples/s, lr: 1.34e-05, loss: 0.84 cuda_mem_allocated: 22.45 GB",
         {"loss": 0.84, "lr": 1.34e-05, "samples_per_second": 161.84}),
    Case("JSON lines", OWN, '{"step": 7, "train/loss": 2.5, "train/tokens_per_second": 900}',
         {"train_loss": 2.5, "tokens_per_second": 900}, Position(7)),
    Case("22 decimals", OWN, "{'learning_rate': 0.0003360331834572238, 'loss': 12.345678901234567}",
         {"learning_rate": 0.0003360331834572238, "loss": 12.345678901234567}),
    Case("the end of a sentence", OWN, "loss 0.5.", {"loss": 0.5}),
    # Nothing: settings, and numbers of something else.
    Case("argparse", OWN, "Namespace(epochs=14, lr=1.0, gamma=0.7, loss_weight=0.5, step=3, loss=1)", {}),
    Case("TrainingArguments", "huggingface/transformers src/transformers/training_args.py",
         "TrainingArguments(learning_rate=5e-05, max_grad_norm=1.0, label_smoothing_factor=0.0,", {}),
    Case("nanoGPT", "karpathy/nanoGPT configurator.py", "Overriding: learning_rate = 0.001", {}),
    Case("nanoGPT", "karpathy/nanoGPT configurator.py", "min_lr = 6e-05", {}),
    Case("nanoGPT", "karpathy/nanoGPT config/train_shakespeare_char.py",
         "min_lr = 1e-4 # learning_rate / 10 usually", {}),
    Case("nanoGPT", "karpathy/nanoGPT config/train_shakespeare_char.py",
         "lr_decay_iters = 5000 # make equal to max_iters usually", {}),
    Case("YAML", OWN, "loss_weight: 0.5", {}),
    Case("YAML", OWN, "label_smoothing: 0.1", {}),
    Case("YAML", OWN, "  loss_fn: {type: mse, reduction: 1}", {}),
    Case("YAML", OWN, "max_grad_norm: 1.0  kl_coef: 0.05  reward_scale: 2  target_kl: 0.1", {}),
    Case("Weights & Biases", "wandb/wandb", "wandb:         train/loss 0.523", {}),
    Case("best so far", OWN, "best loss: 0.1 min_loss=0.2 previous loss 0.3", {}),
    Case("words", OWN, "it was lossless and glossy, see loss of node gpu01", {}),
    Case("other numbers", OWN, "loss 0.5s lr 1.2.3 acc 0." + "1" * 40 + " loss 2024-01-02 loss v1.2 loss-5 loss 0x1F",
         {}),
    Case("lines of programs", OWN, "loss = (1 - target) * self  if loss == 0: f1(3) loss=max(0, x)", {}),
    Case("transfers", OWN, "Downloading 1.2 MB/s, 30 files/s, loss of 3 packets", {}),
    Case("pip", OWN, "torch 2.9.1+cu128, 12:30:45 10.0.0.7:29500", {}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.framework}-{case.line[:30]}")
def test_lines_of_frameworks(case: Case) -> None:
    """Each number under its name, the place in the training, the rate; settings and bars of other programs are not."""
    found = read_line(case.line)
    assert found.values == pytest.approx(case.values)
    assert found.position == case.position
    assert has_hint(case.line.encode()) or found == NOTHING


def test_a_number_that_is_not_finite() -> None:
    """NaN is what a loss becomes when training has failed: it is found and kept."""
    for text in ("nan", "NaN", "inf", "-inf"):
        assert not math.isfinite(read_line(f"step 3 loss: {text}").values["loss"])
        assert not math.isfinite(read_line(f"{{'loss': '{text}'}}").values["loss"])


@pytest.mark.parametrize("text", ["0,5", "0,512", "1,2345", "2,5e-1"])
def test_a_decimal_comma_is_no_number(text: str) -> None:
    """Its first part would be a wrong one; thousands have groups of three."""
    assert read_line(f"step 3 loss: {text}").values == {}
    assert read_line("step 3 loss: 1,234.5").values == {"loss": 1234.5}


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("validation: loss 2.0", {"val_loss": 2.0}),
        ("[Validation] loss: 2.0", {"val_loss": 2.0}),
        ("| valid | loss 2.0 | epoch 3", {"val_loss": 2.0}),
        ("step 5 eval: avg loss=2.0", {"eval_loss": 2.0}),
        ("train: loss 1.0 | validation: loss 2.0", {"loss": 1.0}),
        ("train loss 1.0, val loss 2.0", {"train_loss": 1.0, "val_loss": 2.0}),
    ],
)
def test_the_loss_of_an_evaluation_is_not_the_trainings(line: str, values: dict[str, float]) -> None:
    """Where a word before it says so."""
    assert read_line(line).values == values


def test_steps_to_come() -> None:
    """Trainer and torchtitan print once how many steps there will be."""
    assert read_line("  Total optimization steps = 1,000").total == 1000
    assert (
        read_line("gradient accumulation steps 1, sequence length 2048, total steps 10 (warmup 2)").total
        == 10
    )


def test_a_table_has_its_names_above() -> None:
    """Ultralytics (ultralytics/models/yolo/detect/train.py) and fastai (fastai/learner.py); another line ends it."""
    reader = LineReader()
    reader.read("      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size")
    row = "      2/100      2.5G      1.234      3.456      1.101      50    640: 100%|███| 8/8 [00:01<00:00, 6.1it/s]"
    found = reader.read(row)
    assert found.values == {"box_loss": 1.234, "cls_loss": 3.456, "dfl_loss": 1.101}
    assert (found.position.epoch, found.position.epochs) == (2.0, 100)
    reader.read("                 Class     Images  Instances      Box(P          R      mAP50)")
    assert not reader.in_table and reader.read("1/100 2.5G 1.2 3.4 1.1 50 640").values == {}
    reader.read("epoch     train_loss  valid_loss  accuracy  time")
    assert reader.read("0         2.345       1.234       0.56      00:10").values == {
        "train_loss": 2.345, "valid_loss": 1.234, "accuracy": 0.56,
    }  # fmt: skip


def test_a_step_may_stand_above_its_numbers() -> None:
    """Composer prints the step, then an indented line for each number."""
    reader = LineReader()
    reader.read("[epoch=2][batch=10/100]:")
    assert reader.read("\t Train loss/train/total: 2.5").position == Position(10, 100, 2.0)
    reader.read("done")
    assert reader.read("\t Train loss/train/total: 2.4").position == Position()


def test_a_traceback_shows_lines_of_programs() -> None:
    """They name losses, but measure nothing; torch marks them with the rank."""
    for prefix in ("", "[rank0]: "):
        reader = LineReader()
        reader.read(f"{prefix}Traceback (most recent call last):")
        assert reader.read(f"{prefix}    loss = 1.0 / scale") == NOTHING
        assert reader.read("step 3 loss = 0.5").values == {"loss": 0.5}
        assert reader.read("    step 4 loss = 0.25").values == {"loss": 0.25}


FRAGMENTS = st.sampled_from(
    ["loss", " ", ": ", "=", "1,234.5", "1e5", "nan", "/", "|", "[", "]", "%|", "step", "\x1b[31m",
     "\x1b]8;;", "损失", "\t", "'", "(", ")", "0" * 30, ",111" * 9, "it/s", "Epoch", "val", " - ", "-", ".",
     "\uff1a", "tensor(", "ms/step"]
)  # fmt: skip


@given(st.lists(FRAGMENTS, max_size=80).map("".join) | st.text(max_size=300))
def test_any_line_is_read(line: str) -> None:
    """Whatever a program prints: names of bounded length, numbers, and places that are none or not negative."""
    reader = LineReader()
    for found in (read_line(line), reader.read(line), reader.read(line)):
        assert all(0 < len(name) <= 48 for name in found.values)
        step, total, epoch = found.position[:3]
        assert all(number is None or number >= 0 or name == "epoch"
                   for name, number in (("step", step), ("total", total), ("epoch", epoch)))  # fmt: skip
