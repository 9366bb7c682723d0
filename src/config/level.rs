//! What the tables of the vocabulary are made of: levels of the file, and their keys.

use super::shape::Shape;

/// A key of a level.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub name: &'static str,
    pub shape: Shape,
    /// One line of the reference.
    pub about: &'static str,
    /// What holds without the key, as written in a file; empty = nothing.
    pub default: &'static str,
    pub required: bool,
    /// Done by this build; else known by name, and refused.
    pub built: bool,
    /// Backends that have it; empty = all of them.
    pub on: &'static [&'static str],
    /// Says something without a value: `local:` is a transport.
    pub bare: bool,
}

impl Key {
    pub const fn default(mut self, default: &'static str) -> Key {
        self.default = default;
        self
    }

    pub const fn required(mut self) -> Key {
        self.required = true;
        self
    }

    pub const fn later(mut self) -> Key {
        self.built = false;
        self
    }

    pub const fn on(mut self, backends: &'static [&'static str]) -> Key {
        self.on = backends;
        self
    }

    pub const fn bare(mut self) -> Key {
        self.bare = true;
        self
    }

    /// Does a block with this backend have it? Without a backend, any.
    #[must_use]
    pub fn is_on(&self, backend: Option<&str>) -> bool {
        self.on.is_empty() || backend.is_none_or(|backend| self.on.contains(&backend))
    }
}

pub const fn key(name: &'static str, shape: Shape, about: &'static str) -> Key {
    Key { name, shape, about, default: "", required: false, built: true, on: &[], bare: false }
}

/// A map of the file with a fixed set of keys.
#[derive(Debug)]
pub struct Level {
    /// Heading in the reference.
    pub title: &'static str,
    /// What it is, for a message: "a device".
    pub what: &'static str,
    /// In front of its keys in a message: `prepare.`.
    pub prefix: &'static str,
    pub keys: &'static [Key],
    /// Of a block: its backend, if known.
    pub backend: Option<&'static str>,
}

impl Level {
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// Keys that this build takes here.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.keys.iter().filter(|key| key.built && key.is_on(self.backend)).map(|key| key.name)
    }

    /// Of its heading in the reference.
    #[must_use]
    pub fn anchor(&self) -> String {
        self.title.to_lowercase().chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_').collect::<String>().replace(' ', "-")
    }
}

pub const fn level(title: &'static str, what: &'static str, prefix: &'static str, keys: &'static [Key]) -> Level {
    Level { title, what, prefix, keys, backend: None }
}
