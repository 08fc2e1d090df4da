"""GRPO with TRL: a model writes Triton kernels, and `kernelmill serve` says what each is worth.

    kernelmill problems import mine=data/problems --into data/mine      # or KernelBench, or problems of your own
    kernelmill problems export data/mine --format trl -o outputs/rl
    kernelmill serve --device cpu                                       # in another terminal; on a GPU it also times
    python examples/trl_grpo.py --model Qwen/Qwen3-0.6B --data outputs/rl/kernel_bench_triton_trl.jsonl

KERNEL_REWARD_URL names a service elsewhere, KERNEL_REWARD_NAME another reward. Needs `pip install 'kernelmill[rl-trl]'`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from kernelmill.rl.trl import reward


def arguments() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    made.add_argument("--model", required=True, help="a name on the Hub, or a folder")
    made.add_argument(
        "--data", required=True, type=Path, help="rows of `kernelmill problems export --format trl`"
    )
    made.add_argument("--output", default="outputs/grpo", help="where the trained model goes")
    made.add_argument("--steps", type=int, default=200)
    made.add_argument("--generations", type=int, default=8, help="completions of each prompt")
    made.add_argument("--max-completion-length", type=int, default=8192)
    made.add_argument("--learning-rate", type=float, default=1e-6)
    made.add_argument("--cpu", action="store_true", help="train on the CPU: for a try with a tiny model")
    return made.parse_args()


def main() -> None:
    given = arguments()
    rows = Dataset.from_list([json.loads(line) for line in given.data.read_text().splitlines()])
    config = GRPOConfig(
        output_dir=given.output,
        max_steps=given.steps,
        per_device_train_batch_size=given.generations,
        num_generations=given.generations,
        max_completion_length=given.max_completion_length,
        learning_rate=given.learning_rate,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=given.cpu,
        bf16=not given.cpu,
        dataloader_pin_memory=not given.cpu,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(given.model),
        processing_class=AutoTokenizer.from_pretrained(given.model),
        reward_funcs=reward,
        args=config,
        train_dataset=rows,
    )
    trainer.train()
    trainer.save_model(given.output)
    for step in trainer.state.log_history:
        if "reward" in step:
            print(f"step {step['step']}: reward {step['reward']:.3f}, masked {step['kernelmill/masked']:.2f}")


if __name__ == "__main__":
    main()
