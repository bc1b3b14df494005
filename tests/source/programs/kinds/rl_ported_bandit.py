"""An offline policy from logged decisions, ported: the learner is on the device, the environment on the host."""
import argparse

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import porting
from porting import PortOptions, to_ipu


class QNetwork(nn.Module):
    def __init__(self, obs_dim, num_actions, hidden=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value, self.advantage = nn.Linear(hidden, 1), nn.Linear(hidden, num_actions)
        self.epsilon = 1.0

    def forward(self, obs):
        h = self.body(obs)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class TDLoss(nn.Module):
    def __init__(self, clip=10.0):
        super().__init__()
        self.clip = clip

    def forward(self, q, target):
        action, value = target[:, 0].long(), target[:, 1]
        chosen = q.gather(1, action[:, None]).squeeze(1)
        error = (chosen - value).clamp(-self.clip, self.clip)
        bad = error[error.abs() > 5.0]  # finds: C002
        if bad.numel() > len(error) // 2:
            error = error * 0.5
        return error.pow(2).mean()


def collect(env, infer, epsilon, num_steps, rng):
    rows, obs = [], env.reset()[0]
    for _ in range(num_steps):
        if rng.random() < epsilon:
            action = env.action_space.sample()
        else:
            action = int(infer(torch.as_tensor(obs, dtype=torch.float32)[None]).argmax())
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, reward, next_obs, terminated))
        obs = env.reset()[0] if terminated or truncated else next_obs
    return rows


def to_dataset(rows, infer, gamma=0.99):
    obs, action, reward, next_obs, done = (np.array(column, dtype=np.float32) for column in zip(*rows))
    best = torch.cat([infer(torch.from_numpy(next_obs[i : i + 1])) for i in range(len(next_obs))]).max(1).values
    value = torch.from_numpy(reward) + gamma * (1 - torch.from_numpy(done)) * best
    return TensorDataset(torch.from_numpy(obs), torch.stack([torch.from_numpy(action), value], 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    env = gym.make("CartPole-v1")
    rng = np.random.default_rng(0)
    model = QNetwork(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, amsgrad=True)  # finds: O002
    ported = to_ipu(model, TDLoss(), optimizer=optimizer, options=PortOptions(micro_batch=args.batch_size))
    infer = ported.inference()
    epsilon = 1.0
    for round_number in range(args.rounds):
        rows = collect(env, infer, epsilon, 2048, rng)
        dataset = to_dataset(rows, infer)
        for obs, target in ported.dataloader(DataLoader(dataset, args.batch_size, shuffle=True, drop_last=True)):
            q, loss = ported(obs, target)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # finds: O009
        epsilon = max(0.05, epsilon * 0.95)
        print(f"{round_number} epsilon {epsilon:.2f} loss {loss.item():.4f}")
    ported.cuda()  # finds: D003
    torch.save(ported.state_dict(), "q.pt")
    ported.destroy()


if __name__ == "__main__":
    main()
