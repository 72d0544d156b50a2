"""Three numbers that are easily mixed up, each with a type of its own; at run time all are plain `int`.

| type     | numbers                                              | changes with a restart |
|----------|------------------------------------------------------|------------------------|
| NodeRank | the nodes that take part in one attempt, 0 to nnodes-1 | yes                    |
| Slot     | the agents of the whole run, spares last             | never                  |
| Rank     | the workers of the whole job, 0 to world_size-1      | with its node's        |

Two nodes of 4 GPUs and one spare. gpu1 is lost in attempt 1, gpu2 takes its place in attempt 2:

    node   slot   attempt 1              attempt 2
    gpu0   0      node_rank 0, 0 to 3    node_rank 0, 0 to 3
    gpu1   1      node_rank 1, 4 to 7    -
    gpu2   2      -                      node_rank 1, 4 to 7
"""

TYPE_CHECKING = False  # `typing` takes a node as long to load as all of a verb's own work
if TYPE_CHECKING:
    from typing import NewType

    NodeRank = NewType("NodeRank", int)
    Slot = NewType("Slot", int)
    Rank = NewType("Rank", int)
else:
    NodeRank = Slot = Rank = int

NESTED = "nested"  # folder in an attempt: logs of ranks that a program of the job has started by torchrun
