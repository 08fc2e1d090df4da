"""Clean untrusted text for quoting: an error message may contain anything the candidate wanted.

Removes control codes, invisible characters, chat template tokens, machine paths, addresses and seeds. Of a
traceback only the candidate's own frames remain, with their line numbers. The work is bounded for any length.

The result is still untrusted, so callers must mark it as a quotation (`feedback` puts `| ` before each line).
False statements in it cannot be detected.
"""

from __future__ import annotations

import re
import unicodedata

MAX_LINES = 15
MAX_WIDTH = 120

_MAX_TEXT = 20_000  # characters kept at either end
_MAX_RAW_LINE = 400  # before any regex runs on it

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)
_NEWLINE = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")  # characters that only change how others look
_TAG = re.compile(
    r"<(?=\s*/?\s*(?:think|thinking|answer|system|user|assistant|human|tool|function|im_|start_of|end_of|bos|eos|pad|unk"
    r"|s\s*>|<\s*/?\s*sys))",
    re.IGNORECASE,
)
_MARKS = (
    (re.compile(r"`{3,}|~{3,}"), "'''"),
    (re.compile(r"<(?=[|｜])"), "< "),
    (re.compile(r"(?<=[|｜])>"), " >"),
    (_TAG, "< "),
    (re.compile(r"\[(?=/?(?:INST|SYSTEM|AVAILABLE_TOOLS|TOOL)[^\]]{0,20}\])", re.IGNORECASE), "[ "),
    (re.compile(r"\b(BEGIN|END)_PYTHON\b"), r"\1-PYTHON"),
)
_FRAME = re.compile(r'^(\s*)File "([^"]*)", line (\d+)(.*)$')
_NOT_THE_CANDIDATES = re.compile(
    r"(?:site|dist)-packages/|/lib(?:64)?/python3|kernelmill/(?:evaluate|sandbox)/|<frozen"
)
_PATH = re.compile(r"(?<![\w.])(?:file:)?/{1,3}(?:[^\s/:'\"()<>,;|]{1,200}/)+[^\s/:'\"()<>,;|]{0,200}")
_HOME = re.compile(r"(?<![\w.])~[\w.-]*/[^\s:'\"()<>,;|]*")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{5,}")
_SEED = re.compile(r"\b(\w{0,20}seeds?)\b(?:\s*(?:=|:|is|of|was)?\s*)\[?-?\d{3,}\]?", re.IGNORECASE)
_LONG_NUMBER = re.compile(r"(?<![\w.])\d{12,}(?!\w|\.\d)")
_VALUES = re.compile(r"[\[(][^\[\]()]*[\])]")
_VALUE = re.compile(r"\d\.|\de[-+]?\d|\bnan\b|\binf\b", re.IGNORECASE)


def one_line(text: str, width: int = MAX_WIDTH) -> str:
    """Clean text for use inside a sentence."""
    return _cut(" ".join(_safe(line) for line in _letters(text).split("\n")[:20]).strip(), width)


def one_element(text: str, width: int = MAX_WIDTH) -> str:
    """Like `one_line`, but hides several values in brackets, so that no output can be copied from it."""
    line = one_line(text, _MAX_RAW_LINE)
    for _ in range(4):  # tensor([[…]]) is nested
        line = _VALUES.sub(lambda found: "[...]" if len(_VALUE.findall(found[0])) > 1 else found[0], line)
    return _cut(line, width)


def relevant_lines(error: str) -> list[str]:
    """At most `MAX_LINES` lines that say what went wrong, each at most `MAX_WIDTH` wide."""
    lines = [line.rstrip() for line in _letters(error).split("\n")]
    lines = [line for line in lines if line.strip()]
    starts = [i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if starts:
        frames, message = _traceback(lines[starts[-1] + 1 :])
        lines = frames + _some(message, MAX_LINES - len(frames))
    else:
        lines = _some(lines, MAX_LINES)
    return [_cut(_safe(line), MAX_WIDTH) for line in lines]


def _letters(text: str) -> str:
    """The text without invisible characters, and only its two ends if it is long."""
    if len(text) > 2 * _MAX_TEXT:
        text = f"{text[:_MAX_TEXT]}\n...\n{text[-_MAX_TEXT:]}"
    text = _NEWLINE.sub("\n", _ESCAPE.sub("", text)).replace("\t", "    ")
    text = "".join(letter for letter in text if letter == "\n" or unicodedata.category(letter)[0] != "C")
    return "\n".join(_cut(line, _MAX_RAW_LINE) for line in _SELECTORS.sub("", text).split("\n"))


def _safe(line: str) -> str:
    """One line without machine paths, secrets, and chat template tokens."""
    if found := _FRAME.match(line):
        line = f'{found[1]}File "{_name(found[2])}", line {found[3]}{found[4]}'
    line = _PATH.sub(lambda found: _name(found[0]), line)
    line = _HOME.sub(lambda found: _name(found[0]), line)
    line = _ADDRESS.sub("0x...", line)
    line = _LONG_NUMBER.sub("...", _SEED.sub(r"\1", line))
    for mark, instead in _MARKS:
        line = mark.sub(instead, line)
    return line


def _name(path: str) -> str:
    """A library file's path inside the library; "candidate.py" for any other Python file."""
    if _NOT_THE_CANDIDATES.search(path):
        return re.split(r"(?:site|dist)-packages/|/lib(?:64)?/python3[^/]*/|(?=kernelmill/)", path)[-1]
    if path.endswith(".py") or path in ("<candidate>", "<string>"):
        return "candidate.py"
    return path.rstrip("/").rsplit("/", 1)[-1] if "/" in path else path


def _traceback(lines: list[str]) -> tuple[list[str], list[str]]:
    """The last three frames of the candidate, and the message."""
    frames: list[list[str]] = []
    for i, line in enumerate(lines):
        if not line.startswith(" "):
            message = lines[i:]
            break
        if _FRAME.match(line):
            frames.append([line])
        elif frames and len(frames[-1]) < 2 and line.strip(" ^~"):
            frames[-1].append(line)
    else:
        message = []
    own = [frame for frame in frames if not _NOT_THE_CANDIDATES.search(frame[0])]
    return [line for frame in own[-3:] for line in frame], message


def _some(lines: list[str], most: int) -> list[str]:
    """Both ends, and the first line in between that mentions an error with what follows it."""
    if len(lines) <= most:
        return lines
    end = (most - 5) // 2
    middle = lines[end:-end]
    first = next((i for i, line in enumerate(middle) if re.search(r"\berror\b", line, re.IGNORECASE)), None)
    chosen = [] if first is None else [*middle[first : first + 3], "..."]
    return [*lines[:end], "...", *chosen, *lines[-end:]]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 4]} ..."
