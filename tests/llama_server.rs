//! The `llama-server` backend: whole campaigns with llama.cpp's real server, and everything that is recorded of it.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;
#[path = "support/llama.rs"]
mod llama;
#[path = "support/shared.rs"]
mod shared;

#[path = "llama_server/campaign.rs"]
mod campaign;
#[path = "llama_server/reading.rs"]
mod reading;
#[path = "llama_server/recorded.rs"]
mod recorded;
