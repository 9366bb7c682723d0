//! The checks: what each looks at. `docs/cli.md` has the same table, `docs/low-noise.md` names its rows.

/// What is known of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckEntry {
    /// As printed.
    pub name: &'static str,
    /// What is looked at.
    pub is: &'static str,
}

isotherm_wire::table! {
    /// One check.
    Check of CheckEntry {
        Reach {
            name: "reach",
            is: "the device is reached, its agent answers, no campaign holds it",
        }
        Companion {
            name: "companion",
            is: "where there is NVIDIA's driver, the companion that asks its library can be given to the device",
        }
        Quarantine {
            name: "quarantine",
            is: "no process of an earlier run is left that can't be ended",
        }
        Borrowed {
            name: "borrowed",
            is: "no setting is still borrowed by an earlier campaign",
        }
        Program {
            name: "program",
            is: "programs of the campaign, and the interpreters of its scripts, can be executed there",
        }
        Model {
            name: "model",
            is: "model files are there, or here if they are to be copied, and can be read; they are not hashed",
        }
        Input {
            name: "input",
            is: "patterns of `inputs` match files that can be read",
        }
        Disk {
            name: "disk",
            is: "space and a usable place for state, agent and results, and room for models that are to be copied",
        }
        Memory {
            name: "memory",
            is: "the largest model fits into 95 % of the memory that is available",
        }
        Cpus {
            name: "cpus",
            is: "the CPUs that `cpus` names may be used",
        }
        Prepare {
            name: "prepare",
            is: "each step of `prepare` is permitted, directly or by sudo, and the device has such a thing",
        }
        Logout {
            name: "logout",
            is: "nothing ends the night when the user logs out: logind's `KillUserProcesses`, lingering",
        }
        Timers {
            name: "timers",
            is: "no timer of systemd, or job of cron, that works a disk or a CPU is due before the campaign is through",
        }
        Packages {
            name: "packages",
            is: "no package manager or indexer is at work",
        }
        Temperature {
            name: "temperature",
            is: "distance to the temperature at which the kernel, or a Raspberry Pi's firmware, holds the clock back",
        }
        Throttling {
            name: "throttling",
            is: "the Raspberry Pi's firmware holds nothing back at this moment",
        }
        PowerSource {
            name: "power_source",
            is: "mains, and no battery",
        }
    }
}
