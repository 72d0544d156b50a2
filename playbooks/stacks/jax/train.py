"""Train a small network with JAX on the devices of all nodes: a sharded batch, and gradients that XLA exchanges."""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

BATCH = 32  # per device
Parameters = dict[str, jax.Array]


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Fit a curve.")
    parser.add_argument("--coordinator", default="127.0.0.1:23456", help="where process 0 listens")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--process", type=int, default=0, help="the number of this process")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder for the parameters")
    return parser.parse_args()


def init_parameters() -> Parameters:
    """Draw the parameters; equal in every process, because the seed is."""
    first, second = jax.random.split(jax.random.key(1))
    return {
        "w1": jax.random.normal(first, (1, 32)), "b1": jnp.zeros(32),
        "w2": jax.random.normal(second, (32, 1)) / 6, "b2": jnp.zeros(1),
    }  # fmt: skip


def loss_of(parameters: Parameters, x: jax.Array) -> jax.Array:
    """Return the mean squared error over the whole batch, which all devices share."""
    hidden = jnp.tanh(x @ parameters["w1"] + parameters["b1"])
    return jnp.mean((hidden @ parameters["w2"] + parameters["b2"] - jnp.sin(x)) ** 2)


@jax.jit
def update(parameters: Parameters, x: jax.Array) -> tuple[Parameters, jax.Array]:
    """Take one step of gradient descent."""
    loss, gradients = jax.value_and_grad(loss_of)(parameters, x)
    return jax.tree.map(lambda value, gradient: value - 0.05 * gradient, parameters, gradients), loss


def train(options: argparse.Namespace) -> None:
    """Each process draws the batch of its own devices."""
    mesh = Mesh(np.array(jax.devices()), ("data",))
    rows, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    print(
        f"process {jax.process_index()} of {jax.process_count()}: "
        f"{jax.local_device_count()} of {jax.device_count()} devices, {jax.devices()[0].platform}",
        flush=True,
    )
    parameters = jax.device_put(init_parameters(), everywhere)
    random = np.random.default_rng(options.process)
    for step in range(1, options.steps + 1):
        local = random.uniform(-3, 3, (BATCH * jax.local_device_count(), 1)).astype(np.float32)
        x = jax.make_array_from_process_local_data(rows, local)
        parameters, loss = update(parameters, x)
        # On CPUs two steps under way at once can wait for each other for ever: each device has few threads.
        jax.block_until_ready(loss)
        if step % 50 == 0 and options.process == 0:
            print(f"step {step}/{options.steps}  loss {float(loss):.4f}", flush=True)
    if options.process == 0:
        options.output.mkdir(parents=True, exist_ok=True)
        values = {name: np.asarray(value) for name, value in parameters.items()}
        np.savez(options.output / "parameters.npz", **values)
        print(f"saved {options.output / 'parameters.npz'}", flush=True)


def main() -> None:
    """Find the other processes before the first use of a device, train, and leave together."""
    options = parse_options()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.config.update("jax_num_cpu_devices", 2)  # without GPUs: two devices in each process
    jax.distributed.initialize(options.coordinator, options.processes, options.process)
    train(options)
    jax.distributed.shutdown()  # waits for the others: after an exception it would only delay the traceback


if __name__ == "__main__":
    main()
