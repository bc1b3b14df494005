"""Generate text on the device, in a loop there, with a call for each token, and with a cache kept in buffers."""

import math

import poptorch
import torch
from torch import nn

VOCABULARY, LENGTH, WIDTH, PROMPT = 20, 12, 16, 3


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.query_key_value, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("past", torch.tril(torch.ones(LENGTH, LENGTH, dtype=torch.bool)))

    def forward(self, tokens):
        hidden = self.tokens(tokens) + self.places(torch.arange(LENGTH, device=tokens.device))
        query, key, value = self.query_key_value(hidden).chunk(3, dim=-1)
        scores = query @ key.transpose(-1, -2) / math.sqrt(WIDTH)
        return self.head(torch.softmax(scores.masked_fill(~self.past, float("-inf")), dim=-1) @ value + hidden)


class LoopOnTheDevice(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, place):
        def add_token(tokens, place):
            logits = poptorch.dynamic_slice(self.model(tokens), 1, place - 1, 1, 1)
            return poptorch.dynamic_update(tokens, logits.argmax(dim=-1).to(tokens.dtype), 1, place, 1), place + 1

        return poptorch.for_loop(LENGTH - PROMPT, add_token, [tokens, place])[0]


class CachedStep(nn.Module):
    """Attends to what earlier calls left in the cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.register_buffer("keys", torch.zeros(1, LENGTH, WIDTH), persistent=False)
        self.register_buffer("values", torch.zeros(1, LENGTH, WIDTH), persistent=False)
        # integers are constants on the device
        self.register_buffer("place", torch.zeros(1), persistent=False)

    def forward(self, token):
        place = self.place.int()
        hidden = self.model.tokens(token) + self.model.places(place)
        query, key, value = self.model.query_key_value(hidden)[:, None].chunk(3, dim=-1)
        places = torch.arange(LENGTH, dtype=torch.int32, device=token.device)
        here = (places == place)[None, :, None]
        self.keys.copy_(torch.where(here, key, self.keys))
        self.values.copy_(torch.where(here, value, self.values))
        scores = query @ self.keys.transpose(-1, -2) / math.sqrt(WIDTH)
        scores = scores.masked_fill((places > place)[None, None], float("-inf"))
        self.place += 1
        return self.model.head((torch.softmax(scores, dim=-1) @ self.values)[:, 0] + hidden).argmax(dim=-1)


def generate(next_tokens, prompt):
    tokens = prompt.clone()
    for place in range(PROMPT, LENGTH):
        tokens[:, place] = next_tokens(tokens)[:, place - 1].argmax(dim=-1)
    return tokens


def generate_with_cache(step, prompt):
    tokens = prompt.clone()
    for place in range(LENGTH - 1):
        following = step(tokens[:, place])
        if place + 1 >= PROMPT:
            tokens[:, place + 1] = following
    return tokens


if __name__ == "__main__":
    torch.manual_seed(0)
    model = LanguageModel().eval()
    prompt = torch.zeros(1, LENGTH, dtype=torch.int32)
    prompt[:, :PROMPT] = torch.tensor([[5, 3, 8]])
    expected = generate(model, prompt)

    looped = poptorch.inferenceModel(LoopOnTheDevice(model))(prompt, torch.tensor([PROMPT], dtype=torch.int32))
    print("loop on the device", torch.equal(looped, expected))
    print("call for each token", torch.equal(generate(poptorch.inferenceModel(model), prompt), expected))
    cached = generate_with_cache(poptorch.inferenceModel(CachedStep(model)), prompt)
    print("cache in buffers", torch.equal(cached, expected))
