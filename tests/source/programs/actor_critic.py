import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
GAMMA = 0.99


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 128)
        self.action_head = nn.Linear(128, 2)
        self.value_head = nn.Linear(128, 1)

    def forward(self, x):
        x = F.relu(self.affine1(x))
        action_prob = F.softmax(self.action_head(x), dim=-1)
        return action_prob, self.value_head(x)


model = Policy()
optimizer = optim.Adam(model.parameters(), lr=3e-2)


def run_episode(state):
    saved, rewards = [], []
    for t in range(1, 10000):
        probs, value = model(torch.from_numpy(state).float())
        m = Categorical(probs)
        action = m.sample()
        saved.append((m.log_prob(action), value))
        state, reward, done, _, _ = env.step(action.item())  # finds: B020, D020
        rewards.append(reward)
        if done:
            break
    return saved, rewards


for i_episode in range(1000):
    state, _ = env.reset()
    saved, rewards = run_episode(state)
    R = 0
    returns = []
    for r in rewards[::-1]:
        R = r + GAMMA * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    policy_losses, value_losses = [], []
    for (log_prob, value), R in zip(saved, returns):
        advantage = R - value.item()  # finds: D020
        policy_losses.append(-log_prob * advantage)
        value_losses.append(F.smooth_l1_loss(value, torch.tensor([R])))  # finds: L001
    optimizer.zero_grad()  # finds: O008
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
    loss.backward()  # finds: L010
    optimizer.step()  # finds: O007
    if i_episode % 10 == 0:
        print("Episode {}\tReward: {:.2f}".format(i_episode, np.sum(rewards)))
