"""Small models to decompose, and trees as a worker gives them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NET = '''import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1   = nn.Conv2d(width, width, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + x)


class Model(nn.Module):
    """Two blocks between a stem and a head; oddly formatted, which nobody may change."""

    def __init__(self, width):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.first = Block(width)
        self.second = Block(width)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.second(self.first(self.stem(x)))
        return self.head(x.mean(dim=(2, 3)))


def get_inputs():
    return [torch.randn( 2, 3, 8, 8 )]


def get_init_inputs():
    return [4]
'''

KERNEL = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)


def get_inputs():
    return [torch.randn(4, 6)]


def get_init_inputs():
    return []
"""


def written(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def node(
    name: str, level: str, children: tuple[str, ...] = (), times: int = 1, **more: Any
) -> dict[str, Any]:
    folder = {
        "model": "level_3_model",
        "layer": "level_2_layer",
        "fusion": "level_1_fusion",
        "kernel": "level_0_kernel",
    }
    return {
        "id": name,
        "name": name,
        "level": level,
        "path": f"{folder[level]}/{name}.py",
        "children": list(dict.fromkeys(children)),
        "instances": [{"child": child, "source_path": ""} for child in children],
        "input_shapes": [[2, 3]],
        "output_shapes": [[2, 3], []],
        "input_dtypes": ["float32"],
        "output_dtypes": ["float32", "int64"],
        "instance_count": times,
        "operations": [name],
        "reason": "it is one",
        "source_path": "",
        "step": f"steps/step_1_{name}" if children else None,
        **more,
    }


def tree(*nodes: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """The first node is the root."""
    return {
        "metadata": {
            "source_file": "net.py",
            "source_level": 3,
            "model_name": "net",
            "timestamp": "2026-01-01T00:00:00+00:00",
            "total_components": len(nodes),
            "by_level": {},
            "unique_kernels": 1,
            "verification_status": "PASS",
            "root": nodes[0]["id"],
            "classification": {"level": nodes[0]["level"], "reason": "it is made of layers"},
            "capture": {"road": "fake", "notes": []},
            "assumptions": [],
            **metadata,
        },
        "nodes": {one["id"]: one for one in nodes},
        "data_flow": [],
    }


def worker_files(source: str, **metadata: Any) -> dict[str, str]:
    """The files of a source that is one kernel, not formatted."""
    return {
        "decomposition_tree.json": json.dumps(tree(node("gelu_fp32", "kernel"), **metadata)),
        "level_0_kernel/gelu_fp32.py": source.replace(" = ", "  =  ") + "x=1\n",
        "verification/original.py": source,
        "verification/composition_test.py": "x = [ 1 ]\n",
        "verification/weight_map.json": "{}",
    }
