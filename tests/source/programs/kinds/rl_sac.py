"""Soft actor-critic in one file: replay on the host, three optimizers, a learnt temperature."""
import argparse
import copy
import random
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.tensorboard import SummaryWriter

LOG_STD_MIN, LOG_STD_MAX = -5, 2


class ReplayBuffer:
    def __init__(self, obs_dim, act_dim, size, device):
        self.obs, self.next_obs = np.zeros((size, obs_dim), np.float32), np.zeros((size, obs_dim), np.float32)
        self.act, self.rew, self.done = np.zeros((size, act_dim), np.float32), np.zeros(size, np.float32), np.zeros(size, np.float32)
        self.ptr, self.size, self.max_size, self.device = 0, 0, size, device

    def add(self, obs, act, rew, next_obs, done):
        self.obs[self.ptr], self.act[self.ptr], self.rew[self.ptr] = obs, act, rew
        self.next_obs[self.ptr], self.done[self.ptr] = next_obs, done
        self.ptr = (self.ptr + 1) % self.max_size
        self.size = min(self.size + 1, self.max_size)

    def sample(self, batch_size):
        idx = np.random.randint(0, self.size, size=batch_size)
        arrays = self.obs[idx], self.act[idx], self.rew[idx], self.next_obs[idx], self.done[idx]
        return tuple(torch.as_tensor(a, device=self.device) for a in arrays)


class SoftQ(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs_dim + act_dim, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, x, a):
        return self.net(torch.cat([x, a], 1))


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, high):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.mean, self.logstd = nn.Linear(256, act_dim), nn.Linear(256, act_dim)
        self.register_buffer("scale", torch.tensor(high, dtype=torch.float32))

    def forward(self, x):
        h = self.body(x)
        log_std = torch.tanh(self.logstd(h))
        return self.mean(h), LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)

    def get_action(self, x):
        mean, log_std = self(x)
        normal = torch.distributions.Normal(mean, log_std.exp())
        x_t = normal.rsample()
        y_t = torch.tanh(x_t)
        log_prob = normal.log_prob(x_t) - torch.log(self.scale * (1 - y_t.pow(2)) + 1e-6)
        return y_t * self.scale, log_prob.sum(1, keepdim=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--env-id", default="Hopper-v4")
    parser.add_argument("--total-timesteps", type=int, default=1000000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--tau", type=float, default=0.005)
    parser.add_argument("--learning-starts", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    writer = SummaryWriter(f"runs/sac-{int(time.time())}")
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    env = gym.make(args.env_id)
    obs_dim, act_dim = env.observation_space.shape[0], env.action_space.shape[0]
    actor = Actor(obs_dim, act_dim, env.action_space.high).to(device)
    qf = SoftQ(obs_dim, act_dim).to(device)
    qf_target = copy.deepcopy(qf)
    q_optimizer = torch.optim.Adam(qf.parameters(), lr=1e-3)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)  # finds: O014
    log_alpha = torch.zeros(1, requires_grad=True, device=device)
    a_optimizer = torch.optim.Adam([log_alpha], lr=1e-3)  # finds: O014, O003
    target_entropy = -act_dim
    buffer = ReplayBuffer(obs_dim, act_dim, 1000000, device)
    obs, _ = env.reset(seed=args.seed)
    for step in range(args.total_timesteps):
        if step < args.learning_starts:
            action = env.action_space.sample()
        else:
            with torch.no_grad():
                action, _ = actor.get_action(torch.as_tensor(obs, dtype=torch.float32, device=device)[None])  # finds: D014
            action = action[0].cpu().numpy()  # finds: D020
        next_obs, reward, terminated, truncated, info = env.step(action)  # finds: B020
        buffer.add(obs, action, reward, next_obs, terminated)
        obs = next_obs
        if terminated or truncated:
            obs, _ = env.reset()
        if step <= args.learning_starts:
            continue
        b_obs, b_act, b_rew, b_next, b_done = buffer.sample(args.batch_size)
        with torch.no_grad():
            next_action, next_log_prob = actor.get_action(b_next)  # finds: D014
            target = qf_target(b_next, next_action) - log_alpha.exp() * next_log_prob
            target = b_rew.view(-1, 1) + (1 - b_done.view(-1, 1)) * args.gamma * target
        q_loss = F.mse_loss(qf(b_obs, b_act), target)  # finds: L001
        q_optimizer.zero_grad()  # finds: O008
        q_loss.backward()  # finds: L010
        q_optimizer.step()  # finds: O007
        pi, log_pi = actor.get_action(b_obs)
        actor_loss = (log_alpha.exp().detach() * log_pi - qf(b_obs, pi)).mean()  # finds: L001
        actor_optimizer.zero_grad()  # finds: O008
        actor_loss.backward()  # finds: L010
        actor_optimizer.step()  # finds: O007
        alpha_loss = (-log_alpha.exp() * (log_pi.detach() + target_entropy)).mean()  # finds: L001
        a_optimizer.zero_grad()  # finds: O008
        alpha_loss.backward()  # finds: L010
        a_optimizer.step()  # finds: O007
        for p, t in zip(qf.parameters(), qf_target.parameters()):
            t.data.copy_(args.tau * p.data + (1 - args.tau) * t.data)  # finds: D020
        if step % 100 == 0:
            writer.add_scalar("losses/q", q_loss.item(), step)
            writer.add_scalar("losses/actor", actor_loss.item(), step)
    env.close()
    writer.close()


if __name__ == "__main__":
    main()
