"""Test doubles: servers on loopback that replace the real ones, and generated inputs.

    fake_endpoint     an OpenAI-compatible endpoint that misbehaves on script
    fake_schema       its part that enforces `response_format`
    fake_hub          a Hugging Face Hub in memory; `fake_hub_http` and `fake_hub_repo` are its parts
    qwen_tokenizer    a tokenizer folder made from the embedded Qwen vocabulary
    example_rows      valid evals rows of any size
    disguises         rewrites of a problem, to test the search for copies

For tests and benchmarks only: no other package may import it.
"""
