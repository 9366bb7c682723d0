//! `--filter` and `--rerun`: which jobs are meant, as `axis=value` pairs.

use crate::plan::{Plan, power};
use crate::schedule::Slot;
use std::collections::BTreeSet;
use thiserror::Error;

/// Values listed in an error.
const MOST_LISTED: usize = 20;

/// Pairs of one axis are alternatives; different axes all have to agree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pairs: Vec<(String, String)>,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum FilterError {
    #[error("{0:?} is not a filter: write `axis=value`, as in `model=qwen05` or `threads=4,model=qwen05`")]
    Form(String),
    #[error("no axis `{name}` here; there are {known}")]
    Axis { name: String, known: String },
    #[error("`{name}` is never {value:?} here; its values are {known}")]
    Value { name: String, value: String, known: String },
}

impl Filter {
    /// Parse texts such as `threads=1,2` or `threads=4,model=a`; an empty list is the filter that takes everything.
    ///
    /// # Errors
    /// A text that doesn't begin with `axis=`.
    pub fn parse(texts: &[String]) -> Result<Filter, FilterError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for text in texts {
            let mut name = None;
            for part in text.split(',') {
                let value = match part.split_once('=') {
                    Some((given, value)) => {
                        name = Some(given.trim().to_owned());
                        value
                    }
                    // `threads=1,2`: another value of the same axis.
                    None => part,
                };
                let name = name.clone().ok_or_else(|| FilterError::Form(text.clone()))?;
                pairs.push((name, value.trim().to_owned()));
            }
        }
        Ok(Filter { pairs })
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Does it say something of this axis?
    #[must_use]
    pub fn names(&self, axis: &str) -> bool {
        self.pairs.iter().any(|(name, _)| name == axis)
    }

    /// Check that every pair can take something of this plan.
    ///
    /// # Errors
    /// An axis or a value that no point has: a filter that silently takes nothing would look like work done.
    pub fn check(&self, plan: &Plan) -> Result<(), FilterError> {
        for (name, value) in &self.pairs {
            let mut values = BTreeSet::new();
            let mut names = BTreeSet::from(["device", "backend", "kind", "repetition"].map(str::to_owned));
            for point in &plan.points {
                names.extend(point.ids.axes.keys().cloned());
                match name.as_str() {
                    // The kind of run, unless the campaign has an axis of that name.
                    "kind" if !point.ids.axes.contains_key("kind") => {
                        values.extend(power::possible(point.settings.power).iter().map(|kind| kind.name().to_owned()));
                    }
                    "device" => _ = values.insert(point.ids.device.clone()),
                    "backend" => _ = values.insert(point.ids.backend.clone()),
                    "repetition" => values.extend((0..point.settings.repetitions).map(|r| r.to_string())),
                    axis => values.extend(point.ids.axes.get(axis).map(ToString::to_string)),
                }
            }
            let listed = |set: BTreeSet<String>| {
                let more = set.len().saturating_sub(MOST_LISTED);
                let mut list: Vec<String> = set.into_iter().take(MOST_LISTED).collect();
                list.extend((more > 0).then(|| format!("… {more} more")));
                list.join(", ")
            };
            if values.is_empty() {
                return Err(FilterError::Axis { name: name.clone(), known: listed(names) });
            }
            if !values.contains(value) {
                return Err(FilterError::Value { name: name.clone(), value: value.clone(), known: listed(values) });
            }
        }
        Ok(())
    }

    /// Does it take this job?
    #[must_use]
    pub fn takes(&self, plan: &Plan, slot: &Slot) -> bool {
        let point = &plan.points[slot.point];
        let actual = |name: &str| match name {
            "kind" if !point.ids.axes.contains_key("kind") => Some(slot.kind.name().to_owned()),
            "device" => Some(point.ids.device.clone()),
            "backend" => Some(point.ids.backend.clone()),
            "repetition" => Some(slot.repetition.to_string()),
            axis => point.ids.axes.get(axis).map(ToString::to_string),
        };
        self.pairs.iter().all(|(name, _)| {
            let actual = actual(name);
            self.pairs.iter().any(|(n, value)| n == name && actual.as_ref() == Some(value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_one_axis_are_alternatives() {
        let parse = |texts: &[&str]| Filter::parse(&texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>());
        let pairs = |f: Result<Filter, FilterError>| f.map(|f| f.pairs.iter().map(|(n, v)| format!("{n}:{v}")).collect::<Vec<_>>().join(" "));
        assert_eq!(pairs(parse(&["threads=1,2,model=a", "model=b"])), Ok("threads:1 threads:2 model:a model:b".into()));
        assert_eq!(parse(&["threads"]), Err(FilterError::Form("threads".into())));
    }
}
