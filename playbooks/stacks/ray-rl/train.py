"""Learn to walk to a goal (REINFORCE): actors on all nodes play with the current policy, this program improves it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import ray

LENGTH, GOAL, LONGEST = 9, 7, 20  # places on a line, where to go, steps of an episode
START = 1


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Learn to walk to a goal.")
    parser.add_argument("--players", type=int, default=2, help="actors of all nodes together")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=32, help="per actor and round")
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder for the policy")
    return parser.parse_args()


def probabilities(policy: np.ndarray) -> np.ndarray:
    """Turn the policy's numbers into a probability of each step, left or right, for each place."""
    shifted = np.exp(policy - policy.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


@ray.remote(num_cpus=0.5, scheduling_strategy="SPREAD")
class Player:
    """Plays episodes; with a large model this is where vLLM or SGLang would generate."""

    def __init__(self, number: int, count: int) -> None:
        self.number = number
        self.random = np.random.default_rng(number)
        print(f"rank {number} of {count} on {ray.util.get_node_ip_address()}", flush=True)

    def play(self, policy: np.ndarray, episodes: int) -> tuple[np.ndarray, float]:
        """Give the gradient of the expected reward, and the mean reward."""
        chances, gradient, rewards = probabilities(policy), np.zeros_like(policy), []
        for _ in range(episodes):
            place, steps = START, []
            while place != GOAL and len(steps) < LONGEST:
                right = int(self.random.random() < chances[place, 1])
                steps.append((place, right))
                place = min(max(place + 2 * right - 1, 0), LENGTH - 1)
            reward = (LONGEST - len(steps)) / LONGEST
            rewards.append(reward)
            for visited, chosen in steps:
                gradient[visited] += reward * (np.eye(2)[chosen] - chances[visited])
        return gradient / episodes, float(np.mean(rewards))


def main() -> None:
    """Let all actors play with the same policy, and take a step along the mean of their gradients."""
    options = parse_options()
    ray.init(logging_level="WARNING")  # RAY_ADDRESS is set
    players = [Player.remote(number, options.players) for number in range(options.players)]
    policy = np.zeros((LENGTH, 2))
    for number in range(1, options.rounds + 1):
        shared = ray.put(policy)
        played = ray.get([player.play.remote(shared, options.episodes) for player in players])
        policy = policy + 2.0 * np.mean([gradient for gradient, _ in played], axis=0)
        if number % 5 == 0:
            reward = np.mean([mean for _, mean in played])
            print(f"round {number}/{options.rounds}  mean reward {reward:.3f}", flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "policy.json").write_text(json.dumps(policy.tolist()), encoding="utf-8")
    print(f"saved {options.output / 'policy.json'}", flush=True)


if __name__ == "__main__":
    main()
