//! Backend `llama-bench`: what the tool prints is understood, whatever becomes of it, and a campaign drives it.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;
#[path = "support/llama.rs"]
mod llama;
#[path = "support/shared.rs"]
mod shared;

#[path = "llama_bench/campaign.rs"]
mod campaign;
#[path = "llama_bench/real.rs"]
mod real;
#[path = "llama_bench/recorded.rs"]
mod recorded;
