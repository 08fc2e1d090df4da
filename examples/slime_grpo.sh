#!/usr/bin/env bash
# GRPO with slime, called from a checkout of slime, in its container. Before it, where kernelmill is installed:
#   kernelmill problems import mine=data/problems --into data/mine
#   kernelmill problems export data/mine --format slime -o outputs/rl
#   kernelmill serve                          # where the GPU is that times
# In slime's container `pip install --no-deps kernelmill` is enough.
set -euo pipefail

MODEL=${MODEL:-Qwen3-4B}                    # as `hf download` leaves it
MEGATRON=${MEGATRON:-Qwen3-4B_torch_dist}   # the same, converted by slime's tools/convert_hf_to_torch_dist.py
MEGATRON_LM=${MEGATRON_LM:?the checkout of Megatron-LM that slime runs with}
DATA=${DATA:-outputs/rl/kernel_bench_triton_levels_1_2_3.jsonl}  # all_levels with KernelBench, which has four
GPUS=${GPUS:-8}
source scripts/models/qwen3-4B.sh           # MODEL_ARGS

TASK_ARGS=(
  --prompt-data "$DATA"
  --input-key prompt
  --label-key label
  --metadata-key extra_info
  --apply-chat-template
  --rollout-shuffle
  --custom-rm-path kernelmill.rl.slime.reward
  --custom-reward-post-process-path kernelmill.rl.slime.post_process_rewards
  --rm-url "${KERNEL_REWARD_URL:-http://127.0.0.1:18188}"
)
# Two turns, the second after the verdict's feedback: add
#   --custom-generate-function-path kernelmill.rl.slime.generate

ray start --head --num-gpus "$GPUS" --disable-usage-stats
ray job submit --address=http://127.0.0.1:8265 \
  --runtime-env-json='{"env_vars": {"PYTHONPATH": "'"$MEGATRON_LM"'", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}}' \
  -- python3 train.py \
  --actor-num-nodes 1 \
  --actor-num-gpus-per-node "$GPUS" \
  --colocate \
  "${MODEL_ARGS[@]}" \
  --hf-checkpoint "$MODEL" \
  --ref-load "$MEGATRON" \
  --load outputs/slime \
  --save outputs/slime \
  --save-interval 20 \
  "${TASK_ARGS[@]}" \
  --num-rollout 200 \
  --rollout-batch-size 32 \
  --n-samples-per-prompt 8 \
  --rollout-max-response-len 8192 \
  --rollout-temperature 1 \
  --global-batch-size 256 \
  --balance-data \
  --advantage-estimator grpo \
  --eps-clip 0.2 \
  --eps-clip-high 0.28 \
  --optimizer adam \
  --lr 1e-6 \
  --lr-decay-style constant \
  --tensor-model-parallel-size 2 \
  --sequence-parallel \
  --recompute-granularity full \
  --recompute-method uniform \
  --recompute-num-layers 1 \
  --use-dynamic-batch-size \
  --max-tokens-per-gpu 9216 \
  --rollout-num-gpus-per-engine 2 \
  --sglang-mem-fraction-static 0.7 \
  --attention-dropout 0.0 \
  --hidden-dropout 0.0 \
  --attention-backend flash
