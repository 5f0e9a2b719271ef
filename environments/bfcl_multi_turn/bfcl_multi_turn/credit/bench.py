"""Time to credit one group: `python -m bfcl_multi_turn.credit.bench`.

Sixteen rollouts of five user turns, each turn with two to six runtime interactions of one or two calls, as in a
training group. Printed: the median of many runs of the pure core, in CPU time and in wall time, and the quickest run.
On a busy machine the median wall time says more about the neighbours than about the code.
"""

from __future__ import annotations

import random
import statistics
import time

from bfcl_multi_turn.credit.group import Rollout, credit_group
from bfcl_multi_turn.credit.options import CreditOptions
from bfcl_multi_turn.interactive.records import Interaction, ParsedCall

ROLLOUTS, TURNS, RUNS = 16, 5, 200

GOLD = [[f"first(a={turn}, b='x')", f"second(c={turn}, d=[1, 2])"] for turn in range(TURNS)]


def make_group(seed: int = 0) -> list[Rollout]:
    """A group as training makes them: mostly right calls, some wrong arguments, some parse errors."""
    rng = random.Random(seed)
    return [
        Rollout(f"rollout-{offset}", rng.randint(0, TURNS) / TURNS, _interactions(rng)) for offset in range(ROLLOUTS)
    ]


def measure(runs: int = RUNS) -> list[tuple[float, float]]:
    """Milliseconds of each run: CPU and wall."""
    group, options = make_group(), CreditOptions()
    times = []
    for _ in range(runs):
        wall, cpu = time.perf_counter(), time.process_time()
        credit_group(GOLD, group, options)
        times.append((1000 * (time.process_time() - cpu), 1000 * (time.perf_counter() - wall)))
    return times


def main() -> None:
    """Print the figures."""
    cpu, wall = zip(*measure(), strict=True)
    steps = len(credit_group(GOLD, make_group()).steps)
    print(f"{ROLLOUTS} rollouts x {TURNS} user turns, {steps} steps, {RUNS} runs")
    middle = statistics.median
    print(f"median {middle(cpu):.2f} ms CPU, {middle(wall):.2f} ms wall; best {min(wall):.2f} ms wall")


def _interactions(rng: random.Random) -> list[Interaction]:
    interactions = []
    for turn in range(TURNS):
        steps = rng.randint(2, 6)
        for index in range(steps):
            broken = rng.random() < 0.1
            interactions.append(
                Interaction(
                    user_turn=turn,
                    index=index,
                    response_type="parse_error" if broken else "tool_call",
                    calls=[] if broken else [_call(rng, turn, place) for place in range(rng.randint(1, 2))],
                    call_parse_reliable=not broken,
                )
            )
        interactions.append(Interaction(user_turn=turn, index=steps, response_type="answer"))
    return interactions


def _call(rng: random.Random, turn: int, place: int) -> ParsedCall:
    off = rng.random() < 0.3
    if rng.random() < 0.5:
        return ParsedCall(call_idx=place, name="first", arguments={"a": turn + off, "b": "x"})
    return ParsedCall(call_idx=place, name="second", arguments={"c": turn, "d": [1, 2 + off]})


if __name__ == "__main__":
    main()
