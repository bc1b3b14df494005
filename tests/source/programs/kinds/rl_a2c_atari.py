"""Advantage actor-critic with several environments and a recurrent policy."""
import argparse
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

from envs import make_vec_envs


def init(module, weight_init, bias_init, gain=1):
    weight_init(module.weight.data, gain=gain)
    bias_init(module.bias.data)
    return module


class Flatten(nn.Module):
    def forward(self, x):
        return x.view(x.size(0), -1)


class Policy(nn.Module):
    def __init__(self, num_inputs, num_actions, hidden=512):
        super().__init__()
        gain = nn.init.calculate_gain("relu")
        zeros = lambda x: nn.init.constant_(x, 0)  # noqa: E731
        self.main = nn.Sequential(
            init(nn.Conv2d(num_inputs, 32, 8, stride=4), nn.init.orthogonal_, zeros, gain), nn.ReLU(),
            init(nn.Conv2d(32, 64, 4, stride=2), nn.init.orthogonal_, zeros, gain), nn.ReLU(),
            Flatten(), init(nn.Linear(64 * 9 * 9, hidden), nn.init.orthogonal_, zeros, gain), nn.ReLU(),
        )
        self.gru = nn.GRU(hidden, hidden)
        self.critic, self.actor = nn.Linear(hidden, 1), nn.Linear(hidden, num_actions)

    def forward_gru(self, x, hxs, masks):
        if x.size(0) == hxs.size(0):
            x, hxs = self.gru(x.unsqueeze(0), (hxs * masks).unsqueeze(0))
            return x.squeeze(0), hxs.squeeze(0)
        n = hxs.size(0)
        t = x.size(0) // n
        x = x.view(t, n, x.size(1))
        masks = masks.view(t, n)
        has_zeros = (masks[1:] == 0.0).any(dim=-1).nonzero().squeeze().cpu()  # finds: C002, C004
        if has_zeros.dim() == 0:
            has_zeros = [has_zeros.item() + 1]  # finds: C001
        else:
            has_zeros = (has_zeros + 1).numpy().tolist()  # finds: C001
        bounds = [0] + has_zeros + [t]
        hxs = hxs.unsqueeze(0)
        outputs = []
        for start, end in zip(bounds[:-1], bounds[1:]):
            scores, hxs = self.gru(x[start:end], hxs * masks[start].view(1, -1, 1))
            outputs.append(scores)
        return torch.cat(outputs, dim=0).view(t * n, -1), hxs.squeeze(0)

    def forward(self, inputs, hxs, masks):
        x = self.main(inputs / 255.0)
        x, hxs = self.forward_gru(x, hxs, masks)
        return self.critic(x), self.actor(x), hxs

    def act(self, inputs, hxs, masks):
        value, logits, hxs = self(inputs, hxs, masks)
        dist = torch.distributions.Categorical(logits=logits)
        action = dist.sample()
        return value, action, dist.log_prob(action), hxs

    def evaluate_actions(self, inputs, hxs, masks, action):
        value, logits, hxs = self(inputs, hxs, masks)
        dist = torch.distributions.Categorical(logits=logits)
        return value, dist.log_prob(action), dist.entropy().mean()


class RolloutStorage:
    def __init__(self, steps, envs, shape, hidden):
        self.obs = torch.zeros(steps + 1, envs, *shape)
        self.hxs = torch.zeros(steps + 1, envs, hidden)
        self.rewards, self.values = torch.zeros(steps, envs, 1), torch.zeros(steps + 1, envs, 1)
        self.actions, self.masks = torch.zeros(steps, envs).long(), torch.ones(steps + 1, envs, 1)
        self.returns = torch.zeros(steps + 1, envs, 1)
        self.step, self.num_steps = 0, steps

    def to(self, device):
        for name in ("obs", "hxs", "rewards", "values", "actions", "masks", "returns"):
            setattr(self, name, getattr(self, name).to(device))

    def insert(self, obs, hxs, actions, values, rewards, masks):
        self.obs[self.step + 1].copy_(obs)
        self.hxs[self.step + 1].copy_(hxs)
        self.actions[self.step].copy_(actions)
        self.values[self.step].copy_(values)
        self.rewards[self.step].copy_(rewards)
        self.masks[self.step + 1].copy_(masks)
        self.step = (self.step + 1) % self.num_steps

    def compute_returns(self, next_value, gamma):
        self.returns[-1] = next_value
        for step in reversed(range(self.num_steps)):
            self.returns[step] = self.returns[step + 1] * gamma * self.masks[step + 1] + self.rewards[step]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--env-name", default="PongNoFrameskip-v4")
    parser.add_argument("--num-processes", type=int, default=16)
    parser.add_argument("--num-steps", type=int, default=5)
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device("cuda:0" if torch.cuda.is_available() and not args.no_cuda else "cpu")
    envs = make_vec_envs(args.env_name, args.num_processes, device)
    policy = Policy(envs.observation_space.shape[0], envs.action_space.n).to(device)
    optimizer = optim.RMSprop(policy.parameters(), 7e-4, eps=1e-5, alpha=0.99)
    rollouts = RolloutStorage(args.num_steps, args.num_processes, envs.observation_space.shape, 512)
    rollouts.obs[0].copy_(envs.reset())
    rollouts.to(device)
    episode_rewards = deque(maxlen=10)
    num_updates = 10000000 // args.num_steps // args.num_processes
    for j in range(num_updates):
        for step in range(args.num_steps):
            with torch.no_grad():
                value, action, _, hxs = policy.act(rollouts.obs[step], rollouts.hxs[step], rollouts.masks[step])  # finds: D014
            obs, reward, done, infos = envs.step(action)  # finds: B020
            for info in infos:
                if "episode" in info:
                    episode_rewards.append(info["episode"]["r"])
            masks = torch.FloatTensor([[0.0] if d else [1.0] for d in done])
            rollouts.insert(obs, hxs, action, value, reward, masks)
        with torch.no_grad():
            next_value = policy(rollouts.obs[-1], rollouts.hxs[-1], rollouts.masks[-1])[0]  # finds: D014
        rollouts.compute_returns(next_value, 0.99)
        values, log_probs, entropy = policy.evaluate_actions(
            rollouts.obs[:-1].view(-1, *rollouts.obs.shape[2:]), rollouts.hxs[0],
            rollouts.masks[:-1].view(-1, 1), rollouts.actions.view(-1),
        )
        advantages = rollouts.returns[:-1].view(-1, 1) - values
        value_loss = advantages.pow(2).mean()
        action_loss = -(advantages.detach().view(-1) * log_probs).mean()
        loss = value_loss * 0.5 + action_loss - entropy * 0.01  # finds: L001
        optimizer.zero_grad()  # finds: O008
        loss.backward()  # finds: L010
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)  # finds: O009
        optimizer.step()  # finds: O007
        if j % 100 == 0 and len(episode_rewards) > 1:
            print(f"{j} mean reward {np.mean(episode_rewards):.1f} entropy {entropy.item():.3f} loss {loss.item():.3f}")
        if j % 1000 == 0:
            torch.save([policy, optimizer.state_dict()], "a2c.pt")  # finds: K005


if __name__ == "__main__":
    main()
