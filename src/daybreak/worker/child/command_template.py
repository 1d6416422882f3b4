"""A command line with placeholders, such as `sim --vin {vin}`: checked when it is submitted, filled when it runs.

Without a shell, the template is split into words first, and values are put inside the words: so a value is text and
nothing else, whatever it contains. With a shell, a placeholder becomes a reference to an environment variable that has
the value: so the shell never reads a value as code.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from string import Formatter
from typing import Final

from daybreak.core.errors import BadInput

SHELL: Final = "/bin/sh"
VARIABLE: Final = "DAYBREAK_VALUE_"  # and the number of the placeholder's name, in order of the alphabet

_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})

Part = tuple[str, str | None]  # literal text, and the name that follows it


class CommandTemplate:
    """`names` are the placeholders, in order. `{{` and `}}` stand for a brace."""

    def __init__(self, text: str, *, shell: bool = False) -> None:
        self.text = text
        self.shell = shell
        if not text.strip():
            raise BadInput("the command is empty (is a shell variable not set?); write the command to run")
        self._words = [list(_parts(word)) for word in ([text] if shell else _split(text))]
        found = [name for word in self._words for _, name in word if name is not None]
        self.names = tuple(dict.fromkeys(found))
        if shell:
            _check_quotes(text)

    @property
    def scripted(self) -> str | None:
        """A placeholder inside the script of a shell that the command itself calls, as in `sh -c 'echo {v}'`: there, a
        value is read as code. None if there is none."""
        if self.shell or self.text.split()[0].rpartition("/")[2] not in _SHELLS:
            return None
        words = _split(self.text)
        for option, parts in zip(words, self._words[1:], strict=False):
            if option == "-c":
                return next((name for _, name in parts if name is not None), None)
        return None

    @property
    def program(self) -> str:
        """The first word, as it is written."""
        return self.text.split()[0] if self.shell else _split(self.text)[0]

    def check_names(self, columns: Iterable[str]) -> None:
        """Raise BadInput if a placeholder has no values, or if values have no placeholder."""
        known = list(columns)
        for name in self.names:
            if name not in known:
                raise BadInput(
                    f"the command has the placeholder {{{name}}}, and no values are given for it; "
                    f"the names are {', '.join(known) or 'none'}. A brace as such is written {{{{ or }}}}"
                )
        for name in known:
            if name not in self.names:
                raise BadInput(f"{name!r} has values, and the command does not use them; write {{{name}}} in it")

    def argv(self, values: Mapping[str, str]) -> list[str]:
        """The words of the command with these values."""
        if self.shell:
            return [SHELL, "-c", self._script()]
        return ["".join(_filled(word, values)) for word in self._words]

    def variables(self, values: Mapping[str, str]) -> dict[str, str]:
        """The environment variables that a shell reads the values from."""
        if not self.shell:
            return {}
        return {self._variable(name): values[name] for name in self.names}

    def shown(self, values: Mapping[str, str]) -> str:
        """The command with these values, for people: with a shell, it does the same when it is typed."""
        if not self.shell:
            return shlex.join(self.argv(values))
        return "".join(_filled(self._words[0], {name: shlex.quote(value) for name, value in values.items()}))

    def _variable(self, name: str) -> str:
        return f"{VARIABLE}{sorted(self.names).index(name)}"

    def _script(self) -> str:
        script = ""
        for literal, name in self._words[0]:
            script += literal
            if name is not None:
                reference = f"${{{self._variable(name)}}}"
                script += reference if _quote_at_end(script) == '"' else f'"{reference}"'
        return script


def names_in(text: str) -> list[str]:
    """The placeholders of a text that is no command."""
    return [name for _, name in _parts(text) if name is not None]


def fill(text: str, values: Mapping[str, str]) -> str:
    """A text with its placeholders replaced."""
    return "".join(_filled(_parts(text), values))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadInput(f"the command {text!r} cannot be split into words: {str(error).lower()}") from None


def _parts(word: str) -> Iterator[Part]:
    try:
        found = list(Formatter().parse(word))
    except ValueError as error:
        raise BadInput(f"{word!r}: {error}; write a placeholder as {{name}}, and a brace as {{{{ or }}}}") from None
    for literal, name, form, conversion in found:
        if name is not None and (not name.isidentifier() or form or conversion):
            written = "{" + name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "") + "}"
            raise BadInput(f"{written} is not a placeholder: write {{name}}, and a brace as {{{{ or }}}}")
        yield literal, name


def _filled(word: Iterable[Part], values: Mapping[str, str]) -> Iterator[str]:
    for literal, name in word:
        yield literal
        if name is not None:
            yield values[name]


def _check_quotes(text: str) -> None:
    before = ""
    for literal, name in _parts(text):
        before += literal
        if name is not None and _quote_at_end(before) == "'":
            raise BadInput(
                f"the placeholder {{{name}}} is inside single quotes, where a shell replaces nothing; use double quotes"
            )
        before += "x" if name is not None else ""


def _quote_at_end(script: str) -> str:
    """The quote that is open at the end of a script; "" if none is."""
    quote, skip = "", False
    for char in script:
        if skip:
            skip = False
        elif char == "\\" and quote != "'":
            skip = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
    return quote
