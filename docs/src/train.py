"""A GPT of 1.1 B parameters in plain PyTorch: a job to try `stepscope record` on.

    stepscope record -- python train.py [--fused] [--compile] [--checkpoint] [--steps N]
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

VOCABULARY, WIDTH, LAYERS, HEADS, SEQUENCE, BATCH = 32_000, 2048, 16, 16, 2048, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(WIDTH, 7168, bias=False) for _ in range(2))
        self.down = nn.Linear(7168, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).reshape(x.shape))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class GPT(nn.Module):
    def __init__(self, recompute):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.recompute = recompute

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(self.norm(x))


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--fused", action="store_true", help="use the fused AdamW")
parser.add_argument("--compile", action="store_true", help="compile the model")
parser.add_argument("--checkpoint", action="store_true", help="recompute activations in the backward pass")
arguments = parser.parse_args()

torch.manual_seed(0)
model = GPT(arguments.checkpoint).cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=arguments.fused)
forward = torch.compile(model) if arguments.compile else model

for step in range(arguments.steps):
    tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE), device="cuda")
    logits = forward(tokens).view(-1, VOCABULARY).float()
    loss = F.cross_entropy(logits, tokens.view(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(f"step {step}  loss {loss.item():.4f}")
