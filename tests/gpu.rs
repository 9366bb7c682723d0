//! GPUs: what NVIDIA's library, `nvidia-smi` and the kernel's display drivers say stands in probe and records. There is no GPU in these
//! tests: `gpu/fake_nvml.c` is built by the C compiler that builds everything else, and a script is `nvidia-smi`. Companion and agent are
//! the real ones.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/held.rs"]
mod held;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[path = "gpu/bench.rs"]
mod bench;
#[path = "gpu/driver.rs"]
mod driver;
#[path = "gpu/drm.rs"]
mod drm;
#[path = "gpu/energy.rs"]
mod energy;
#[path = "gpu/nvml.rs"]
mod nvml;
#[path = "gpu/smi.rs"]
mod smi;
