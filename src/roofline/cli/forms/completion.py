"""`roofline --completion`: a shell script that completes commands, formulas, options, their values and chip names.

The script calls this command for the candidates, so it matches the installed version. Without candidates the shell completes file names.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence

from ...dtypes import DTYPES
from ...errors import RooflineError
from ...formulas import all_formulas, lookup
from ...machines import names
from ...ops.elementwise import POINTWISE
from ..commands import COMMANDS, chosen
from ..options import Parser
from ..options.named_values import NamedValues

BASH = """\
_roofline() {
    local IFS=$'\\n'
    COMPREPLY=($(roofline --completion bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _roofline roofline
"""
ZSH = """\
#compdef roofline
_roofline() {
    local -a found
    found=(${(f)"$(roofline --completion zsh "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -a found; else _files; fi
}
compdef _roofline roofline
"""
FISH = """\
function __roofline
    set -l typed (commandline -opc)
    set -l word (commandline -ct)
    set -l found (roofline --completion fish $typed[2..-1] "$word" 2>/dev/null)
    if set -q found[1]
        printf '%s\\n' $found
    else
        __fish_complete_path "$word"
    end
end
complete -c roofline -f -a '(__roofline)'
"""
SHELLS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def _formulas() -> list[str]:
    return [formula.name for formula in all_formulas()]


def _figures() -> list[str]:
    from ..plot import FIGURES

    return [*FIGURES, "fusion"]


def _groupings() -> Sequence[str]:
    from ..analyze import GROUPS

    return GROUPS


def _models() -> list[str]:
    from ...plan.catalogue import entries

    return [*entries()]


# metavar of an option -> its values
VALUES: dict[str, Callable[[], Iterable[str]]] = {
    "CHIP": names,
    "FORMAT": lambda: DTYPES,
    "FORMULA": _formulas,
    "MODEL": _models,
    "NAME|FILE": names,
    "NAME|FILE|OP": names,
    "OP": lambda: POINTWISE,
    "GROUP": _groupings,
}
# commands whose first argument determines their options
FIRST: dict[str, Callable[[], Iterable[str]]] = {"op": lambda: [*_formulas(), "chain"], "plot": _figures}


def parser() -> Parser:
    command = Parser(
        "--completion",
        "Print a script that completes commands, formulas, options, their values and chip names in a shell.\n"
        'bash: eval "$(roofline --completion bash)" in ~/.bashrc; zsh: the same with zsh in ~/.zshrc, after compinit;\n'
        "fish: roofline --completion fish > ~/.config/fish/completions/roofline.fish",
        'eval "$(roofline --completion bash)"',
    )
    command.add_argument("shell", choices=SHELLS, help="the shell")
    command.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="WORD", help="words typed so far: print the completions of the last one"
    )
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words[:1])
    if len(words) == 1:
        sys.stdout.write(SHELLS[args.shell])
    else:
        sys.stdout.writelines(f"{word}\n" for word in completions(words[1:]))
    return 0


def completions(words: Sequence[str]) -> list[str]:
    """The completions of the last word; empty where only file names can follow.

    >>> completions(["analyze", "--by", "de"])
    ['device']
    """
    *before, last = words
    try:
        following = _following(before, last.startswith("-"))
    except RooflineError:  # a formula or figure that does not exist
        return []
    return [word for word in following if word.startswith(last)]


def _following(words: Sequence[str], option: bool) -> Iterable[str]:
    """The candidates after these words: options, or values of the preceding option or of a positional argument."""
    if not words:
        return ("--help", "--version") if option else COMMANDS
    name, *rest = words
    if name not in COMMANDS or "--" in rest:
        return ()
    if not rest and name in FIRST:
        return FIRST[name]()
    actions = _parser(name, rest)._actions
    options = {flag: action for action in actions for flag in action.option_strings if action.help != argparse.SUPPRESS}
    previous = options.get(words[-1])
    if previous is not None and previous.nargs != 0:
        return _values(previous)
    last = next((place for place in reversed(range(len(words))) if words[place].startswith("-")), 0)
    named = options.get(words[last])
    if isinstance(named, NamedValues) and all(map(named.has, words[last + 1 :])) and not option:
        return _values(named)
    return options if option else [value for action in actions if not action.option_strings for value in _values(action)]


def _parser(name: str, words: Sequence[str]) -> Parser:
    command, rest = chosen(name, list(words)) if name in COMMANDS else chosen("", [name, *words])
    of_formula = command.__name__.endswith((".op", ".cross"))
    first = (rest[0], rest[1:]) if name == "plot" else (lookup(rest[0]),) if of_formula else ()
    made: Parser = command.parser(*first)
    return made


def _values(action: argparse.Action) -> Iterable[str]:
    if isinstance(action, NamedValues):
        return [name if value.is_word or name.endswith("-") else f"{name}=" for name, value in action.values.items()]
    if action.choices is not None:
        return map(str, action.choices)
    return VALUES.get(str(action.metavar), tuple)()
