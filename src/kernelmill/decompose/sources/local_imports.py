"""Inline the local modules that a source imports.

A sandboxed process can read only Python's packages. The text starts with the local modules as strings and an
importer for them; the source follows as written. So it is the same program in any location, and can be proven
again from its folder alone. Modules are found by reading `import` statements. Not covered: modules imported
by other means, and data files that the program reads.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from kernelmill.base.python_text import parse_module
from kernelmill.decompose.errors import BadSource
from kernelmill.evaluate.task import offline_models

MAX_LOCAL = 4 << 20
"""Maximum bytes of the modules that one source may include."""
_NEVER_LOCAL = frozenset([*sys.stdlib_module_names, "torch", "transformers", "numpy", "kernelmill"])

_HEAD = '''"""{title}, with the local modules that it imports: {names}."""

{future}import importlib.abc as _abc
import importlib.util as _util
import sys as _sys

_LOCAL = {{
{entries}}}


class _Local(_abc.MetaPathFinder, _abc.InspectLoader):
    def find_spec(self, name, path=None, target=None):
        return _util.spec_from_loader(name, self) if name in _LOCAL else None

    def is_package(self, name):
        return any(other.startswith(name + ".") for other in _LOCAL)

    def get_source(self, name):
        return _LOCAL[name]


for _name in [name for name in _sys.modules if name in _LOCAL]:
    del _sys.modules[_name]
_sys.meta_path.insert(0, _Local())
{also}

'''


def with_local_modules(code: str, folder: Path, title: str) -> str:
    """The source together with the modules that it imports from its folder or its package.

    Unchanged if there are none. Raises `BadSource`.
    """
    root, package = _package(code, folder)
    found = local_modules(code, [folder, root], package)
    if not found:
        return code
    entries = "".join(f"    {name!r}: {_literal(text)},\n" for name, text in sorted(found.items()))
    future, rest = _future(code)
    also = [f"__package__ = {package!r}"] if _upwards(code) else []
    if any(offline_models.imports_transformers(text) for text in found.values()):
        also.append("import transformers  # a local module needs it")
    head = _HEAD.format(
        title=title, names=", ".join(sorted(found)), future=future, entries=entries, also="\n".join(also)
    )
    return head + rest


def local_modules(code: str, roots: list[Path], package: str = "") -> dict[str, str]:
    """The modules below `roots` that a source imports, directly or indirectly: texts by name.

    `package` is the package that the source belongs to.
    """
    found: dict[str, str] = {}
    todo = [(code, package)]
    total = 0
    while todo:
        text, inside = todo.pop()
        for wanted in _imported(text, inside):
            for name in _with_packages(wanted):
                file = None if name in found else module_file(name, roots)
                if file is None:
                    continue
                found[name] = read_source(file, f"it imports {file}, which")
                total += len(found[name])
                if total > MAX_LOCAL:
                    raise BadSource(f"the local modules that it imports have more than {MAX_LOCAL >> 20} MB")
                todo.append((found[name], name if file.name == "__init__.py" else name.rpartition(".")[0]))
    # A folder without __init__.py is a package too.
    for name in list(found):
        while (name := name.rpartition(".")[0]) and name not in found:
            found[name] = ""
    return found


def module_file(name: str, roots: list[Path]) -> Path | None:
    """The file of a module below one of `roots`; None if there is none, or if the name is never local."""
    if name.partition(".")[0] in _NEVER_LOCAL:
        return None
    for root in roots:
        base = root.joinpath(*name.split("."))
        for file in (base / "__init__.py", base.with_name(f"{base.name}.py")):
            if file.is_file():
                return file
    return None


def _package(code: str, folder: Path) -> tuple[Path, str]:
    """The folder above the top-level package that a source belongs to, and the source's package name."""
    root, names = folder.resolve(), list[str]()
    while root.parent != root and ((root / "__init__.py").is_file() or len(names) < _upwards(code)):
        names.insert(0, root.name)
        root = root.parent
    return root, ".".join(names)


def _upwards(code: str) -> int:
    """The maximum level (number of dots) of its relative imports."""
    return max(
        (node.level for node in ast.walk(parse_module(code)) if isinstance(node, ast.ImportFrom)), default=0
    )


def _with_packages(name: str) -> Iterator[str]:
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def _imported(code: str, package: str) -> Iterator[str]:
    """Every imported name that may be a module, for a source inside `package`."""
    for node in ast.walk(parse_module(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".") if package else []
            above = parts[: len(parts) - (node.level - 1)] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def read_source(file: Path, subject: str) -> str:
    """The text of a source that parses. Raises `BadSource`, with the `subject` of its sentence."""
    try:
        text = file.read_bytes().decode("utf-8").removeprefix("\ufeff")
        parse_module(text)
    except OSError as error:
        raise BadSource(f"{subject} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise BadSource(f"{subject} is not UTF-8") from None
    except SyntaxError as error:
        line = f" (line {error.lineno})" if error.lineno else ""
        raise BadSource(f"{subject} does not parse: {error.msg}{line}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadSource(f"{subject} does not parse: {error}") from None
    return text


def _literal(text: str) -> str:
    """A readable string literal, if possible."""
    raw = f"r'''{text}'''"
    try:
        same = "\r" not in text and ast.literal_eval(raw) == text
    except (SyntaxError, ValueError):
        same = False
    return raw if same else repr(text)


def _future(code: str) -> tuple[str, str]:
    """Its `from __future__ import …` lines, which must come first, and the rest."""
    lines, found = code.splitlines(keepends=True), []
    for node in parse_module(code).body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            found.append(f"{ast.unparse(node)}\n")
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = "\n"
    return "".join(found), "".join(lines)
