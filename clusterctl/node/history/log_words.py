"""The words of training frameworks: what they call losses, rates and steps, and what is a setting or an evaluation.

Data only; log_values.py applies it. The tests have a line for each framework.
"""

from __future__ import annotations

import re
from typing import Dict, FrozenSet, Tuple


def _words(text: str) -> FrozenSet[str]:
    return frozenset(text.split())


# What a name ends with: train_loss, lm loss, rewards/chosen, acc@1, 训练损失.
METRICS = _words(
    "loss losses nll acc accuracy accuracies acc@1 acc@5 top1 top5 perplexity ppl reward rewards rew mfu f1 bleu wer "
    "cer bpb bpc grad_norm learning_rate lr norm gnorm"
)
# These are common words: they count only before a colon or an equals sign.
SHY_METRICS = _words(
    "score scores kl entropy margins bbox_map segm_map map50 auc iou miou psnr mse mae rmse return"
)
# A path with one of these in it is a measurement of it: loss/train/total, rewards/chosen, critic/score/mean.
PATH_METRICS = METRICS | _words("score entropy kl")
CHINESE_METRICS = {
    "损失": "loss",
    "准确率": "accuracy",
    "困惑度": "perplexity",
    "奖励": "reward",
    "学习率": "learning_rate",
    "梯度范数": "grad_norm",
}
CHINESE_KINDS = {"训练": "train_", "验证": "val_", "测试": "test_", "评估": "eval_"}
ALIASES = {"gnorm": "grad_norm", "norm": "grad_norm", "gradient_norm": "grad_norm"}  # fairseq, llm.c
# Settings where nothing was measured: they count only beside a measurement, or with a step.
SETTINGS = ("lr", "learning_rate", "norm")
# A name with one of these is a setting, a limit or a record, not what the step has measured.
NOT_MEASURED = _words(
    "weight weights coef coeff coefficient scale scaler fn func function type alpha beta gamma lambda smoothing ratio "
    "threshold target min max best patience warmup clip interval freq decay factor initial init base peak previous "
    "prev old minimum maximum schedule scheduler group reduction multiplier baseline 阈值 目标 最佳 初始"
)
# Words before a name that are no part of it, and what may follow it in it.
FILLERS = _words(
    "the a an and with of is at by for to average avg mean current running step epoch final rank"
)
TAILS = _words("mean avg average std step epoch total sum")

STEPS = _words(
    "step steps iter iters iteration iterations batch global_step train_step num_updates update_step 步 步骤 步数 迭代 "
    "global_step/max_steps"
)
# What may stand before `step`; warmup steps are settings.
STEP_WORDS = _words(
    "global train training completed optimizer current trainer validate validation val eval test at info"
)
EPOCHS = _words("epoch ep 轮")
TOTALS = ("total steps", "total optimization steps", "总步数")  # torchtitan, Trainer

_UNIT_WORDS = (
    ("tokens", "tok toks token tokens"),
    ("samples", "sample samples example examples img imgs image images seq seqs sequences"),
    (
        "steps",
        "it its iter iters iteration iterations step steps batch batches u update updates",
    ),  # ups: fairseq
)
UNITS: Dict[str, str] = {word: unit for unit, words in _UNIT_WORDS for word in words.split()}
RATE = re.compile(
    r"(?:train_|training_|curr|[a-z]{1,20}/)?([a-z]{1,12}?)_?(?:/|per_?)_?(?:s|sec|seconds?)"
    r"(?:_?(?:/|per_?)_?(?:gpu|device|rank|chip|npu))?"
)
PER_DEVICE = re.compile(r"(?:/|per_?)_?(?:gpu|device|rank|chip|npu)$")
NAMED_RATES = {
    "tps": "tokens_per_second",  # torchtitan
    "wps": "tokens_per_second",  # fairseq
    "ups": "steps_per_second",  # fairseq
    "perf/throughput": "tokens_per_second_per_gpu",  # verl
    "throughput": "throughput",  # its unit stands behind it, if anywhere
}
STEP_RATE = "steps_per_second"
SHARES = ("acc",)
# A rate that is one of each device where the other word stands in the line.
DEVICE_RATES = (("tokens_per_second", "tflops"),)  # torchtitan: tps beside tflops
STEP_TIME_UNITS = re.compile(r"(ms|s|sec|seconds?)/(?:it|iter|step|batch)s?")  # tqdm, Keras
SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0}
# What a step took, by label, with the units that may stand in the label or after the number.
STEP_TIMES: Dict[str, Tuple[str, ...]] = {
    "elapsed time per iteration": ("ms", "s"),  # Megatron-LM
    "iter time": ("s", "ms"),  # DeepSpeed
    "step_avg": ("ms", "s"),  # modded-nanogpt
    "step time": ("s", "ms"),
    "step_time": ("s", "ms"),
    "dt": ("ms",),  # nanochat
    "time": ("ms",),  # nanoGPT
    "train_step_timing in s": ("",),  # NeMo
    "batch_cost": ("s",),  # PaddlePaddle
    "": ("ms",),  # llm.c
}

# What joins a label and its number, also as Python shows tensors, and what ends a label.
JOINTS = " \t'\"[(:=为"
MARKS = ":=为"
WRAPPERS = ("tensor", "np.float32", "np.float64", "array", "float")
SEPARATORS = re.compile(r"[,;|{}\[\]()'\"\t│┃:=、•━─█▏▎▍▌▋▊▉>]|\s{2,}| - ")
# A row of a table of two columns: Lightning's tests, Stable-Baselines3.
TABLE_ROW = re.compile(
    r"\s{0,20}[|│┃]\s{0,40}([^|│┃\s]{1,60})\s{0,60}[|│┃]\s{0,40}([^|│┃\s]{1,40})\s{0,60}[|│┃]\s{0,20}"
)
PUNCTUATION = {
    0xFF1A: ":",
    0xFF0C: ", ",
    0xFF1B: ";",
    0xFF08: "(",
    0xFF09: ")",
    0xFF1D: "=",
    0xFF05: "%",
    0x3002: " ",
}
# Colours and links of terminals.
ESCAPES = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)?|[@-Z\\-_])")

PERCENT_BAR = re.compile(r"\d{1,3}(?:\.\d{1,2})?%\|")
# tqdm names what it does before the percentage; what is not named so is no training: Map, Writing model shards.
TRAINING_BAR = re.compile(
    r"\W{0,20}(?:\[?rank ?\d{1,5}\]?:? ?)?"
    r"(?:(?:train\w{0,10}|epochs?|steps?|iter\w{0,10}|progress|训练\w{0,4})[\s\d/:\[\]()-]{0,30}){0,3}",
)
# Epoch(val) [1][5/20], Test: [ 0/98], validate step: 10, validation: loss
EVALUATION = re.compile(
    r"(?:^|[\s\]\[|(])(val|eval|test)(?:id(?:at\w{1,4})?|uat\w{1,4}|ing)?"
    r"(?=\)?:?\s{0,4}(?:\[|set\b|step\b|epoch\b|batch\b|dataloader\b|\d)| ?[\]:|]\W{0,4}(?:\w{1,9} )?loss\b)",
)
EVALUATIONS = ("val", "eval", "test")
# What shows settings: Python's argparse and dataclasses.
SETTINGS_ECHO = re.compile(r"(?:namespace|config|arguments|args|params)\(")

# The lines of a traceback are indented, also behind the prefix with which torch marks the rank.
TRACEBACK = re.compile(
    r"(?:\[rank ?\d{1,6}\]: ?)?(?:(traceback \(most recent call last\))|\s)", re.IGNORECASE
)

# One of these stands in each line that is worth a look.
HINTS = (
    *(
        b"loss",
        b"acc",
        b"/s",
        b"lr",
        b"ppl",
        b"norm",
        b"rew",
        b"mfu",
        b"perpl",
        b"per_s",
        b"per s",
        b"persec",
        b"step",
    ),
    *(
        b"iter",
        b"epoch",
        b"batch",
        b"f1",
        b"bleu",
        b"wer",
        b"score",
        b"kl",
        b"entropy",
        b"%|",
        b"bpb",
        b"top1",
        b"map",
    ),
    *(text.encode() for text in ("损失", "率", "步", "轮", "奖励", "困惑度")),
)
