//! Architectures that there is an agent for: which one a device needs, and whether a file is one of it. Pure: text and bytes in, words out.

use std::fmt;

/// What agents are built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Architecture {
    X86_64,
    Aarch64,
    /// ARMv7 with a hardware floating point unit (hard-float).
    Armv7,
    /// RISC-V with the extensions of a general Linux distribution.
    Riscv64,
}

/// Width of the programs that a device's system consists of, as `getconf LONG_BIT` tells it there: a 64-bit kernel may carry 32-bit ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Userland {
    Bits32,
    Bits64,
}

impl Userland {
    /// From the output of `getconf LONG_BIT`; `None` for anything else, such as that of a device without `getconf`.
    #[must_use]
    pub fn of_long_bit(said: &str) -> Option<Userland> {
        match said.trim() {
            "32" => Some(Userland::Bits32),
            "64" => Some(Userland::Bits64),
            _ => None,
        }
    }
}

impl Architecture {
    pub const ALL: [Architecture; 4] = [Architecture::X86_64, Architecture::Aarch64, Architecture::Armv7, Architecture::Riscv64];

    /// The one for a device, from what `uname -m` says there and the width of its programs, if that is known; `None` if there is no agent
    /// for it.
    ///
    /// The programs decide where a 64-bit Arm kernel runs 32-bit ones: what `builtin` measures is then what a program of that system gets.
    #[must_use]
    pub fn of_machine(uname_m: &str, userland: Option<Userland>) -> Option<Architecture> {
        let narrow = userland == Some(Userland::Bits32);
        match uname_m.trim() {
            "x86_64" | "amd64" if !narrow => Some(Architecture::X86_64),
            "aarch64" | "arm64" if !narrow => Some(Architecture::Aarch64),
            // `armv8l` is what a 64-bit kernel calls itself to a 32-bit program.
            "aarch64" | "arm64" | "armv7l" | "armv8l" => Some(Architecture::Armv7),
            "riscv64" if !narrow => Some(Architecture::Riscv64),
            _ => None,
        }
    }

    /// The one that this controller runs on; `None` if there is no agent for it.
    #[must_use]
    pub fn of_this_machine() -> Option<Architecture> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Architecture::X86_64),
            "aarch64" => Some(Architecture::Aarch64),
            "arm" => Some(Architecture::Armv7),
            "riscv64" => Some(Architecture::Riscv64),
            _ => None,
        }
    }

    /// The target that its agent is built for; part of the agent's file name.
    #[must_use]
    pub fn triple(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64-unknown-linux-gnu",
            Architecture::Aarch64 => "aarch64-unknown-linux-gnu",
            Architecture::Armv7 => "armv7-unknown-linux-gnueabihf",
            Architecture::Riscv64 => "riscv64gc-unknown-linux-gnu",
        }
    }

    /// `e_machine` and `EI_CLASS` of its executables.
    fn elf(self) -> (u16, u8) {
        match self {
            Architecture::X86_64 => (62, 2),
            Architecture::Aarch64 => (183, 2),
            Architecture::Armv7 => (40, 1),
            Architecture::Riscv64 => (243, 2),
        }
    }

    /// What is wrong with `file` as a whole executable of this architecture, as the rest of a sentence; `None` if nothing is.
    ///
    /// The section headers of an agent are the last thing in its file, so that one that was cut anywhere lacks some of them.
    #[must_use]
    pub fn fault_of(self, file: &[u8]) -> Option<String> {
        if file.is_empty() {
            return Some("is empty".into());
        }
        if !file.starts_with(b"\x7fELF") {
            return Some("is no ELF executable".into());
        }
        // EI_CLASS tells how wide the fields are, EI_DATA 1 that they are little-endian.
        let (Some(&class @ (1 | 2)), Some(1), Some(machine)) = (file.get(4), file.get(5), number(file, 18, 2)) else {
            return Some("is no whole little-endian ELF executable".into());
        };
        let (own_machine, own_class) = self.elf();
        if (machine, class) != (own_machine.into(), own_class) {
            let of = Architecture::ALL.into_iter().find(|a| (u64::from(a.elf().0), a.elf().1) == (machine, class));
            let of = of.map_or_else(|| format!("ELF machine {machine}"), |a| a.to_string());
            return Some(format!("is for {of}, not for {self}"));
        }
        // e_shoff, e_shentsize, e_shnum.
        let (offset, size, count) = if class == 2 {
            (number(file, 40, 8), number(file, 58, 2), number(file, 60, 2))
        } else {
            (number(file, 32, 4), number(file, 46, 2), number(file, 48, 2))
        };
        let end = offset.zip(size).zip(count).and_then(|((offset, size), count)| offset.checked_add(size * count));
        match end {
            Some(end) if end <= file.len() as u64 => None,
            Some(end) => Some(format!("is cut: {} bytes of at least {end}", file.len())),
            None => Some(format!("is cut: {} bytes", file.len())),
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Architecture::X86_64 => "x86_64",
            Architecture::Aarch64 => "aarch64",
            Architecture::Armv7 => "armv7",
            Architecture::Riscv64 => "riscv64",
        })
    }
}

/// A little-endian number of `width` bytes; `None` if the file ends before it does.
fn number(file: &[u8], offset: usize, width: usize) -> Option<u64> {
    let bytes = file.get(offset..offset + width)?;
    Some(bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The smallest file that looks like a whole executable of an architecture: its header, and one section header behind it.
    pub fn executable(architecture: Architecture) -> Vec<u8> {
        let (machine, class) = architecture.elf();
        let mut file = vec![0; 128];
        file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        file[18..20].copy_from_slice(&machine.to_le_bytes());
        let (offset, size, count) = if class == 2 { (40, 58, 60) } else { (32, 46, 48) };
        (file[offset], file[size], file[count]) = (64, 64, 1);
        file
    }

    #[test]
    fn the_machine_decides_and_its_programs_where_they_are_narrower() {
        let (narrow, wide) = (Some(Userland::Bits32), Some(Userland::Bits64));
        for (machine, userland, expected) in [
            ("x86_64", None, Some(Architecture::X86_64)),
            ("x86_64\n", wide, Some(Architecture::X86_64)),
            ("aarch64", None, Some(Architecture::Aarch64)),
            ("aarch64", wide, Some(Architecture::Aarch64)),
            ("aarch64", narrow, Some(Architecture::Armv7)),
            ("armv7l", None, Some(Architecture::Armv7)),
            ("armv7l", narrow, Some(Architecture::Armv7)),
            ("armv8l", narrow, Some(Architecture::Armv7)),
            ("riscv64", wide, Some(Architecture::Riscv64)),
            // Nothing is built for these.
            ("x86_64", narrow, None),
            ("i686", narrow, None),
            ("armv6l", narrow, None),
            ("riscv64", narrow, None),
            ("mips", None, None),
            ("", None, None),
        ] {
            assert_eq!(Architecture::of_machine(machine, userland), expected, "{machine:?} {userland:?}");
        }
        assert_eq!(["32\n", "64", "", "sh: getconf: not found"].map(Userland::of_long_bit), [narrow, wide, None, None]);
    }

    #[test]
    fn a_file_that_can_not_run_there_says_why() {
        for architecture in Architecture::ALL {
            let whole = executable(architecture);
            assert_eq!(architecture.fault_of(&whole), None);
            for length in 0..whole.len() {
                assert!(architecture.fault_of(&whole[..length]).is_some(), "{architecture} cut to {length}");
            }
            assert_eq!(architecture.fault_of(&whole[..100]).as_deref(), Some("is cut: 100 bytes of at least 128"));
            assert_eq!(architecture.fault_of(b"").as_deref(), Some("is empty"));
            assert_eq!(architecture.fault_of(b"#!/bin/sh\nexit 0\n").as_deref(), Some("is no ELF executable"));
        }
        let other = executable(Architecture::Riscv64);
        assert_eq!(Architecture::Aarch64.fault_of(&other).as_deref(), Some("is for riscv64, not for aarch64"));
        let mut unknown = other;
        unknown[18] = 8;
        assert_eq!(Architecture::Aarch64.fault_of(&unknown).as_deref(), Some("is for ELF machine 8, not for aarch64"));
    }
}
