#!/bin/sh -e
# What such scripts do before they train: cleaning, converting, downloading. Then torchrun, with the numbers of this node.
echo "node $NODE_RANK of $NNODES starts $NPROC_PER_NODE ranks"
exec "${CLUSTERCTL_PYTHON:-python3}" -m torch.distributed.run \
    --nnodes "$NNODES" --node-rank "$NODE_RANK" --nproc-per-node "$NPROC_PER_NODE" \
    --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \
    train.py "$@"
