"""Options about compiled programs: trip counts of loops, and the network that their collectives use."""

import argparse
from typing import TYPE_CHECKING

from ...errors import UsageError, did_you_mean
from ...machine import Machine
from .named_values import Value, former, named_values

if TYPE_CHECKING:
    from ...hlo.price.collectives import Network

NEEDS_PROGRAM = "--trips and --network apply to"
ALGORITHMS = ("ring", "bidirectional", "torus", "switch")


def program_options(parser: argparse.ArgumentParser) -> None:
    """Options for what a program file does not contain."""
    group = parser.add_argument_group("program (HLO and StableHLO)")
    group.add_argument("--trips", action="append", default=[], metavar="LOOP=N", help="trip count of a loop; may be repeated")
    named_values(parser, "--network", "network of the collectives", NETWORK, group)
    for value in NETWORK:
        former(group, f"--{value.name}", option="--network", becomes=f"{value.name}={{}}")


def _algorithm(text: str) -> str:
    if text not in ALGORITHMS:
        raise argparse.ArgumentTypeError(f"write one of {', '.join(ALGORITHMS)}{did_you_mean(text, ALGORITHMS)}")
    return text


NETWORK = (
    Value("link=LINK", "such as ici, nvlink or dcn (default: the chip's own)"),
    Value("topology=ring|switch|AxB", "of the chips in a group; AxB is a torus"),
    Value("algorithm=NAME", f"{', '.join(ALGORITHMS)} (default: the fastest)", _algorithm),
)


def names_program_option(args: argparse.Namespace) -> bool:
    """Whether any of these options was given."""
    return bool(args.trips or args.link or args.topology or args.algorithm)


def chosen_network(args: argparse.Namespace, machine: Machine) -> "Network | None":
    """The network that these options describe, else the machine's own."""
    from ...hlo.price.collectives import asked_network

    return asked_network(machine, args.link, args.topology, args.algorithm)


def chosen_trips(args: argparse.Namespace) -> dict[str, int]:
    """The trip counts by the name of the loop."""
    found = {}
    for word in args.trips:
        name, equals, count = word.rpartition("=")
        if not equals or not name or not count.strip().isdecimal():
            raise UsageError(f"--trips {word}: write LOOP=N, such as while.3=100")
        found[name.strip().removeprefix("%")] = int(count)
    return found
