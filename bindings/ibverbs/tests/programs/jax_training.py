"""A small data-parallel training by JAX, whose ranks add their gradients by mpi4jax.

Each rank has its part of the examples; after each step, the gradients of all are added by one
allreduce. Rank 0 prints every loss with all its digits, and a digest of the trained weights.
Two ranks add two numbers, whose sum does not depend on the order: the result over any transport is
the same, bit by bit. Ends with `jax_training: N losses, DIGEST`, and before that says how long a
step took, without the first ones, in which JAX compiles.

usage: jax_training.py [STEPS]
"""

import hashlib
import sys
import time

import jax
import jax.numpy as jnp
import mpi4jax
import numpy as np
from mpi4py import MPI

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
WARM_UP = 2
EXAMPLES = 512  # of each rank
INPUTS, HIDDEN = 64, 256
RATE = 0.05

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()


def examples():
    """This rank's inputs, and a smooth function of them to learn."""
    random = np.random.default_rng(1000 + rank)
    inputs = random.standard_normal((EXAMPLES, INPUTS), dtype=np.float32)
    wave = np.random.default_rng(7).standard_normal((INPUTS, 1), dtype=np.float32)
    return jnp.asarray(inputs), jnp.asarray(np.sin(inputs @ wave / np.sqrt(INPUTS)))


def weights():
    """The same at each rank."""
    random = np.random.default_rng(1)
    shapes = [(INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN, 1)]
    scale = [1 / np.sqrt(shape[0]) for shape in shapes]
    return [
        jnp.asarray(random.standard_normal(shape).astype(np.float32) * np.float32(by))
        for shape, by in zip(shapes, scale)
    ]


def loss_of(weights, inputs, wanted):
    first, first_bias, second, second_bias, last = weights
    hidden = jnp.tanh(inputs @ first + first_bias)
    hidden = jnp.tanh(hidden @ second + second_bias)
    return jnp.mean((hidden @ last - wanted) ** 2)


@jax.jit
def step(weights, inputs, wanted):
    """One step of all ranks together; returns the new weights, and the mean of the losses."""
    loss, gradients = jax.value_and_grad(loss_of)(weights, inputs, wanted)
    flat = jnp.concatenate([g.ravel() for g in gradients] + [loss[None]])
    flat = mpi4jax.allreduce(flat, op=MPI.SUM, comm=comm) / size
    new, at = [], 0
    for old in weights:
        new.append(old - RATE * flat[at : at + old.size].reshape(old.shape))
        at += old.size
    return new, flat[-1]


def main():
    inputs, wanted = examples()
    state = weights()
    losses = []
    for number in range(STEPS):
        if number == WARM_UP:
            comm.Barrier()
            began = time.perf_counter()
        state, loss = step(state, inputs, wanted)
        losses.append(float(loss))
    comm.Barrier()
    took = time.perf_counter() - began
    digest = hashlib.sha256(b"".join(np.asarray(w).tobytes() for w in state)).hexdigest()
    if comm.allgather(digest) != [digest] * size:
        raise SystemExit(f"jax_training: rank {rank} has other weights")
    if rank == 0:
        for number, loss in enumerate(losses):
            print(f"jax_training: loss {number} {loss.hex()}")
        print(f"a step took {took / (STEPS - WARM_UP) * 1e3:.2f} ms")
        print(f"jax_training: {len(losses)} losses, {digest}", flush=True)
    if not losses[-1] < losses[0] / 2:
        raise SystemExit("jax_training: it has not learnt")


main()
