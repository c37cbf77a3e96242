"""REINFORCE: a policy learns to balance a pole on a cart, which is simulated here."""

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()


class Pole:
    """A pole on a cart that is pushed to one side or the other; falling ends an episode."""

    def __init__(self, rng):
        self.state = rng.uniform(-0.05, 0.05, 4)

    def push(self, right):
        x, speed, angle, turning = self.state
        force, sine, cosine = 10.0 if right else -10.0, np.sin(angle), np.cos(angle)
        along = (force + 0.05 * turning**2 * sine) / 1.1
        faster = (9.8 * sine - cosine * along) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        along -= 0.05 * faster * cosine / 1.1
        self.state = np.array([x + 0.02 * speed, speed + 0.02 * along, angle + 0.02 * turning, turning + 0.02 * faster])
        return abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21


def discounted(rewards, rate=0.97):
    found, running = np.zeros(len(rewards), np.float32), 0.0
    for index in reversed(range(len(rewards))):
        running = rewards[index] + rate * running
        found[index] = running
    return found


def train(steps=100):
    tf.reset_default_graph()
    rng = np.random.RandomState(0)
    states = tf.placeholder(tf.float32, [None, 4], name="states")
    actions = tf.placeholder(tf.int32, [None], name="actions")
    returns = tf.placeholder(tf.float32, [None], name="returns")
    w1 = tf.get_variable("w1", [4, 16], initializer=tf.glorot_uniform_initializer(seed=1))
    w2 = tf.get_variable("w2", [16, 2], initializer=tf.glorot_uniform_initializer(seed=2))
    probabilities = tf.nn.softmax(tf.matmul(tf.nn.tanh(tf.matmul(states, w1)), w2))
    taken = tf.reduce_sum(probabilities * tf.one_hot(actions, 2), axis=1)
    loss = -tf.reduce_mean(tf.log(taken + 1e-8) * returns)
    step = tf.train.AdamOptimizer(0.02).minimize(loss)

    lengths = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            pole, seen, done = Pole(rng), [], []
            for _ in range(200):
                chances = sess.run(probabilities, {states: pole.state[None]})[0]
                seen.append(pole.state)
                done.append(int(rng.rand() < chances[1]))
                if pole.push(done[-1]):
                    break
            goods = discounted(np.ones(len(done)))
            goods = (goods - goods.mean()) / (goods.std() + 1e-8)
            sess.run(step, feed_dict={states: np.array(seen), actions: done, returns: goods})
            lengths.append(float(len(done)))
        print(f"balanced for {np.mean(lengths[:20]):.1f} steps at first, {np.mean(lengths[-20:]):.1f} in the end")
    return lengths


if __name__ == "__main__":
    train(300)
