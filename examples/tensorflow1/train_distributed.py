"""Linear regression of y = 2x + 10 on several workers and a parameter server, as one wrote it for
TensorFlow 1: each worker builds the graph anew, the variables live on the server."""

import json
import os

import numpy as np
import tensorflow as tf

STEPS = 400

config = json.loads(os.environ["TF_CONFIG"])
role, index = config["task"]["type"], config["task"]["index"]
cluster = tf.train.ClusterSpec(config["cluster"])
server = tf.train.Server(cluster, job_name=role, task_index=index)
if role == "ps":
    print(f"ps {index} serves", flush=True)
    server.join()

print(f"worker {index} of {len(config['cluster']['worker'])}", flush=True)
setter = tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)
with tf.device(setter):
    x = tf.placeholder(tf.float32, [None, 1])
    y = tf.placeholder(tf.float32, [None, 1])
    slope = tf.Variable(tf.zeros([1]))
    offset = tf.Variable(tf.zeros([1]))
    loss = tf.reduce_mean(tf.square(slope * x + offset - y))
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)

talk_to = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"])
random = np.random.RandomState(index)
supervisor = tf.train.Supervisor(
    is_chief=index == 0, graph=tf.get_default_graph(), global_step=step, recovery_wait_secs=1
)
with supervisor.managed_session(server.target, config=talk_to) as session:
    number = 0
    while number < STEPS:
        xs = random.uniform(-1, 1, size=(10, 1))
        feed = {x: xs, y: 2 * xs + 10}
        _, number, value, a, b = session.run([train, step, loss, slope, offset], feed)
        if number % 100 < 2:
            print(f"step {number} loss={value:.6f}", flush=True)
print(f"y = {a[0]:.2f} x + {b[0]:.2f}", flush=True)
