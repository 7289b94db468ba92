"""Quantiles of cumulative histograms, for one or for 100,000 at once, and how much lies beyond a limit."""

from __future__ import annotations

import numpy as np

from autoscaler.domain.observation import Floats


def quantiles(upper_edges: Floats, cumulative: Floats, quantile: float) -> Floats:
    """Quantile of each histogram, linear within its bucket as PromQL's `histogram_quantile` has it.

    Args:
        upper_edges: ascending, the last one infinite: float64 (B).
        cumulative: observations at or below each edge: float64 (N, B). Scrapes that tear may fall; they are mended.
        quantile: 0..1.

    Returns:
        float64 (N). NaN where nothing was observed. In the last bucket: the highest finite edge.
    """
    counts = _mended(cumulative)
    totals = counts[:, -1]
    wanted = quantile * totals
    bucket = np.minimum((counts < wanted[:, None]).sum(axis=1), counts.shape[1] - 1)
    rows = np.arange(len(counts))
    below = np.where(bucket > 0, counts[rows, bucket - 1], 0.0)
    lower_edge = np.where(bucket > 0, upper_edges[bucket - 1], 0.0)
    upper_edge = upper_edges[bucket]
    within = counts[rows, bucket] - below
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(within > 0, (wanted - below) / within, 0.0)
        linear = lower_edge + (upper_edge - lower_edge) * share
    highest_finite = upper_edges[-2] if len(upper_edges) > 1 else np.nan
    result = np.where(np.isinf(upper_edge), highest_finite, linear)
    return np.where(totals > 0, result, np.nan)


def beyond(upper_edges: Floats, cumulative: Floats, limit: float) -> Floats:
    """Share of each histogram's observations above `limit`, linear within the bucket that it lies in.

    Worked numbers: 90 of 100 at or below 1 s and 98 at or below 2.5 s: .06 are above 1.75 s.

    Args:
        upper_edges: ascending, the last one infinite: float64 (B).
        cumulative: as `quantiles` takes it: float64 (N, B).
        limit: in the unit of the edges. Beyond the highest finite edge nothing is known: what is there counts whole.

    Returns:
        float64 (N), 0..1. NaN where nothing was observed.
    """
    counts = _mended(cumulative)
    edges, totals = np.concatenate([[0.0], upper_edges[:-1]]), counts[:, -1]
    below = np.array([np.interp(limit, edges, [0.0, *row]) for row in counts[:, :-1]])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(totals > 0, 1.0 - below / totals, np.nan)


def _mended(cumulative: Floats) -> Floats:
    counts: Floats = np.maximum.accumulate(np.nan_to_num(cumulative, nan=0.0), axis=1)
    return counts
