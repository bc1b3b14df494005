"""A physics-informed network for Burgers' equation."""
import math

import hydra
import torch

from networks import build


def residual(model, xt, nu):
    xt = xt.clone().requires_grad_(True)
    u = model(xt)
    (grad,) = torch.autograd.grad(u.sum(), xt, create_graph=True)  # finds: L011
    u_x, u_t = grad[:, :1], grad[:, 1:]
    (second,) = torch.autograd.grad(u_x.sum(), xt, create_graph=True)  # finds: L011
    return u_t + u * u_x - nu * second[:, :1]


def sample_boundary(n, device):
    x = torch.rand(n, 1, device=device) * 2 - 1
    start = torch.cat([x, torch.zeros_like(x)], 1)
    value = -torch.sin(math.pi * x)
    return start, value


@hydra.main(version_base=None, config_path="config", config_name="base")
def main(cfg):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_default_dtype(getattr(torch, cfg.train.precision))  # finds: C044
    model = build(cfg.model).to(device)
    adam = torch.optim.Adam(model.parameters(), lr=cfg.train.lr)
    weight = cfg.train.boundary_weight
    for step in range(cfg.train.steps):
        adam.zero_grad()  # finds: O008
        inside = torch.rand(2048, 2, device=device)
        start, value = sample_boundary(256, device)
        loss = residual(model, inside, 0.01 / math.pi).pow(2).mean()
        loss = loss + weight * (model(start) - value).pow(2).mean()  # finds: L001
        loss.backward()  # finds: L010
        adam.step()  # finds: O007
        if step % 500 == 0:
            print(step, loss.item())
    lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=5000, line_search_fn="strong_wolfe")  # finds: O001

    def closure():
        lbfgs.zero_grad()  # finds: O008
        start, value = sample_boundary(1024, device)
        loss = (model(start) - value).pow(2).mean()  # finds: L001
        loss.backward()  # finds: L010
        return loss

    lbfgs.step(closure)  # finds: O004
    torch.save(model.state_dict(), f"{cfg.name}.pt")


if __name__ == "__main__":
    main()
