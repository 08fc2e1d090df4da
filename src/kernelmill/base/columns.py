"""The columns of our row formats: each is declared here once, with its type and its meaning.

`publish` takes the Arrow type and the description on the dataset card from here, and docs/commands.md its
lists. Rows may have further columns, which are kept and whose types are inferred. What stages read of a row
is in `rows`.

A type is `text`, `int`, `float`, `bool`, `difficulty` (low, medium or high), `json` (objects whose keys
differ from row to row, published as JSON text), `[type]` for a list, or `{name: type}` for an object.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Rule = Literal["required", "always", "fixed", "inferred"]
"""How a column is published. `required`: every row must have it. `always`: it is published even if no
row has it, as nulls. `fixed`: with the declared type, if rows have it. `inferred`: with the type of its values; if
all are null, with the declared type, because other runs have values there."""
CONTAMINATED = "contaminated_"
"""Followed by the name of a benchmark."""


class Column(NamedTuple):
    name: str
    type: Any
    meaning: str
    rule: Rule = "inferred"


_MESSAGE = {"role": "text", "content": "text"}
_ANSWER = {
    **_MESSAGE,
    "reasoning": "text",
}  # `reasoning` is null in a run without thoughts, but declared for all
_INFO = {"module_name": "text", "python_code": "text", "triton_code": "text"}

EVALS = (
    Column("example_id", "int", "number of the task in the source; several rows may share it", "required"),
    Column("prompt", [_MESSAGE], "what the model was asked, as chat messages", "required"),
    Column("completion", [_ANSWER], "what it answered, as chat messages; the kernel stands in the assistant's message", "required"),
    Column("task", "text", "name of the task or environment", "always"),
    Column("reward", "float", "the reward of the answer (see Reward)", "required"),
    Column("generation_ms", "float", "milliseconds that generating took, as the producer recorded it", "always"),
    Column("scoring_ms", "float", "milliseconds that scoring took, as the producer recorded it", "always"),
    Column("total_ms", "float", "milliseconds in all, as the producer recorded it", "always"),
    Column("info", _INFO, "the module: its name, its PyTorch code, and a reference Triton version where the source has one", "required"),
    Column("answer", "text", "an answer, as the source has it", "always"),
    Column("speedup_reward", "float", "reward for speed, as the producer recorded it", "always"),
    Column("num_turns", "float", "turns of the conversation", "always"),
    Column("oai_tools", "text", "tools that the model was offered, or null", "always"),
)  # fmt: skip
SPECIFICATION = (
    Column("prompt", "text", "the task specification, in words", "required"),
    Column("module_name", "text", "name of the module's class", "required"),
    Column("python_code", "text", "the PyTorch code of the module", "required"),
    Column("triton_code", "text", "a reference Triton version, as the source has it", "fixed"),
    Column("uuid", "int", "identifier of the module in the source"),
    Column("name", "text", "name of the problem in the source"),
    Column("level", "int", "level of the problem in the source"),
    Column("problem_id", "int", "number of the problem in the source"),
    Column("writer", "text", "who wrote the specification: llm and the model's name, or static (program analysis)"),
    Column("checked", "text", "what the specification was checked against"),
)  # fmt: skip
KERNELBOOK = (
    Column("python_code", "text", "the PyTorch code of the module", "required"),
    Column("entry_point", "text", "name of the module's class"),
    Column("module_name", "text", "name of the module's class, where `entry_point` is missing"),
    Column("original_triton_code", "text", "the output of torch's compiler for the module"),
    Column("triton_code", "text", "the same, made readable"),
    Column("repo_name", "text", "repository that the module comes from"),
    Column("synthetic", "bool", "whether the module was generated, not collected"),
    Column("uuid", "int", "identifier of the module"),
    Column("licenses", ["text"], "licences of the repository that the module comes from"),
    Column("stars", "int", "stars of the repository"),
    Column("sha", "text", "commit of the repository"),
    Column("repo_link", "text", "address of the repository"),
)
KERNELBENCH = (
    Column("code", "text", "the PyTorch code of the problem; `python_code` for a problem file", "required"),
    Column("level", "int", "level of the problem"),
    Column("problem_id", "int", "number of the problem in its level"),
    Column("name", "text", "name of the problem"),
)
ADDED = {
    "synthesize": (
        Column("verdict", "json", "the evaluator's whole verdict"),
        Column("reward_name", "text", "which of the verdict's rewards `reward` is"),
        Column("reward_masked", "bool", "whether there is no reward, because nobody could judge; `reward` is 0 then"),
        Column("rollout", "int", "number of the answer among those to the same task"),
        Column("writer", "text", "who wrote the answer: llm and the model's name, or inductor and the version of torch"),
        Column("prompt_version", "text", "hash of the templates that the prompt was made from"),
        Column("ended", "text", "why the conversation ended"),
        Column("finish_reason", "text", "why the answer ended, as the server said"),
        Column("tokens_in", "int", "tokens of the prompt, as the server counted them"),
        Column("tokens_out", "int", "tokens of the answer, as the server counted them"),
        Column("turns", "json", "every answer of the conversation with its verdict and reward"),
        Column("problem_name", "text", "name of the problem in the source"),
        Column("problem_level", "int", "level of the problem in the source"),
        Column("problem_id", "int", "number of the problem in the source"),
        Column("problem_uuid", "int", "identifier of the module in the source"),
        Column("extern", ["text"], "calls of torch's library that the kernels leave to it"),
        Column("captured_mode", "text", "eval where the module is random in training and was compiled as it is in evaluation"),
        Column("variant", "int", "which sizes of blocks the kernels have"),
        Column("benchmark", "bool", "true for a problem of a benchmark"),
    ),
    "rate": (
        Column("difficulty", "difficulty", "how hard the task is: low, medium or high (see Difficulty)", "fixed"),
        Column("evaluation_raw", "text", "what the rater answered, whole", "fixed"),
        Column("rater", "text", "who rated the difficulty: llm and the model's name, or static (program analysis)", "fixed"),
    ),
    "decontaminate": (
        Column(
            f"{CONTAMINATED}<benchmark>",
            {"problem": "text", "how": "text", "share": "float"},
            "the benchmark problem that the module is or resembles, or null (see Benchmarks)",
        ),
    ),
    "verify-kernelbook": (
        Column("verdict", "json", "the evaluator's whole verdict"),
        Column("truth", "text", "correct, incorrect, hack or inconclusive, by the verdict"),
        Column("restated", ["text"], "names of torch 2.5 that were restated for the kernel"),
    ),
}  # fmt: skip
"""The columns that each command adds at the end of a row."""
FORMATS = {
    "evals": (*EVALS, *(column for columns in ADDED.values() for column in columns)),
    "synthetic": SPECIFICATION,
    "KernelBook": KERNELBOOK,
    "KernelBench": KERNELBENCH,
}
"""All columns of each format; evals rows with every column that a command may add. `synthetic` is what
`publish` calls specifications."""


def pattern_of(name: str) -> str:
    """The name under which a column is declared: `contaminated_<benchmark>` for `contaminated_KernelBench`."""
    return f"{CONTAMINATED}<benchmark>" if name.startswith(CONTAMINATED) else name
