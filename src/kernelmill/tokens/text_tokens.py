"""Count the tokens of a text exactly, and the tokens needed to reach a given position in it.

`LibraryTokens` calls the `tokenizers` library, which is always right but slow. `FastTokens` gives the same
counts ten times as fast for byte-level BPE whose pre-tokenization pattern is in `PIECES`. It relies on four
facts:

- Added tokens (`<|im_end|>`) end a piece wherever they occur.
- Each piece is encoded by itself, so its count can be cached. Code repeats its words.
- Where letters, digits and whitespace are ASCII, the pattern needs no Unicode classes and Python's `re` finds
  the pieces.
- No piece crosses the end of a line that is followed by a line with a visible character, nor a boundary
  between a visible character and a space. For other texts, therefore, only the words that need it go to the
  library.

`chat_tokens` decides whether a tokenizer qualifies. Does not return token ids.
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
"""A tokenizer's pattern, and its equivalent for texts whose letters, digits and whitespace are ASCII."""


def _signs() -> str:
    """Non-ASCII characters that NFC keeps and that are no letter, digit or space in any Unicode version."""
    found = map(chr, (*range(0xA1, 0xF8), *range(0x2010, 0x2C00)))
    return "".join(
        c for c in found if unicodedata.category(c)[0] in "PS" and unicodedata.is_normalized("NFC", c)
    )


_HARD = re.compile(f"[^\\x00-\\x7f{re.escape(_signs())}]")
_LINES = re.compile(r"[^\n]*+(?:\n(?![ \t]*\S)[^\n]*+)*+\n?")
"""A line and the empty lines after it. Its end is always the end of a piece: Python's \\S excludes all
Unicode whitespace, and more."""
_WORDS = re.compile(r"(?<=\S)(?= )")
"""A boundary between a visible character and a space, which is also always the end of a piece."""
_CUTS = (_LINES.findall, _WORDS.split)

_REMEMBERED, _LONGEST = 200_000, 64
"""Cache limits: number of pieces, and characters per piece; about 25 MB per process. The cache of words, of
which there are fewer, has the same limits."""
_LATELY, _LONGEST_PART = 256, 20_000
"""Limits of the cache of whole texts: number of texts, and characters per text; 5 MB."""


def byte_letters() -> list[str]:
    """The character for each byte in a byte-level vocabulary: itself if visible, else one from 256 on."""
    seen = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in seen else next(others)) for byte in range(256)]


class Encoder(Protocol):
    """Counts the tokens of a text without added tokens."""

    def count(self, text: str) -> int: ...

    def count_piece(self, piece: str) -> int:
        """Count a text that is known to be one piece in normal form."""
        ...

    def reach(self, text: str, end: int) -> int:
        """The number of tokens that cover `text[:end]`."""
        ...


class TextTokens(Protocol):
    def measure(self, text: str, end: int | None = None) -> tuple[int, int | None]:
        """The number of tokens, and how many of them cover `text[:end]`."""
        ...


class LibraryTokens:
    """Counts with the `tokenizers` library. Handles added tokens and every kind of tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._model = tokenizer.model
        self._letters = dict(enumerate(byte_letters()))

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def count_piece(self, piece: str) -> int:
        """Count one piece. For byte-level vocabularies only."""
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
    """Counts with the embedded Qwen vocabulary. Knows no added tokens."""

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
    """A bounded cache of token counts by text."""

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
    """Counts by cached pieces.

    `pattern` is a key of `PIECES`; each text in `added` is one token wherever it occurs.
    """

    def __init__(self, encoder: Encoder, pattern: str, added: list[str]) -> None:
        self._encoder = encoder
        self._pieces = PIECES[pattern].findall
        self._piece = _Memo(encoder.count_piece).__getitem__
        self._word = _Memo(encoder.count).__getitem__
        self._lately = lru_cache(_LATELY)(self._count)
        # Longest first: where one token is a prefix of another, the longer one wins.
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
        """Count the text between two added tokens.

        Cached: it is often a whole message, and prompts repeat.
        """
        return self._lately(text) if len(text) <= _LONGEST_PART else self._count(text)

    def _count(self, text: str, cuts: tuple[Callable[[str], list[str]], ...] = _CUTS) -> int:
        if text.isascii() or _HARD.search(text) is None:
            return sum(map(self._piece, self._pieces(text)))
        if not cuts:
            return self._word(text)
        return sum(self._count(part, cuts[1:]) for part in cuts[0](text))


def _line_at(text: str, place: int) -> tuple[int, int]:
    """Start and end of the line that holds the character before `place`."""
    return next(line.span() for line in _LINES.finditer(text) if line.end() >= place)
