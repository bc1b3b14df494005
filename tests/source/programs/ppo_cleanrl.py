"""Proximal policy optimisation in one file."""
import argparse
import random
import time

import gym
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions.categorical import Categorical
from torch.utils.tensorboard import SummaryWriter


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, envs):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(4, 64)), nn.Tanh(), layer_init(nn.Linear(64, 1), std=1.0))
        self.actor = nn.Sequential(layer_init(nn.Linear(4, 64)), nn.Tanh(), layer_init(nn.Linear(64, 2), std=0.01))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        logits = self.actor(x)
        probs = Categorical(logits=logits)
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num-steps", type=int, default=128)
    parser.add_argument("--num-envs", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=2.5e-4)
    parser.add_argument("--anneal-lr", action="store_true", default=True)
    parser.add_argument("--cuda", action="store_true", default=True)
    parser.add_argument("--clip-coef", type=float, default=0.2)
    parser.add_argument("--max-grad-norm", type=float, default=0.5)
    args = parser.parse_args()
    writer = SummaryWriter("runs/ppo")
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = True
    device = torch.device("cuda" if torch.cuda.is_available() and args.cuda else "cpu")
    envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(args.num_envs)])
    agent = Agent(envs).to(device)
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    obs = torch.zeros((args.num_steps, args.num_envs, 4)).to(device)
    actions = torch.zeros((args.num_steps, args.num_envs)).to(device)
    logprobs = torch.zeros((args.num_steps, args.num_envs)).to(device)
    rewards = torch.zeros((args.num_steps, args.num_envs)).to(device)
    values = torch.zeros((args.num_steps, args.num_envs)).to(device)
    global_step = 0
    start_time = time.time()
    next_obs = torch.Tensor(envs.reset()).to(device)
    for update in range(1, 1001):
        if args.anneal_lr:
            frac = 1.0 - (update - 1.0) / 1000
            optimizer.param_groups[0]["lr"] = frac * args.learning_rate  # finds: O013
        for step in range(0, args.num_steps):
            global_step += args.num_envs
            obs[step] = next_obs
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)  # finds: D014
                values[step] = value.flatten()
            actions[step] = action
            logprobs[step] = logprob
            next_obs, reward, done, info = envs.step(action.cpu().numpy())  # finds: D020, B020
            rewards[step] = torch.tensor(reward).to(device).view(-1)
            next_obs = torch.Tensor(next_obs).to(device)
        with torch.no_grad():
            next_value = agent.get_value(next_obs).reshape(1, -1)  # finds: D014
            advantages = rewards + next_value - values
            returns = advantages + values
        b_obs = obs.reshape((-1, 4))
        b_inds = np.arange(args.num_steps * args.num_envs)
        clipfracs = []
        for epoch in range(4):
            np.random.shuffle(b_inds)
            for start in range(0, len(b_inds), 128):
                mb_inds = b_inds[start : start + 128]  # finds: B010
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], actions.reshape(-1)[mb_inds])
                logratio = newlogprob - logprobs.reshape(-1)[mb_inds]
                ratio = logratio.exp()
                with torch.no_grad():
                    clipfracs += [((ratio - 1.0).abs() > args.clip_coef).float().mean().item()]  # finds: D020
                mb_advantages = advantages.reshape(-1)[mb_inds]
                pg_loss1 = -mb_advantages * ratio
                pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
                pg_loss = torch.max(pg_loss1, pg_loss2).mean()
                v_loss = 0.5 * ((newvalue.view(-1) - returns.reshape(-1)[mb_inds]) ** 2).mean()
                loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5  # finds: L001
                optimizer.zero_grad()  # finds: O008
                loss.backward()  # finds: L010
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)  # finds: O009
                optimizer.step()  # finds: O007
        writer.add_scalar("losses/value_loss", v_loss.item(), global_step)  # finds: D020
        writer.add_scalar("charts/SPS", int(global_step / (time.time() - start_time)), global_step)
    writer.close()
