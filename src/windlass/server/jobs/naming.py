"""Names for jobs that were given none: `brisk-otter`."""

from __future__ import annotations

import random

_HOW = (
    "able amber apt bold brave breezy brisk calm clear clever cool crisp deft eager early "
    "fair fast fine firm fleet fond frank fresh glad golden grand happy hardy jolly keen kind "
    "light lively lucid lucky merry mild neat nimble noble plain polite proud quick quiet "
    "rapid ready royal sharp shiny silent silver sleek smart snug solid sound spry stark "
    "steady still stout sunny sure swift tidy tough trim true vivid warm wise witty young "
    "zesty "
).split()
_WHO = (
    "ant badger bat bear beaver bee bison boar camel cat cod colt crab crane crow deer dove "
    "duck eagle eel egret elk falcon ferret finch fox frog gecko gibbon goat goose gull hare "
    "hawk heron horse ibex jay kite koala lark lemur lion llama lynx marten mole moose moth "
    "mouse newt orca osprey otter owl ox panda parrot perch pike pony puffin quail rabbit ram "
    "raven robin rook salmon seal shark shrew skunk sloth snail sparrow squid stork swan "
    "tapir tern tiger toad trout turtle viper vole walrus wasp whale wolf wombat wren yak "
    "zebra "
).split()


def invent(choose: random.Random) -> str:
    return f"{choose.choice(_HOW)}-{choose.choice(_WHO)}"
