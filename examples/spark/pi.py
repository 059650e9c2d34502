"""How large is pi? The darts are thrown by Spark's executors."""

from __future__ import annotations

import random

from pyspark.sql import SparkSession


def inside(seed: int) -> int:
    dice = random.Random(seed)
    return sum(dice.random() ** 2 + dice.random() ** 2 < 1 for _ in range(10_000))


def main() -> None:
    spark = SparkSession.builder.appName("pi").getOrCreate()
    hits = spark.sparkContext.parallelize(range(10), 2).map(inside).sum()
    print(f"pi is about {4 * hits / 100_000:.3f}")
    spark.stop()


if __name__ == "__main__":
    main()
