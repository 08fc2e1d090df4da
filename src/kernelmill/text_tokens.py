"""How many tokens a text has, to the token, and after how many of them a given place is reached.

`LibraryTokens` asks the `tokenizers` library, which is always right and slow. `FastTokens` gives the same numbers ten times as fast for
byte-level BPE that cuts texts into pieces by one of the patterns of `PIECES`:

- each piece is encoded by itself in such a vocabulary, so its number of tokens is remembered (code repeats its words);
- pieces are found by Python's `re` where letters and digits are ASCII, for there the pattern can be written without Unicode classes;
- a piece never reaches over the end of a line that a line with a first letter follows, so other lines are given to the library one by one;
- added tokens (`<|im_end|>`) end a piece wherever they stand.

Whether a tokenizer may be counted so is decided in `chat_tokens`. Does not give token ids.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Protocol

from kernelmill.tokens import QWEN_PATTERN, qwen_encoding

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ASCII_PIECES = r"""
    [^\r\n0-9A-Za-z']?[A-Za-z]++                        # a word, with what stands before it
    | [0-9]DIGITS
    | [\t\v\f ]*+[\r\n]++(?:[\t\v\f ]*+[\r\n]++)*+      # blank up to the end of the last empty line
    | '(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]|[A-Za-z]++)
    | \ ?[^\t\n\v\f\r 0-9A-Za-z]++[\r\n]*+              # signs, and the line ends after them
    | [\t\n\v\f\r ]++(?![^\t\n\v\f\r ])                 # blank before the end
    | [\t\n\v\f\r ]+(?=[\t\n\v\f\r ])                   # blank but for its last, which goes with the word
    | [\t\n\v\f\r ]
"""
PIECES = {
    QWEN_PATTERN: re.compile(_ASCII_PIECES.replace("DIGITS", ""), re.VERBOSE),
    # Llama 3 and others
    QWEN_PATTERN.replace(r"\p{N}|", r"\p{N}{1,3}|"): re.compile(
        _ASCII_PIECES.replace("DIGITS", "{1,3}+"), re.VERBOSE
    ),
}
"""The pattern as it stands in a tokenizer, and the same for texts whose letters, digits and blanks are ASCII."""


def _signs() -> str:
    """Characters beyond ASCII that are no letter, digit or blank in any version of Unicode, and that NFC leaves alone."""
    found = map(chr, (*range(0xA1, 0xF8), *range(0x2010, 0x2C00)))
    return "".join(
        c for c in found if unicodedata.category(c)[0] in "PS" and unicodedata.is_normalized("NFC", c)
    )


_HARD = re.compile(f"[^\\x00-\\x7f{re.escape(_signs())}]")
_LINES = re.compile(r"(?<=\n)(?=[ \t]*\S)")
"""Places where a piece ends for certain: \\S in Python leaves out all that is blank in Unicode, and a little more."""
_REMEMBERED, _LONGEST = 200_000, 64
"""So many pieces are remembered, of so many letters at most: about 25 MB a process."""


class Encoder(Protocol):
    """What counts a text that has no added tokens in it."""

    def count(self, text: str) -> int: ...

    def reach(self, text: str, end: int) -> int:
        """How many tokens it takes to hold `text[:end]`."""
        ...


class TextTokens(Protocol):
    def measure(self, text: str, end: int | None = None) -> tuple[int, int | None]:
        """The number of tokens, and how many of them it takes to hold `text[:end]`."""
        ...


class LibraryTokens:
    """By the `tokenizers` library: also for added tokens, whatever kind of tokenizer it is."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def reach(self, text: str, end: int) -> int:
        reached = self.measure(text, end)[1]
        assert reached is not None
        return reached

    def measure(self, text: str, end: int | None = None) -> tuple[int, int | None]:
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        if end is None:
            return len(encoded), None
        ends = (place for place, (_, stop) in enumerate(encoded.offsets, 1) if stop >= end)
        return len(encoded), next(ends, len(encoded)) if end else 0


class EmbeddedTokens:
    """By the embedded Qwen vocabulary; knows no added tokens."""

    def __init__(self) -> None:
        self._encode = qwen_encoding().encode_ordinary
        self._bytes = qwen_encoding().decode_single_token_bytes

    def count(self, text: str) -> int:
        return len(self._encode(unicodedata.normalize("NFC", text)))

    def reach(self, text: str, end: int) -> int:
        left = len(unicodedata.normalize("NFC", text[:end]).encode())
        number = 0
        for token in self._encode(unicodedata.normalize("NFC", text)):
            if left <= 0:
                break
            left -= len(self._bytes(token))
            number += 1
        return number


class _Memo(dict[str, int]):
    """The number of tokens of each piece."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def __missing__(self, piece: str) -> int:
        number = self._encoder.count(piece)
        if len(piece) <= _LONGEST:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[piece] = number
        return number


class FastTokens:
    """Counts by pieces. `pattern` is a key of `PIECES`; each text of `added` is one token wherever it stands."""

    def __init__(self, encoder: Encoder, pattern: str, added: list[str]) -> None:
        self._encoder = encoder
        self._pieces = PIECES[pattern].findall
        self._of = _Memo(encoder).__getitem__
        # The longest first: where one begins another, it is the one that is meant.
        words = sorted(added, key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(map(re.escape, words))})" if words else "(?!)()").split

    def measure(self, text: str, end: int | None = None) -> tuple[int, int | None]:
        number = at = 0
        reached = 0 if end == 0 else None
        for place, part in enumerate(self._split(text)):
            stop = at + len(part)
            if end is None or reached is not None or end > stop or not part:
                number += 1 if place % 2 else self._count(part)
            elif place % 2 or end == stop:
                number += 1 if place % 2 else self._count(part)
                reached = number
            else:
                head, line = _line_at(part, end - at)
                number += self._count(part[:head])
                reached = number + self._encoder.reach(part[head:line], end - at - head)
                number += self._count(part[head:])
            at = stop
        return number, reached

    def _count(self, text: str) -> int:
        if text.isascii() or _HARD.search(text) is None:
            return sum(map(self._of, self._pieces(text)))
        return sum(self._count_line(line) for line in _LINES.split(text))

    def _count_line(self, line: str) -> int:
        if line.isascii() or _HARD.search(line) is None:
            return sum(map(self._of, self._pieces(line)))
        return self._encoder.count(line)


def _line_at(text: str, place: int) -> tuple[int, int]:
    """Where the line with the character before `place` begins and ends, as pieces see lines."""
    begin = 0
    newline = text.rfind("\n", 0, place - 1)
    while newline >= 0:
        if _LINES.match(text, newline + 1):
            begin = newline + 1
            break
        newline = text.rfind("\n", 0, newline)
    after = _LINES.search(text, place)
    return begin, after.start() if after else len(text)
