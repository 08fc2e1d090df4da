"""What the reader of source text promises: the facts it states, and that it fails in one way only."""

from __future__ import annotations

import ast
import textwrap

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernelmill.errors import SourceError
from kernelmill.problems.definitions import Param
from kernelmill.problems.source import MAX_SOURCE_CHARS, ModuleSource, read_source
from tests.cost import calls_of


def read(code: str, entry_point: str | None = None) -> ModuleSource:
    return read_source(textwrap.dedent(code), entry_point)


ATTENTION = '''
    """Module docstring."""
    import math
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from torch.nn import LayerNorm

    def scale(x, n: int):
        # a comment
        return x / math.sqrt(n)

    class MLP(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d, bias=False))

        def forward(self, x):
            return self.net(x) + x

    class Unused(nn.Module):
        def forward(self, x):
            return torch.erf(x)

    class Model(nn.Module):
        """Attends.

        Then mixes.
        """

        def __init__(self, d: int, heads=4, *, causal: bool = True, **rest):
            super().__init__()
            self.norm = LayerNorm(d)
            self.w = nn.Parameter(torch.randn(d, d))
            self.mlp = MLP(d)
            self._build(d)

        def _build(self, d):
            self.out: nn.Module = torch.nn.Linear(d, d)

        def forward(self, x: torch.Tensor, mask=None, *more):
            "Says forward."
            q = self.norm(x) @ self.w.T
            q *= 2
            for _ in range(3):
                q = self.attend(q)
            if mask is not None:
                q = q + mask
            return self.out(self.mlp(q)).mean(dim=-1)

        def attend(self, q):
            return torch.softmax(scale(q, q.size(-1)), dim=-1) + F.relu(-q)

    def get_inputs():
        return [torch.rand(2, 3)]

    def get_init_inputs():
        return [3]
'''


def test_the_signature_docstrings_and_names_are_read_as_written() -> None:
    source = read(ATTENTION)
    assert source.entry_point == "Model"
    assert source.docstring == "Attends.\n\nThen mixes."
    assert source.forward_docstring == "Says forward."
    assert source.init_params == (
        Param("d", "positional", "int", None),
        Param("heads", "positional", None, "4"),
        Param("causal", "keyword", "bool", "True"),
        Param("rest", "**kwargs"),
    )
    assert source.forward_params == (
        Param("x", "positional", "torch.Tensor"),
        Param("mask", "positional", None, "None"),
        Param("more", "*args"),
    )
    assert source.classes == ("MLP", "Unused", "Model")
    assert source.functions == ("scale",)


def test_layers_come_from_the_classes_and_methods_that_building_reaches() -> None:
    layers = [(x.name, x.arguments, x.attribute, x.owner) for x in read(ATTENTION).layers]
    assert ("nn.LayerNorm", "d", "norm", "Model") in layers
    assert ("nn.Parameter", "torch.randn(d, d)", "w", "Model") in layers
    assert ("nn.Linear", "d, d", "out", "Model") in layers
    assert ("nn.Linear", "4 * d, d, bias=False", None, "MLP") in layers
    assert [name for name, *_ in layers].count("nn.Linear") == 3


def test_operations_come_from_everything_forward_reaches_and_from_nothing_else() -> None:
    operations = read(ATTENTION).operations
    assert operations["@"] == 1
    assert operations["-"] == 1  # of `-q`; the one of `dim=-1` is part of a number
    assert operations["+"] == 3  # in forward, in attend, in the MLP
    assert operations["*"] == 1  # the augmented assignment; `4 * d` is construction
    for name in ("torch.softmax", "F.relu", ".mean", "math.sqrt", "/", "-", ".T"):
        assert name in operations, name
    for name in ("torch.erf", "torch.randn", ".size", ".range", "range"):
        assert name not in operations, name


def test_code_lines_hold_statements_in_one_form_without_comments_docstrings_and_imports() -> None:
    lines = read(ATTENTION).code_lines
    assert "return x / math.sqrt(n)" in lines
    assert "def __init__(self, d: int, heads=4, *, causal: bool=True, **rest):" in lines
    assert "for _ in range(3):" in lines
    assert "q *= 2" in lines
    text = "\n".join(lines)
    for absent in ("import", "comment", "Attends", "Says forward", "docstring"):
        assert absent not in text
    assert (
        read("class Model:\n  x = ( 1,\n    'a' )").code_lines == read('class Model:\n  x=1,"a"').code_lines
    )


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("x.sum() > 0", True),
        ("(y := x * 2).any()", True),
        ("x.max().item() < self.limit", True),
        ("torch.isnan(x).any()", True),
        ("x.shape[0] > 1", False),
        ("x.size(0) == 1 and x.dim() == 3", False),
        ("len(x) > 2", False),
        ("mask is not None", False),
        ("self.training", False),
        ("isinstance(x, tuple)", False),
        ("flag", False),
        ("count > 3", False),
    ],
)
def test_an_if_depends_on_data_only_when_it_looks_at_values(test: str, expected: bool) -> None:
    code = f"""
        import torch
        class Model(torch.nn.Module):
            def forward(self, x, mask=None, flag=False, count: int = 0):
                if {test}:
                    return x
                return -x
    """
    assert read(code).has_data_dependent_ifs is expected


def test_dependence_on_data_follows_assignments_and_is_lost_through_shapes() -> None:
    body = """
        import torch
        class Model(torch.nn.Module):
            def forward(self, x):
                n, c = {value}
                return x if n > 3 else -x
    """
    assert read(body.format(value="x.shape")).has_data_dependent_ifs is False
    assert read(body.format(value="x.unbind()")).has_data_dependent_ifs is True


@pytest.mark.parametrize("loop", ["while True: pass", "for i in y: pass", "z = [i for i in y]"])
def test_loops_are_seen_in_forward_and_not_in_init(loop: str) -> None:
    code = "class Model(Module):\n def __init__(self, y):\n  {}\n def forward(self, x, y=()):\n  {}\n"
    assert read(code.format("pass", loop)).has_loops is True
    assert read(code.format(loop, "pass")).has_loops is False


def test_the_entry_point_is_the_only_module_nothing_else_uses() -> None:
    code = """
        from torch import nn
        class Block(nn.Module):
            def forward(self, x): return x
        class Loss(object): ...
        class Net(nn.Module):
            def __init__(self): self.block = Block()
        def build(): return Net()
    """
    assert read(code).entry_point == "Net"
    assert read(code, "Block").entry_point == "Block"


def test_a_forward_inherited_from_a_class_of_the_file_is_found() -> None:
    source = read("""
        import torch
        class Base(torch.nn.Module):
            def __init__(self, k): ...
            def forward(self, x): return self.inner(x)
        class Net(Base):
            def inner(self, y): return super().deep(y)
        class Sub(Net):
            def inner(self, y): return torch.cumsum(y, 0)
    """)
    assert source.entry_point == "Sub"
    assert [p.name for p in source.init_params + source.forward_params] == ["k", "x"]
    assert source.operations == {"torch.cumsum": 1}


def test_an_autograd_function_applied_in_forward_is_read() -> None:
    source = read("""
        import torch
        class Swish(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x * torch.sigmoid(x)
        class Net(torch.nn.Module):
            def forward(self, x): return Swish.apply(x)
    """)
    assert source.entry_point == "Net"
    assert source.operations == {"*": 1, "torch.sigmoid": 1}


@pytest.mark.parametrize(
    ("code", "entry_point", "says"),
    [
        ("class A(nn.Module): ...\nclass B(nn.Module): ...", None, "cannot tell which of A, B"),
        ("class A: ...", None, "no nn.Module subclass"),
        ("", None, "no nn.Module subclass"),
        ("class A(nn.Module): ...", "B", "defines no class 'B': it has A"),
        ("class A(:", None, "line 1"),
        ("x = 1\0", None, "does not parse"),
        ("\ud800", None, "does not parse"),
        ("#" * (MAX_SOURCE_CHARS + 1), None, "the limit is"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_says_why(code: str, entry_point: str | None, says: str) -> None:
    with pytest.raises(SourceError, match=says) as caught:
        read_source(code, entry_point)
    assert len(str(caught.value).splitlines()) == 1
    str(caught.value).encode()


DEEP = {
    "parentheses": "x = " + "(" * 5000 + ")" * 5000,
    "unary": "x = " + "-" * 90_000 + "1",
    "attributes": "class Model:\n def forward(self, x): return x" + ".a" * 90_000,
    "sum": "class Model:\n def forward(self, x): return " + "+".join(["x"] * 60_000),
    "calls": "x = " + "f(" * 150 + ")" * 150,
    "lambdas": "x = " + "lambda: " * 20_000 + "1",
    "elifs": "if a: pass\n" + "elif a: pass\n" * 20_000 + "class Model: pass",
    "indentation": "\n".join(" " * i + "if x:" for i in range(200)),
    "bases": "class M0(nn.Module): ...\n"
    + "".join(f"class M{i + 1}(M{i}, M{i}): ...\n" for i in range(3000)),
    "own base": "class Model(Model): ...",
    "big number": "class Model:\n x = 0x" + "f" * 9000,
    "statements": "x=1;" * 99_000,
}


def facts_or_error(code: str, entry_point: str | None) -> ModuleSource | str:
    """The facts, or the text of the one error that may come instead; any other exception escapes."""
    try:
        return read_source(code, entry_point)
    except SourceError as error:
        return str(error)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, id=name, marks=pytest.mark.heavy if name == "statements" else ())
        for name, code in DEEP.items()
    ],
)
def test_deep_and_huge_sources_end_in_facts_or_in_a_source_error(code: str) -> None:
    found: list[ModuleSource | str] = []
    # The bases of 3000 classes, each looked up in all before it, would be a hundred calls a letter.
    assert calls_of(lambda: found.append(facts_or_error(code, None))) < 40 * len(code) + 1000
    assert isinstance(found[0], ModuleSource) or len(found[0].splitlines()) == 1


FRAGMENTS = st.sampled_from([
    "class", "Model", "Net", "(nn.Module):", "\n", "\n ", "def", "forward", "__init__", "self", "x", ",", "*",
    "**", "=", ":", "(", ")", "[", "]", "{", "}", "lambda", "if", "else", "for", "in", "while", "return",
    "yield", "await", "async", "try:", "except:", "finally:", "with", "as", "match", "case", "_", "\t", "@",
    "+", "~", "not", "is", "None", "import", "from", "torch", ".", "F", "nn", "super()", "f'{x}'",
    "'\\ud800'", "b''", "0xff", "1j", "...", "\\", "#", "\0", "\r", "\f", "global", "del", "type",
])  # fmt: skip


@given(
    st.text() | st.lists(FRAGMENTS).map(" ".join) | st.lists(FRAGMENTS).map("".join), st.none() | st.text()
)
@example("class Model:\n '''\\ud800'''", None)
@example("class Model:\n def forward(*, x): f'\\ud800{x}'", None)
@example("class Model:\n def forward(): '\\d'", "Model")
@example("class Model(nn.Module):\n '\\N{DIGIT ONE}'\n def __init__(): ...", None)
@example("class Model:\n @staticmethod\n def forward(a, /, b=1): return a", None)
def test_arbitrary_text_gives_facts_that_can_be_written_or_a_source_error(
    code: str, entry: str | None
) -> None:
    found = facts_or_error(code, entry)
    written = msgspec.json.encode(found)
    assert msgspec.json.decode(written, type=ModuleSource | str) == found


def test_a_typical_file_costs_a_few_dozen_calls_for_each_node_of_its_tree() -> None:
    code = textwrap.dedent(ATTENTION)
    nodes = sum(1 for _ in ast.walk(ast.parse(code)))
    assert calls_of(lambda: read_source(code, None)) < 90 * nodes
