"""The demo's figures: what counts of a phase, and what is said of one that was interrupted."""

import asyncio

import numpy as np
from aiohttp import web

from autoscaler.cli.demo import interrupt
from autoscaler.cli.demo_report import Tally, phase_figures, phase_sentence
from autoscaler.simulator.traffic.arrivals import Arrivals
from autoscaler.simulator.traffic.load import LoadGenerator, LoadResults


def results(*sent_s: float, status: int = 200) -> LoadResults:
    n = len(sent_s)
    return LoadResults(
        np.array(sent_s), np.zeros(n, np.int64), np.full(n, 0.5), np.full(n, 1.0), np.full(n, 30), np.full(n, status),
        0.0,
    )  # fmt: skip


def test_the_first_ten_seconds_do_not_count():
    found = phase_figures(Tally([results(1.0, 9.9, 10.0, 20.0)], [2], [0.0]), 40.0)
    assert (found["requests"], found["warm_up_requests"], found["tokens_per_s"]) == (2, 2, 2.0)
    assert "interrupted" not in phase_sentence("managed", found)


def test_a_phase_that_is_interrupted_early_says_what_was_sent():
    tally = Tally([results(1.0, 2.0, 3.0)], [2], [0.0], ended_s=6.2, in_flight=35)
    assert phase_sentence("round-robin", phase_figures(tally, 60.0)) == (
        "round-robin  interrupted after 6 s with 35 requests in flight; the first 10 s of a phase, in which 3 requests "
        "ended, do not count"
    )


def test_a_phase_that_is_interrupted_later_is_measured_over_what_it_lasted():
    tally = Tally([results(1.0, 12.0, 13.0)], [2], [0.0], ended_s=20.0, in_flight=4)
    found = phase_figures(tally, 60.0)
    assert (found["seconds"], found["requests"], found["errors"], found["tokens_per_s"]) == (20.0, 2, 0, 6.0)
    assert phase_sentence("managed", found).endswith("; interrupted after 20 s with 4 requests in flight")


async def test_what_the_client_gives_up_when_it_is_interrupted_is_no_error():
    asked, released = asyncio.Event(), asyncio.Event()

    async def silent(request: web.Request) -> web.Response:
        asked.set()
        await released.wait()
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/completions", silent)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    client, tally = LoadGenerator(f"http://{host}:{port}", ("a",)), Tally.empty()
    one = np.array([1])
    sending = asyncio.create_task(client.run([Arrivals(np.zeros(1), np.zeros(1, np.int64), one, one)]))
    await asyncio.wait_for(asked.wait(), 60)
    interrupt(tally, client, 3.0)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    released.set()
    await runner.cleanup()
    found = phase_figures(tally, 60.0)
    assert (found["in_flight"], found["errors"], found["seconds"]) == (1, 0, 3.0)
