//! Who else used the machine: real processes beside real runs. They need a CPU for some seconds; whatever else works here meanwhile, only
//! what these do is asked for.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[path = "load/burners.rs"]
mod burners;
#[path = "load/named.rs"]
mod named;
#[path = "load/repeated.rs"]
mod repeated;
