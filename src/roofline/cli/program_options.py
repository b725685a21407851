"""Options about compiled programs: trip counts of loops, and the network that their collectives use."""

import argparse
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..machine import Machine

if TYPE_CHECKING:
    from ..hlo.price.collectives import Network

NEEDS_PROGRAM = "--trips, --link, --topology and --algorithm apply to"
ALGORITHMS = ("ring", "bidirectional", "torus", "switch")


def program_options(parser: argparse.ArgumentParser) -> None:
    """Options for what a program file does not contain."""
    group = parser.add_argument_group("program (HLO and StableHLO)")
    group.add_argument("--trips", action="append", default=[], metavar="LOOP=N", help="trip count of a loop; may be repeated")
    group.add_argument("--link", metavar="LINK", help="link of the collectives, such as ici, nvlink or dcn (default: the chip's own)")
    group.add_argument("--topology", metavar="ring|switch|AxB", help="topology of the chips in a group; AxB is a torus")
    group.add_argument("--algorithm", choices=ALGORITHMS, metavar="NAME", help=f"{', '.join(ALGORITHMS)} (default: the fastest)")


def names_program_option(args: argparse.Namespace) -> bool:
    """Whether any of these options was given."""
    return bool(args.trips or args.link or args.topology or args.algorithm)


def chosen_network(args: argparse.Namespace, machine: Machine) -> "Network | None":
    """The network that these options describe, else the machine's own."""
    from ..hlo.price.collectives import asked_network

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
