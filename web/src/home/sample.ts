/** What the cards of the first visit run: plain Python, nothing to install. */
export const SAMPLE = `"""Two crescents of points, one hidden layer, plain Python: no torch, no numpy.

    python3 train.py --lr 0.5
"""

import argparse
import math
import random
import time

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.5)
parser.add_argument("--steps", type=int, default=150)
args = parser.parse_args()

chance = random.Random(0)
points = []
for _ in range(128):
    label, angle = chance.randrange(2), chance.uniform(0, math.pi)
    x, y = math.cos(angle), math.sin(angle)
    if label:
        x, y = 1 - x, 0.4 - y
    points.append((x + chance.gauss(0, 0.1), y + chance.gauss(0, 0.1), label))

units = [[chance.uniform(-1, 1) for _ in range(4)] for _ in range(12)]
bias = 0.0
for step in range(1, args.steps + 1):
    loss = right = 0.0
    slopes, slope = [[0.0] * 4 for _ in units], 0.0
    for x, y, label in points:
        hidden = [math.tanh(a * x + b * y + c) for a, b, c, _ in units]
        out = bias + sum(h * unit[3] for h, unit in zip(hidden, units))
        guess = 1 / (1 + math.exp(-max(-30.0, min(30.0, out))))
        loss -= math.log(max(guess if label else 1 - guess, 1e-12)) / len(points)
        right += (guess > 0.5) == bool(label)
        error = (guess - label) / len(points)
        slope += error
        for h, unit, down in zip(hidden, units, slopes):
            back = error * unit[3] * (1 - h * h)
            for n, part in enumerate((back * x, back * y, back, error * h)):
                down[n] += part
    bias -= args.lr * slope
    for unit, down in zip(units, slopes):
        for n in range(4):
            unit[n] -= args.lr * down[n]
    print(f"step={step} loss={loss:.4f} accuracy={right / len(points):.3f}", flush=True)
    time.sleep(0.09)
`;

export const RATES = [3, 0.5, 0.05] as const;
