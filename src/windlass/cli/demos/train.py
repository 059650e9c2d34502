"""A small network trained by several processes, in plain Python: no torch, no numpy.

Two crescents of points, one hidden layer. Each worker has its own points; after every step the
workers average their gradients through worker 0, which is all that data parallelism is. Runs
alone, too:  python train.py
"""

import math
import os
import random
import socket
import struct
import time
from collections.abc import Iterator

import windlass

Point = tuple[float, float, int]

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
HIDDEN, STEPS, POINTS, RATE = 12, 240, 64, 0.8


def data() -> Iterator[Point]:
    shard = random.Random(100 + RANK)
    for _ in range(POINTS):
        label, angle = shard.randrange(2), shard.uniform(0, math.pi)
        x, y = math.cos(angle), math.sin(angle)
        if label:
            x, y = 1 - x, 0.4 - y
        yield x + shard.gauss(0, 0.1), y + shard.gauss(0, 0.1), label


def gradients(weights: list[float], points: list[Point]) -> tuple[float, list[float]]:
    """Mean loss and its gradient; `weights` is flat: for each hidden unit (wx, wy, bias, out)."""
    total, grads = 0.0, [0.0] * len(weights)
    for x, y, label in points:
        hidden = [
            math.tanh(weights[i] * x + weights[i + 1] * y + weights[i + 2])
            for i in range(0, 4 * HIDDEN, 4)
        ]
        out = weights[-1] + sum(h * weights[4 * i + 3] for i, h in enumerate(hidden))
        guess = 1 / (1 + math.exp(-max(-30.0, min(30.0, out))))
        total -= math.log(max(guess if label else 1 - guess, 1e-12))
        error = (guess - label) / len(points)
        grads[-1] += error
        for i, h in enumerate(hidden):
            back = error * weights[4 * i + 3] * (1 - h * h)
            grads[4 * i] += back * x
            grads[4 * i + 1] += back * y
            grads[4 * i + 2] += back
            grads[4 * i + 3] += error * h
    return total / len(points), grads


def connect() -> list[socket.socket]:
    """Worker 0 hears the others at the address that all were told."""
    if WORLD == 1:
        return []
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if RANK == 0:
        with socket.create_server(address) as server:
            return [server.accept()[0] for _ in range(WORLD - 1)]
    for _ in range(600):
        try:
            return [socket.create_connection(address, timeout=60)]
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise SystemExit("worker 0 never listened")


def average(peers: list[socket.socket], values: list[float]) -> list[float]:
    """The same mean on every worker."""
    form = f"{len(values)}d"
    if RANK > 0:
        peers[0].sendall(struct.pack(form, *values))
        return list(struct.unpack(form, receive(peers[0], struct.calcsize(form))))
    for peer in peers:
        theirs = struct.unpack(form, receive(peer, struct.calcsize(form)))
        values = [a + b for a, b in zip(values, theirs, strict=True)]
    values = [value / WORLD for value in values]
    for peer in peers:
        peer.sendall(struct.pack(form, *values))
    return values


def receive(peer: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        part = peer.recv(size - len(got))
        if not part:
            raise SystemExit("a peer went away")
        got += part
    return got


def main() -> None:
    points, peers = list(data()), connect()
    start = random.Random(0)
    weights = [start.uniform(-1, 1) for _ in range(4 * HIDDEN + 1)]
    for step in range(1, STEPS + 1):
        loss, grads = gradients(weights, points)
        loss, *grads = average(peers, [loss, *grads])
        weights = [weight - RATE * grad for weight, grad in zip(weights, grads, strict=True)]
        if RANK == 0:
            windlass.log(step=step, loss=loss)
        if step % 40 == 0:
            print(f"step {step} loss={loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
