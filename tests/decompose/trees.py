"""A small decomposed model, written by hand: two levels, two linear layers of one shape, a tied weight, a tuple in the output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1)
        self.bn = nn.BatchNorm2d(width)
        self.fc1 = nn.Linear(width, width)
        self.fc2 = nn.Linear(width, width)
        self.head = nn.Linear(width, width)
        self.head.weight = self.fc1.weight
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        h = F.leaky_relu(self.bn(self.conv(x)), 0.01)
        p = h.mean((2, 3))
        y = self.fc2(self.fc1(p)) + p
        return self.head(y), (y, p)


def get_inputs():
    return [torch.randn(4, 3, 6, 6)]


def get_init_inputs():
    return [8]
"""


def problem(init: str, forward: str, inputs: str, arguments: str = "", given: str = "") -> str:
    """A self-contained file. `inputs` is what get_inputs returns, `arguments` what __init__ takes and `given` what it gets."""
    names = ", ".join(f"x{i}" for i in range(inputs.count("torch.r")))
    body = f"        {init}\n" if init else ""
    return f'''"""One part of the model."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self{", " + arguments if arguments else ""}):
        super().__init__()
{body}
    def forward(self, {names}):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{given}]


def run_tests():
    print(Model(*get_init_inputs())(*get_inputs()).shape)


if __name__ == "__main__":
    run_tests()
'''


MAPS = "torch.randn(4, 8, 6, 6)"
ROWS = "torch.randn(4, 8)"
IMAGE = "torch.randn(4, 3, 6, 6)"
CONV = "self.conv = nn.Conv2d(inner, outer, 3, padding=1)"

LEVELS = {
    "level_0_kernel/conv2d_3x8_k3_fp32.py": problem(CONV, "self.conv(x0)", IMAGE, "inner, outer", "3, 8"),
    "level_0_kernel/batchnorm2d_8_fp32.py": problem(
        "self.norm = nn.BatchNorm2d(width, eps=1e-5)", "self.norm(x0)", MAPS, "width", "8"
    ),
    "level_0_kernel/leaky_relu_fp32.py": problem("", "F.leaky_relu(x0, 0.01)", MAPS),
    "level_0_kernel/mean_fp32.py": problem("", "x0.mean((2, 3))", MAPS),
    "level_0_kernel/linear_8x8_fp32.py": problem(
        "self.linear = nn.Linear(inner, outer)", "self.linear(x0)", ROWS, "inner, outer", "8, 8"
    ),
    "level_0_kernel/add_fp32.py": problem("", "x0 + x1", f"{ROWS}, {ROWS}"),
    "level_1_fusion/conv_norm_act_fp32.py": problem(
        "self.conv = nn.Conv2d(3, 8, 3, padding=1)\n        self.norm = nn.BatchNorm2d(8)",
        "F.leaky_relu(self.norm(self.conv(x0)), 0.01)",
        IMAGE,
    ),
    "level_1_fusion/residual_mlp_fp32.py": problem(
        "self.one = nn.Linear(8, 8)\n        self.two = nn.Linear(8, 8)", "self.two(self.one(x0)) + x0", ROWS
    ),
    "level_3_model/net.py": SOURCE,
}


def parent(package: str, children: dict[str, tuple[str, str]], forward: str, head: str = "") -> str:
    """A refactored file: `children` are attribute: (file, arguments)."""
    files = dict.fromkeys(file for file, _ in children.values())
    imports = "\n".join(f"from {package}.{file} import Model as {_alias(file)}" for file in files)
    made = "\n".join(
        f"        self.{name} = {_alias(file)}({args})" for name, (file, args) in children.items()
    )
    lines = "\n".join(f"        {line}" for line in forward.strip().splitlines())
    return f'''"""The parent, made of its children."""

{head}import torch.nn as nn

{imports}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{made}

    def forward(self, x):
{lines}
'''


def _alias(file: str) -> str:
    return "".join(part.capitalize() for part in file.split("_"))


CONV_FILE, NORM_FILE, LINEAR_FILE = "conv2d_3x8_k3_fp32", "batchnorm2d_8_fp32", "linear_8x8_fp32"
HEAD = (
    "import sys\nfrom pathlib import Path\n\nsys.path.insert(0, str(Path(__file__).resolve().parents[1]))\n\n"
)
TESTS = """

def run_tests():
    import torch

    print([part.shape for part in torch.utils._pytree.tree_leaves(Model()(torch.randn(4, 3, 6, 6)))])


if __name__ == "__main__":
    run_tests()
"""
STEPS: dict[str, tuple[str, str, dict[str, str]]] = {
    "step_1_net": (
        "net",
        parent(
            "children",
            {
                "block": ("conv_norm_act_fp32", ""),
                "pool": ("mean_fp32", ""),
                "mlp": ("residual_mlp_fp32", ""),
                "head": (LINEAR_FILE, "8, 8"),
            },
            "p = self.pool(self.block(x))\ny = self.mlp(p)\nreturn self.head(y), (y, p)",
        ),
        {
            "block.conv.weight": "conv.weight", "block.conv.bias": "conv.bias",
            "block.norm.weight": "bn.weight", "block.norm.bias": "bn.bias",
            "block.norm.running_mean": "bn.running_mean", "block.norm.running_var": "bn.running_var",
            "mlp.one.weight": "fc1.weight", "mlp.one.bias": "fc1.bias",
            "mlp.two.weight": "fc2.weight", "mlp.two.bias": "fc2.bias",
            "head.linear.weight": "head.weight", "head.linear.bias": "head.bias",
        },
    ),
    "step_2_conv_norm_act": (
        "conv_norm_act_fp32",
        parent(
            "children",
            {"conv": (CONV_FILE, "3, 8"), "norm": (NORM_FILE, "8"), "act": ("leaky_relu_fp32", "")},
            "x = self.conv(x)\nx = self.norm(x)\nreturn self.act(x)",
        ),
        {
            "conv.conv.weight": "conv.weight", "conv.conv.bias": "conv.bias",
            "norm.norm.weight": "norm.weight", "norm.norm.bias": "norm.bias",
            "norm.norm.running_mean": "norm.running_mean", "norm.norm.running_var": "norm.running_var",
        },
    ),
    "step_3_residual_mlp": (
        "residual_mlp_fp32",
        parent(
            "children",
            {"one": (LINEAR_FILE, "8, 8"), "two": (LINEAR_FILE, "8, 8"), "add": ("add_fp32", "")},
            "y = self.one(x)\ny = self.two(y)\nreturn self.add(y, x)",
        ),
        {
            "one.linear.weight": "one.weight", "one.linear.bias": "one.bias",
            "two.linear.weight": "two.weight", "two.linear.bias": "two.bias",
        },
    ),
}  # fmt: skip
COMPOSITION = parent(
    "level_0_kernel",
    {
        "conv": (CONV_FILE, "3, 8"),
        "norm": (NORM_FILE, "8"),
        "act": ("leaky_relu_fp32", ""),
        "pool": ("mean_fp32", ""),
        "one": (LINEAR_FILE, "8, 8"),
        "two": (LINEAR_FILE, "8, 8"),
        "add": ("add_fp32", ""),
        "head": (LINEAR_FILE, "8, 8"),
    },
    "p = self.pool(self.act(self.norm(self.conv(x))))\n"
    "y = self.add(self.two(self.one(p)), p)\n"
    "return self.head(y), (y, p)",
    HEAD,
) + TESTS  # fmt: skip
COMPOSITION_MAP = {
    "conv.conv.weight": "conv.weight", "conv.conv.bias": "conv.bias",
    "norm.norm.weight": "bn.weight", "norm.norm.bias": "bn.bias",
    "norm.norm.running_mean": "bn.running_mean", "norm.norm.running_var": "bn.running_var",
    "one.linear.weight": "fc1.weight", "one.linear.bias": "fc1.bias",
    "two.linear.weight": "fc2.weight", "two.linear.bias": "fc2.bias",
    "head.linear.weight": "fc1.weight", "head.linear.bias": "head.bias",
}  # fmt: skip
CHILDREN = {
    "net": ["conv_norm_act_fp32", "mean_fp32", "residual_mlp_fp32", LINEAR_FILE],
    "conv_norm_act_fp32": [CONV_FILE, NORM_FILE, "leaky_relu_fp32"],
    "residual_mlp_fp32": [LINEAR_FILE, "add_fp32"],
}
IN, MID, ROW = [4, 3, 6, 6], [4, 8, 6, 6], [4, 8]
SHAPES = {
    "net": ([IN], [ROW, ROW, ROW]),
    "conv_norm_act_fp32": ([IN], [MID]),
    "residual_mlp_fp32": ([ROW], [ROW]),
    CONV_FILE: ([IN], [MID]),
    NORM_FILE: ([MID], [MID]),
    "leaky_relu_fp32": ([MID], [MID]),
    "mean_fp32": ([MID], [ROW]),
    LINEAR_FILE: ([ROW], [ROW]),
    "add_fp32": ([ROW, ROW], [ROW]),
}
NAMES = {"level_0_kernel": "kernel", "level_1_fusion": "fusion", "level_3_model": "model"}


def write_tree(folder: Path) -> Path:
    """The good tree."""
    for path, text in LEVELS.items():
        write(folder / path, text)
    for step, (node, refactored, weights) in STEPS.items():
        base = folder / "steps" / step
        write(base / "original.py", next(text for path, text in LEVELS.items() if Path(path).stem == node))
        write(base / "refactored.py", refactored)
        write(base / "weight_map.json", json.dumps({"refactored_to_original": weights}))
        for child in CHILDREN[node]:
            text = next(text for path, text in LEVELS.items() if Path(path).stem == child)
            write(base / "children" / f"{child}.py", text)
    write(folder / "verification/original.py", SOURCE)
    write(folder / "verification/composition_test.py", COMPOSITION)
    write(folder / "verification/weight_map.json", json.dumps({"refactored_to_original": COMPOSITION_MAP}))
    write(folder / "decomposition_tree.json", json.dumps(tree(), indent=2))
    return folder


def tree() -> dict[str, Any]:
    steps = {node: f"steps/{step}" for step, (node, _, _) in STEPS.items()}
    nodes = {}
    for path in LEVELS:
        name = Path(path).stem
        inputs, outputs = SHAPES[name]
        nodes[name] = {
            "id": name,
            "name": name,
            "level": NAMES[path.partition("/")[0]],
            "path": path,
            "children": CHILDREN.get(name, []),
            "input_shapes": inputs,
            "output_shapes": outputs,
            "input_dtypes": ["float32"] * len(inputs),
            "output_dtypes": ["float32"] * len(outputs),
            "instance_count": COMPOSITION.count(f"= {_alias(name)}(") or 1,
            "step": steps.get(name),
        }
    metadata = {"model_name": "net", "root": "net", "verification_status": "NOT_RUN"}
    return {"metadata": metadata, "nodes": nodes, "data_flow": []}


def one_step(
    folder: Path,
    original: str,
    kernels: dict[str, str],
    forward: str,
    weights: dict[str, str],
    size: list[int] | None = None,
    dtype: str = "float32",
) -> Path:
    """A fusion as the root, its kernels, one step. Everything takes one tensor and gives one, of one size (4x8) and type."""
    size = size or [4, 8]
    shape = {
        "input_shapes": [size],
        "output_shapes": [size],
        "input_dtypes": [dtype],
        "output_dtypes": [dtype],
    }
    nodes: dict[str, Any] = {
        "root": {"id": "root", "level": "fusion", "path": "level_1_fusion/root.py", "children": list(kernels), "step": "steps/step_1_root", **shape}
    }  # fmt: skip
    write(folder / "level_1_fusion/root.py", original)
    imports = "\n".join(f"from PACKAGE.{name} import Model as {name.title()}" for name in kernels)
    made = "\n".join(f"        self.{name} = {name.title()}()" for name in kernels)
    code = f"import torch.nn as nn\n\n{imports}\n\n\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n{made}\n\n    def forward(self, x):\n        {forward}\n"
    head = "import sys\nfrom pathlib import Path\n\nsys.path.insert(0, str(Path(__file__).resolve().parents[1]))\n\n"
    for name, text in kernels.items():
        nodes[name] = {
            "id": name,
            "level": "kernel",
            "path": f"level_0_kernel/{name}.py",
            "children": [],
            **shape,
        }
        write(folder / f"level_0_kernel/{name}.py", text)
        write(folder / f"steps/step_1_root/children/{name}.py", text)
    write(folder / "steps/step_1_root/original.py", original)
    write(folder / "steps/step_1_root/refactored.py", code.replace("PACKAGE", "children"))
    write(folder / "verification/original.py", original)
    write(folder / "verification/composition_test.py", head + code.replace("PACKAGE", "level_0_kernel"))
    for where in ("steps/step_1_root", "verification"):
        write(folder / where / "weight_map.json", json.dumps({"refactored_to_original": weights}))
    write(folder / "decomposition_tree.json", json.dumps({"metadata": {"root": "root"}, "nodes": nodes}))
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def edit(folder: Path, path: str, old: str, new: str) -> None:
    """Change one file of the tree, and the copies of it among the children of steps."""
    name = Path(path).name
    copies = list((folder / "steps").glob(f"*/children/{name}")) if path.startswith("level_") else []
    for file in [folder / path, *copies]:
        text = file.read_text(encoding="utf-8")
        assert old in text, f"{file.name} has no {old!r}"
        file.write_text(text.replace(old, new), encoding="utf-8")


def edit_map(folder: Path, where: str, change: dict[str, str | None]) -> None:
    """Change entries of a weight map; None removes one."""
    file = folder / where / "weight_map.json"
    found = json.loads(file.read_text(encoding="utf-8"))
    for name, source in change.items():
        if source is None:
            del found["refactored_to_original"][name]
        else:
            found["refactored_to_original"][name] = source
    file.write_text(json.dumps(found), encoding="utf-8")
