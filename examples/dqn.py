"""Deep Q-learning: an agent finds its way through a grid, with a replay memory and a target network."""

import random
from collections import deque

import numpy as np

import aexec.compat.v1 as tf

tf.disable_v2_behavior()

SIDE, ACTIONS, GAMMA, BATCH, UPDATE_EVERY = 5, 4, 0.95, 32, 10


class Grid:
    """A walk from one corner to the other, around pits; steps cost a little."""

    pits = ((1, 1), (2, 3), (3, 1))

    def reset(self):
        self.place = (0, 0)
        return self.observation()

    def observation(self):
        state = np.zeros([2 * SIDE], np.float32)
        state[self.place[0]] = state[SIDE + self.place[1]] = 1.0
        return state

    def step(self, action):
        down, right = ((1, 0), (0, 1), (-1, 0), (0, -1))[action]
        self.place = tuple(min(max(at + by, 0), SIDE - 1) for at, by in zip(self.place, (down, right)))
        if self.place == (SIDE - 1, SIDE - 1):
            return self.observation(), 1.0, True
        return self.observation(), (-1.0 if self.place in self.pits else -0.04), self.place in self.pits


class QNetwork:
    def __init__(self, scope):
        with tf.variable_scope(scope):
            self.inputs = tf.placeholder(tf.float32, [None, 2 * SIDE], name="inputs")
            self.actions = tf.placeholder(tf.int32, [None], name="actions")
            self.targets = tf.placeholder(tf.float32, [None], name="targets")
            fc1 = tf.layers.dense(
                self.inputs, 32, activation=tf.nn.elu, kernel_initializer=tf.variance_scaling_initializer()
            )
            fc2 = tf.layers.dense(fc1, 32, activation=tf.nn.elu, kernel_initializer=tf.variance_scaling_initializer())
            with tf.variable_scope("dueling"):
                value = tf.layers.dense(fc2, 1, name="value")
                advantage = tf.layers.dense(fc2, ACTIONS, name="advantage")
                centred = tf.subtract(advantage, tf.reduce_mean(advantage, axis=1, keepdims=True))
                self.output = value + centred
            self.q = tf.reduce_sum(tf.multiply(self.output, tf.one_hot(self.actions, ACTIONS)), axis=1)
            self.loss = tf.losses.huber_loss(self.targets, self.q)
            self.optimizer = tf.train.RMSPropOptimizer(0.005, decay=0.95, epsilon=0.01).minimize(self.loss)


def update_target_graph():
    from_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, "online")
    to_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, "target")
    return [to_var.assign(from_var) for from_var, to_var in zip(from_vars, to_vars)]


class Agent:
    def __init__(self, sess, online, target):
        self.sess, self.online, self.target = sess, online, target
        self.memory = deque(maxlen=1000)
        self.epsilon = 1.0
        self.chance = random.Random(0)

    def act(self, state):
        self.epsilon = max(0.05, self.epsilon * 0.995)
        if self.chance.random() < self.epsilon:
            return self.chance.randrange(ACTIONS)
        return int(np.argmax(self.sess.run(self.online.output, {self.online.inputs: [state]})))

    def learn(self):
        states, actions, rewards, after, done = map(np.array, zip(*self.chance.sample(list(self.memory), BATCH)))
        best = self.sess.run(self.online.output, {self.online.inputs: after}).argmax(axis=1)
        values = self.sess.run(self.target.output, {self.target.inputs: after})[np.arange(BATCH), best]
        feed = {
            self.online.inputs: states,
            self.online.actions: actions,
            self.online.targets: rewards + GAMMA * values * (1 - done),
        }
        loss, _ = self.sess.run([self.online.loss, self.online.optimizer], feed_dict=feed)
        return float(loss)


def train(steps=100):
    tf.reset_default_graph()
    tf.set_random_seed(3)
    online, target = QNetwork("online"), QNetwork("target")
    update = update_target_graph()
    grid, losses = Grid(), []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(update)
        agent = Agent(sess, online, target)
        state = grid.reset()
        while len(losses) < steps:
            action = agent.act(state)
            after, reward, done = grid.step(action)
            agent.memory.append((state, action, reward, after, float(done)))
            state = grid.reset() if done else after
            if len(agent.memory) > BATCH:
                losses.append(agent.learn())
                if len(losses) % UPDATE_EVERY == 0:
                    sess.run(update)
        state, path = grid.reset(), []
        for _ in range(12):
            state, _, done = grid.step(int(np.argmax(sess.run(online.output, {online.inputs: [state]}))))
            path.append(grid.place)
            if done:
                break
        print("path:", path)
    return losses


if __name__ == "__main__":
    train(1500)
