"""Linear regression of y = 2x + 10 as one wrote it for TensorFlow 1."""

import numpy as np
import tensorflow as tf

EPOCHS = 10
BATCH = 10

xs = np.random.RandomState(0).uniform(-1, 1, size=(400, 1)).astype(np.float32)
ys = 2 * xs + 10

x = tf.placeholder(tf.float32, [None, 1], name="x")
y = tf.placeholder(tf.float32, [None, 1], name="y")
slope = tf.Variable(tf.zeros([1]), name="slope")
offset = tf.Variable(tf.zeros([1]), name="offset")
loss = tf.reduce_mean(tf.square(slope * x + offset - y))
train = tf.train.GradientDescentOptimizer(0.05).minimize(loss)

with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for epoch in range(EPOCHS):
        total = 0.0
        for start in range(0, len(xs), BATCH):
            batch = {x: xs[start : start + BATCH], y: ys[start : start + BATCH]}
            _, value = session.run([train, loss], feed_dict=batch)
            total += value * BATCH
        print(f"epoch {epoch + 1} loss={total / len(xs):.6f}")
    a, b = session.run([slope, offset])
    print(f"y = {a[0]:.2f} x + {b[0]:.2f}")
