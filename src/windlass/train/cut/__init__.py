"""A model as a chain of blocks, and stages made of it, without rewriting the model."""

from windlass.train.cut.balance import balance
from windlass.train.cut.chain import Block, Chain, chain_of
from windlass.train.cut.stage import Stage, release

__all__ = ["Block", "Chain", "Stage", "balance", "chain_of", "release"]
