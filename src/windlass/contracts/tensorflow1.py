"""TensorFlow 1 scripts (`tf.placeholder`, `tf.Session`) under TensorFlow 2.

The same cluster as `tensorflow`, and a hook in each rank's Python that gives
`tensorflow.compat.v1` to the script's own `import tensorflow as tf`. Workers and parameter servers
without a chief are lawful here: worker 0 leads.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Tuple

from windlass.contracts.base import Gang, Probe, RankPlace
from windlass.contracts.tensorflow import (
    TensorFlowContract,
    addresses,
    cluster_variables,
    role_problems,
    shared_gpus,
)


class TensorFlow1Contract(TensorFlowContract):
    name = "tensorflow1"

    def problems(self, counts: Mapping[str, int]) -> List[str]:
        return role_problems(self, counts)

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        # TensorFlow up to 1.3 and tensor2tensor read `environment`, as Google's service wrote it.
        every = addresses(self, gang)
        return {
            **cluster_variables(every, place, environment="cloud"),
            **shared_gpus(self, place.member),
        }

    def hooks(self, gang: Gang) -> Tuple[str, ...]:
        return ("tensorflow1",)

    def probes(self, gang: Gang) -> Tuple[Probe, ...]:
        return (
            Probe(
                "tf_keras",
                {"TF_USE_LEGACY_KERAS": "1"},
                "tf.keras and tf.layers are those of tf_keras here (TF_USE_LEGACY_KERAS=1):"
                " Keras 3 has no TensorFlow 1 behaviour",
                "tf_keras is not installed: tf.keras and tf.layers of TensorFlow 1 need it from"
                " TensorFlow 2.16 on; pip install tf_keras if the script calls them",
            ),
        )
