"""Prompt and output lengths of the measured runs, of which only the means are recorded.

The runs drew from ShareGPT conversations with 4-1,024 prompt tokens and at most 2,048 in all (arXiv 2508.08343). Fitted
to what the runs do show: mean time to first token exceeds the median by what 75 tokens of prefill take (a median near
145 for a mean of 222), and a running request holds 362 KV tokens on average. A log-normal prompt, a gamma output with
coefficient of variation 0.8 and a rank correlation of -0.2 give both.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

PROMPT_SIGMA = 1.0
OUTPUT_SHAPE = 1.5625  # a gamma's shape is 1 / (coefficient of variation 0.8)^2
CORRELATION = -0.2
LEAST, MOST_PROMPT, MOST_TOTAL = 4, 1024, 2048


def sample_lengths(
    rng: np.random.Generator, count: int, mean_prompt: float, mean_output: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`count` prompt and output lengths in tokens with the given means (within a sampling error)."""
    normal = rng.standard_normal(count)
    other = CORRELATION * normal + math.sqrt(1 - CORRELATION**2) * rng.standard_normal(count)
    prompt = _scaled(np.exp(PROMPT_SIGMA * normal), mean_prompt, MOST_PROMPT)
    gamma = np.sort(rng.gamma(OUTPUT_SHAPE, size=count))
    output = np.empty(count)
    output[np.argsort(other)] = gamma
    room = MOST_TOTAL - prompt
    return prompt.astype(np.int64), np.minimum(_scaled(output, mean_output, MOST_TOTAL), room).astype(np.int64)


def _scaled(shape: NDArray[np.float64], mean: float, most: int) -> NDArray[np.float64]:
    """`shape` times the factor with which, clipped to [LEAST, most] and rounded, it has the mean."""
    factor = mean / float(shape.mean()) if len(shape) else 1.0
    for _ in range(8):
        clipped = np.clip(np.round(shape * factor), LEAST, most)
        factor *= mean / float(clipped.mean()) if len(shape) else 1.0
    return np.clip(np.round(shape * factor), LEAST, most)
