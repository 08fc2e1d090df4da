"""How many tokens a text has, to the token, and after how many of them a given place is reached.

`LibraryTokens` asks the `tokenizers` library, which is always right and slow. `FastTokens` gives the same numbers ten times as fast for
byte-level BPE that cuts texts into pieces by one of the patterns of `PIECES`:

- added tokens (`<|im_end|>`) end a piece wherever they stand;
- a piece is encoded by itself, so its tokens are counted once and remembered: code repeats its words;
- pieces are found by Python's `re` where letters, digits and blanks are ASCII, for there the pattern can be written without Unicode
  classes;
- a piece never reaches over the end of a line that another line with a visible character follows, nor from such a character to a
  space, so of other texts only the words that need it are given to the library.

Whether a tokenizer may be counted so is decided in `chat_tokens`. Does not give token ids.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from kernelmill.tokens.vocabulary import QWEN_PATTERN, qwen_encoding

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ASCII_PIECES = r"""
    [^\r\n0-9A-Za-z']?[A-Za-z]+                             # a word, with what stands before it
    | [0-9]DIGITS
    | '(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]|[A-Za-z]+)
    | \ ?[^\t\n\v\f\r 0-9A-Za-z]+[\r\n]*                  # signs, and the line ends after them
    | [\t\v\f ]*[\r\n]+(?:[\t\v\f ]*[\r\n]+)*           # blank up to the end of the last empty line
    | [\t\v\f ]+(?![^\t\n\v\f\r ])                       # blank but for its last, which goes with the word
    | [\t\v\f ]
"""
PIECES = {
    QWEN_PATTERN: re.compile(_ASCII_PIECES.replace("DIGITS", ""), re.VERBOSE),
    # Llama 3 and others
    QWEN_PATTERN.replace(r"\p{N}|", r"\p{N}{1,3}|"): re.compile(
        _ASCII_PIECES.replace("DIGITS", "{1,3}"), re.VERBOSE
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
_LINES = re.compile(r"[^\n]*+(?:\n(?![ \t]*\S)[^\n]*+)*+\n?")
"""A line, and the empty ones after it. It ends where a piece ends for certain: \\S in Python leaves out all that is blank in Unicode, and more."""
_WORDS = re.compile(r"(?<=\S)(?= )")
"""Between a visible character and a space a piece ends for certain, too."""
_CUTS = (_LINES.findall, _WORDS.split)

_REMEMBERED, _LONGEST = 200_000, 64
"""So many pieces are remembered, of so many letters at most: about 25 MB a process. As many words, which are fewer."""
_LATELY, _LONGEST_PART = 256, 20_000
"""So many texts, of so many letters at most, are known as a whole: 5 MB."""


def byte_letters() -> list[str]:
    """The letter that stands for each byte in a byte-level vocabulary: itself where it can be seen, else one from 256 on."""
    seen = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in seen else next(others)) for byte in range(256)]


class Encoder(Protocol):
    """What counts a text that has no added tokens in it."""

    def count(self, text: str) -> int: ...

    def count_piece(self, piece: str) -> int:
        """The same for what is known to be one piece, and to be in its normal form."""
        ...

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
        self._model = tokenizer.model
        self._letters = dict(enumerate(byte_letters()))

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def count_piece(self, piece: str) -> int:
        """For byte-level vocabularies only."""
        return len(self._model.tokenize(piece.encode().decode("latin-1").translate(self._letters)))

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

    def count_piece(self, piece: str) -> int:
        return len(self._encode(piece))

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
    """The number of tokens of each text that was asked about."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count

    def __missing__(self, text: str) -> int:
        number = self._count(text)
        if len(text) <= _LONGEST:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[text] = number
        return number


class FastTokens:
    """Counts by pieces. `pattern` is a key of `PIECES`; each text of `added` is one token wherever it stands."""

    def __init__(self, encoder: Encoder, pattern: str, added: list[str]) -> None:
        self._encoder = encoder
        self._pieces = PIECES[pattern].findall
        self._piece = _Memo(encoder.count_piece).__getitem__
        self._word = _Memo(encoder.count).__getitem__
        self._lately = lru_cache(_LATELY)(self._count)
        # The longest first: where one begins another, it is the one that is meant.
        words = sorted(added, key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(map(re.escape, words))})" if words else "(?!)()").split

    def measure(self, text: str, end: int | None = None) -> tuple[int, int | None]:
        number = at = 0
        reached = 0 if end == 0 else None
        for place, part in enumerate(self._split(text)):
            stop = at + len(part)
            if end is None or reached is not None or end > stop or place % 2 or end == stop:
                number += 1 if place % 2 else self._count_part(part)
                if end is not None and reached is None and end <= stop:
                    reached = number
            else:
                head, line_end = _line_at(part, end - at)
                number += self._count(part[:head])
                reached = number + self._encoder.reach(part[head:line_end], end - at - head)
                number += self._count(part[head:])
            at = stop
        return number, reached

    def _count_part(self, text: str) -> int:
        """What stands between two added tokens, often the whole of a message: prompts come back."""
        return self._lately(text) if len(text) <= _LONGEST_PART else self._count(text)

    def _count(self, text: str, cuts: tuple[Callable[[str], list[str]], ...] = _CUTS) -> int:
        if text.isascii() or _HARD.search(text) is None:
            return sum(map(self._piece, self._pieces(text)))
        if not cuts:
            return self._word(text)
        return sum(self._count(part, cuts[1:]) for part in cuts[0](text))


def _line_at(text: str, place: int) -> tuple[int, int]:
    """Where the line with the character before `place` begins and ends."""
    return next(line.span() for line in _LINES.finditer(text) if line.end() >= place)
