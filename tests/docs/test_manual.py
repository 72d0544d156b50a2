"""The manual stays small: eleven pages, a budget of words, and an index in which the usual questions are found."""

from __future__ import annotations

import pytest
from pages import ROOT, links

MANUAL = ROOT / "docs" / "en"
PAGES = (
    "start",
    "machines",
    "network",
    "environments",
    "staging",
    "job",
    "runs",
    "failures",
    "restarts",
    "sharing",
    "command-line",
)
REFERENCE = ("inventory", "job", "verbs", "codes")
MAX_WORDS = 20_000  # of the pages together
MAX_WORDS_OF_INDEX = 600
QUESTIONS = {  # what people ask most often: the section that answers
    "how do I train on my machines": "start.md#from-machines-to-the-first-training",
    "I have no machines yet": "start.md#no-machines-yet-a-practice-cluster",
    "I use torchrun, mp.spawn or torch.distributed.launch": "start.md#i-start-torchrun-by-hand-today",
    "what does an inventory look like": "machines.md#list-my-machines",
    "my machines are behind a jump host": "machines.md#machines-behind-a-bastion-jump-host",
    "Permission denied (publickey)": "machines.md#install-my-key-on-all-nodes",
    "which network card is used": "network.md#which-nic-does-nccl-use",
    "what is GLOO_IFACE": "network.md#what-does-gloo_iface-do",
    "the nodes do not connect to each other": "network.md#nodes-cannot-reach-each-other",
    "address already in use": "network.md#address-already-in-use",
    "how do I install packages on all nodes": "environments.md#install-packages-on-every-node",
    "where do I put my dataset": "staging.md#where-does-the-dataset-go",
    "how do I pass arguments": "job.md#pass-arguments-to-the-script",
    "how do I get my checkpoints": "runs.md#download-the-results",
    "how do I stop it": "runs.md#stop-a-run",
    "why did it fail": "failures.md#why-did-it-fail",
    "it hangs": "failures.md#the-run-hangs",
    "CUDA out of memory": "failures.md#cuda-out-of-memory",
    "how do I continue after a crash": "restarts.md#resume-after-a-crash",
    "how do I use it with Slurm": "sharing.md#on-a-slurm-cluster",
}


def words(page: str) -> int:
    """Count the words of a page as `wc -w` does, blocks included."""
    return len((MANUAL / page).read_text(encoding="utf-8").split())


def test_the_pages_keep_their_budget() -> None:
    """The pages have at most 20 000 words together, and the index at most 600."""
    assert sum(words(f"{page}.md") for page in PAGES) <= MAX_WORDS
    assert words("README.md") <= MAX_WORDS_OF_INDEX


def test_no_other_page_is_beside_them() -> None:
    """The manual has eleven pages, the index, and four pages of reference; what else there is goes to docs/inside."""
    expected = {
        "README.md",
        *(f"{page}.md" for page in PAGES),
        *(f"reference/{page}.md" for page in REFERENCE),
    }

    assert {str(page.relative_to(MANUAL)) for page in MANUAL.rglob("*.md")} == expected


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_frequent_question_is_in_the_index(question: str) -> None:
    """The index leads to the section that answers; that the section exists is tested with all links."""
    assert QUESTIONS[question] in links(MANUAL / "README.md")
