//! What strangers give: results directories that an attacker sealed, and campaigns whose every name is odd. Nothing steers the terminal, nothing
//! is followed or waited for, nothing is written elsewhere, and what runs sees exactly the bytes that were written.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[path = "hostile/files.rs"]
mod files;
#[path = "hostile/keeper.rs"]
mod keeper;
#[path = "hostile/stranger.rs"]
mod stranger;
#[path = "hostile/texts.rs"]
mod texts;
#[path = "hostile/words.rs"]
mod words;
