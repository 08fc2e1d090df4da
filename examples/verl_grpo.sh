#!/usr/bin/env bash
# GRPO with verl. Before it:
#   kernelmill problems import mine=data/problems --into data/mine
#   kernelmill problems export data/mine --format verl -o outputs/rl
#   kernelmill serve                          # where the GPU is that times
set -euo pipefail

MODEL=${MODEL:-Qwen/Qwen3-4B}
DATA=${DATA:-outputs/rl/kernel_bench_triton_verl.parquet}
GPUS=${GPUS:-8}
export KERNEL_REWARD_URL=${KERNEL_REWARD_URL:-http://127.0.0.1:18188}

python3 -m verl.trainer.main_ppo \
  algorithm.adv_estimator=grpo \
  algorithm.use_kl_in_reward=False \
  data.train_files="$DATA" \
  data.val_files="$DATA" \
  data.train_batch_size=32 \
  data.max_prompt_length=4096 \
  data.max_response_length=8192 \
  data.filter_overlong_prompts=True \
  actor_rollout_ref.model.path="$MODEL" \
  actor_rollout_ref.actor.optim.lr=1e-6 \
  actor_rollout_ref.actor.ppo_mini_batch_size=32 \
  actor_rollout_ref.actor.use_dynamic_bsz=True \
  actor_rollout_ref.rollout.name=vllm \
  actor_rollout_ref.rollout.n=8 \
  actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \
  reward.custom_reward_function.path=pkg://kernelmill.rl.verl \
  reward.custom_reward_function.name=compute_score_async \
  reward.reward_manager.name=naive \
  trainer.logger='["console"]' \
  trainer.project_name=kernelmill \
  trainer.experiment_name=grpo \
  trainer.n_gpus_per_node="$GPUS" \
  trainer.nnodes=1 \
  trainer.save_freq=20 \
  trainer.total_epochs=5 \
  "$@"
