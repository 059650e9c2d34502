"""TensorFlow: a Keras model and optimiser, the step compiled by tf.function."""

# mypy: ignore-errors
# `reading` is beside it; the framework may not be here.

import os
import sys

from reading import measured, missing, problem, rows

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
try:
    import tensorflow as tf
except ModuleNotFoundError as err:
    missing(err.name)

told, samples, labels, layers = problem(sys.argv[1])
tf.config.threading.set_intra_op_parallelism_threads(told["threads"])
tf.config.threading.set_inter_op_parallelism_threads(1)
x, y = tf.constant(samples), tf.constant(labels)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Dense(told["hidden"], activation="relu"),
        tf.keras.layers.Dense(told["hidden"], activation="relu"),
        tf.keras.layers.Dense(told["classes"]),
    ]
)
model.build((None, told["features"]))
for layer, (weights, biases) in zip(model.layers, layers):  # noqa: B905
    layer.set_weights([weights, biases])
optimizer = tf.keras.optimizers.SGD(told["learning_rate"], momentum=told["momentum"])
cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def update(inputs, targets):
    with tf.GradientTape() as tape:
        value = cross_entropy(targets, model(inputs, training=True))
    gradients = tape.gradient(value, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905


def step(number):
    take = rows(told, number)
    update(x[take], y[take])


def settle():
    model.layers[-1].bias.numpy()


def loss():
    return float(cross_entropy(y, model(x, training=False)))


measured(told, tf.__version__, step, settle, loss)
