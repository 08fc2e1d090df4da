"""The tests at the end of emitted files."""

PART_TEST = '''

def run_tests():
    """Run it once, and see that what comes out has the shapes and types that it has inside the model."""
    model = Model(*get_init_inputs()).eval()
    with torch.no_grad():
        outputs = model(*get_inputs())
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    found = [(tuple(one.shape), one.dtype) for one in outputs]
    expected = EXPECTED
    assert found == expected, f"{found}, expected {expected}"
    print("PASS")


if __name__ == "__main__":
    run_tests()
'''
COMPOSITION_TEST = '''

def run_tests():
    """Give the source's weights to the kernels, and compare what comes out. At full size: `kernelmill prove` does more, with less memory."""
    import importlib.util
    import json

    import torch
    from torch.utils._pytree import tree_flatten

    here = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location("original", here / "original.py")
    original = importlib.util.module_from_spec(spec)
    sys.modules["original"] = original
    spec.loader.exec_module(original)

    def at(model, path):
        for name in path.split("."):
            model = model[int(name)] if name.isdigit() and not hasattr(model, name) else getattr(model, name)
        return model

    expected_model = original.Model(*original.get_init_inputs()).eval()
    found_model = Model().eval()
    names = json.loads((here / "weight_map.json").read_text())["refactored_to_original"]
    with torch.no_grad():
        for name, path in names.items():
            at(found_model, name).copy_(at(expected_model, path))
        inputs = original.get_inputs()
        copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in inputs]
        torch.manual_seed(0)
        expected = tree_flatten(expected_model(*inputs))[0]
        torch.manual_seed(0)
        found = tree_flatten(found_model(*copies))[0]
    assert len(expected) == len(found)
    for one, other in zip(expected, found):
        torch.testing.assert_close(one, other)
    print("PASS")


if __name__ == "__main__":
    run_tests()
'''
