//! A campaign with what it takes from outside of its file.

use isotherm::config::{self, ConfigErrors, Draft, Outside, model::Campaign};
use isotherm::plan::{Plan, Work, expand};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

/// A file with the files beside it, variables and `--set`s.
pub struct Case<'a> {
    pub file: &'a str,
    pub beside: &'a [(&'a str, &'a str)],
    pub variables: &'a [(&'a str, &'a str)],
    pub set: &'a [&'a str],
}

impl Case<'_> {
    pub fn of(file: &str) -> Case<'_> {
        Case { file, beside: &[], variables: &[], set: &[] }
    }

    pub fn draft(&self) -> Result<Draft, ConfigErrors> {
        let read = |path: &Path| {
            let found = self.beside.iter().find(|(name, _)| PathBuf::from("/c").join(name) == path);
            found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        };
        let variable = |name: &str| self.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let set: Vec<String> = self.set.iter().map(|text| (*text).to_owned()).collect();
        config::understand(self.file, Path::new("/c/x.yaml"), &Outside { read: &read, variable: &variable, set: &set, dir: None })
    }

    pub fn campaign(&self) -> Campaign {
        self.draft().and_then(Draft::runnable).unwrap_or_else(|errors| panic!("{errors}"))
    }

    pub fn plan(&self) -> Plan {
        expand::expand(&self.campaign(), &BTreeMap::new()).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn errors(&self) -> String {
        self.draft().and_then(Draft::runnable).expect_err("faults").render(false)
    }
}

pub fn argv(plan: &Plan, index: usize) -> &[String] {
    match &plan.points[index].work {
        Work::Command(work) => &work.argv,
        _ => panic!("a command"),
    }
}

/// One device, and the beginning of a matrix.
pub const HEAD: &str = "devices: { here: { local: {} } }\nmatrix:\n";

/// `backend: command` with more in its braces.
pub fn one(more: &str) -> String {
    format!("{HEAD}  - {{ devices: here, backend: command, argv: [x]{more} }}\n")
}
