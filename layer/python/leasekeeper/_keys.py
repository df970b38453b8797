"""Keys and key templates: the same template and values give the same key in every language that shares the table."""

from __future__ import annotations

from typing import List, Mapping, Tuple

from ._errors import Protocol

#: The longest key, in UTF-8 bytes: DynamoDB's limit for a partition key.
MAX_KEY = 2_048


def checked_key(key: object) -> str:
    """The key as it is, if it can be one: 1 to 2,048 bytes of UTF-8."""
    if not isinstance(key, str):
        raise TypeError(f"a key is a str, not {type(key).__name__}")
    length = len(_encoded(key))
    if length == 0:
        raise Protocol("the key is empty")
    if length > MAX_KEY:
        raise Protocol(f"the key has {length} bytes; at most {MAX_KEY} are allowed")
    return str.__str__(key)  # A subclass may print itself differently.


def _encoded(text: str) -> bytes:
    try:
        return str.encode(text, "utf-8")
    except UnicodeEncodeError:
        raise Protocol("the key has half of a surrogate pair, which is no Unicode text") from None


class KeyTemplate:
    """A parsed key template, such as ``customer:{customer_id}``.

    ``{name}`` stands for a value, ``{{`` and ``}}`` for literal braces. Where a template has one placeholder, the value
    is put in as it is; where it has two or more, each becomes ``<length in bytes>:<value>``, so that no two different
    lists of values make the same key.

    Raises :class:`Protocol` for a brace without its partner, a placeholder that is no name, and an empty template.
    """

    __slots__ = ("_parts", "names")

    #: The placeholders' names, each once, in order.
    names: Tuple[str, ...]

    def __init__(self, template: str) -> None:
        if not isinstance(template, str):
            raise TypeError(f"a key template is a str, not {type(template).__name__}")
        self._parts = _parse(template)
        self.names = tuple(dict.fromkeys(text for is_value, text in self._parts if is_value))

    def render(self, values: Mapping[str, str]) -> str:
        """The key that these values make.

        Raises :class:`TypeError` for a value that is not a str; :class:`Protocol` if a placeholder has no value, a value
        no placeholder, or the key is empty or longer than 2,048 bytes.
        """
        for name, value in values.items():
            if name not in self.names:
                raise Protocol(f"the key template has no placeholder {name!r}")
            if not isinstance(value, str):
                raise TypeError(f"the value of {name!r} in a key must be a str, not {type(value).__name__}")
        framed = sum(is_value for is_value, _ in self._parts) > 1
        key = []
        for is_value, text in self._parts:
            if not is_value:
                key.append(text)
                continue
            if text not in values:
                raise Protocol(f"the placeholder {text!r} of the key template has no value")
            value = str.__str__(values[text])
            key.append(f"{len(_encoded(value))}:{value}" if framed else value)
        return checked_key("".join(key))


def _parse(template: str) -> List[Tuple[bool, str]]:
    """The template's parts: is it a placeholder, and its name or the literal text."""
    parts: List[Tuple[bool, str]] = []
    literal = ""
    at = 0
    while at < len(template):
        letter = template[at]
        if letter not in "{}":
            literal += letter
            at += 1
        elif template[at : at + 2] in ("{{", "}}"):
            literal += letter
            at += 2
        elif letter == "}":
            raise Protocol("the key template has a lone `}`: write `}}` for a literal one")
        else:
            end = template.find("}", at)
            if end < 0:
                raise Protocol("the key template has a `{` without its `}`: write `{{` for a literal one")
            if literal:
                parts.append((False, literal))
                literal = ""
            parts.append((True, _placeholder(template[at + 1 : end])))
            at = end + 1
    if literal:
        parts.append((False, literal))
    if not parts:
        raise Protocol("the key template is empty")
    return parts


def _placeholder(name: str) -> str:
    letters = name.replace("_", "")
    # What is a letter in other languages too; and Python's own names, among them those with marks of a script's vowels.
    if name.isidentifier() or ((not letters or letters.isalnum()) and (name[:1].isalpha() or name[:1] == "_")):
        return name
    raise Protocol(
        f"the placeholder {name[:64]!r} of the key template is no name: letters, digits and underscores, no digit first"
    )
